"""A module and its loss as an objective."""
