"""One iteration of each method."""

from firstish.methods.base import AnyMethod, Failure, Method, Step
from firstish.methods.directions import AdamDirection, Direction, MomentumDirection
from firstish.methods.lazy_step import LazyState, LazyStep
from firstish.methods.plane_step import PlaneState, PlaneStep
from firstish.methods.scaled_direction import ScaledDirection
from firstish.methods.scaled_gradient import CycleState, ScaledGradient

__all__ = [
    "AdamDirection",
    "AnyMethod",
    "CycleState",
    "Direction",
    "Failure",
    "LazyState",
    "LazyStep",
    "Method",
    "MomentumDirection",
    "PlaneState",
    "PlaneStep",
    "ScaledDirection",
    "ScaledGradient",
    "Step",
]
