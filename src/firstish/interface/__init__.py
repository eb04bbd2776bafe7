"""How the library answers a user: suggestions for names, displays, tables and plots."""
