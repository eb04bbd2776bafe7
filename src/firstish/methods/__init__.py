"""One iteration of each method."""

from firstish.methods.base import AnyMethod, Failure, Method, Step
from firstish.methods.directions import AdamDirection, Direction, MomentumDirection
from firstish.methods.lazy_step import LazyState, LazyStep
from firstish.methods.plane_step import LastPoint, PlaneStep
from firstish.methods.scaled_direction import ScaledDirection
from firstish.methods.scaled_gradient import CycleState, ScaledGradient

__all__ = [
    "AdamDirection",
    "AnyMethod",
    "CycleState",
    "Direction",
    "Failure",
    "LastPoint",
    "LazyState",
    "LazyStep",
    "Method",
    "MomentumDirection",
    "PlaneStep",
    "ScaledDirection",
    "ScaledGradient",
    "Step",
]
