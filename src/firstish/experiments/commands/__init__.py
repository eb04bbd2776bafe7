"""The commands behind `firstish`, a module each."""
