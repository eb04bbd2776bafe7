"""Problems with bounds, and the solvers that are compared on them by `benchmarks/bounds.py`."""
