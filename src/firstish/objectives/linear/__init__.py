"""Linear models, whose points keep A x to save passes over A."""
