"""One iteration of each method."""

from firstish.methods.base import AnyMethod, Failure, Method, Step
from firstish.methods.scaled_gradient import CycleState, ScaledGradient

__all__ = ["AnyMethod", "CycleState", "Failure", "Method", "ScaledGradient", "Step"]
