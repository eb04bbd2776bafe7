"""Doors for those who come from elsewhere."""
