"""Curvature at a point of your choice: Hessian-vector products and the largest eigenvalue."""

from firstish.spectrum.lanczos import Eigenpair, largest_eigenvalue
from firstish.spectrum.products import curvature, hvp

__all__ = ["Eigenpair", "curvature", "hvp", "largest_eigenvalue"]
