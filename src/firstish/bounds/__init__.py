"""Bounds l <= x <= u: `box`, the box; `bounded`, an objective whose points stay inside it."""
