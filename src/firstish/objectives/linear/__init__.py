"""Linear models: points that keep A x, so that few passes over A are made."""
