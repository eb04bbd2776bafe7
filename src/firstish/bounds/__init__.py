"""Bounds l <= x <= u.

`forms`, what users pass; `box`, the box; `room`, which variables are free at a point of it;
`bounded`, an objective whose points stay inside.
"""
