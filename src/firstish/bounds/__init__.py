"""Bounds l <= x <= u.

`forms`, what users pass; `box`, the box; `bounded`, an objective whose points stay inside it.
"""
