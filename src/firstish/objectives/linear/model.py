"""The loss of a linear model, whose points keep A x to save passes over A."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from firstish.distributed import Group, warn_if_not_joined
from firstish.linalg import add, dot
from firstish.objectives.base import Meter, Order, Point, Product, rounding_error
from firstish.objectives.flatten import check_form
from firstish.objectives.linear.families import Family, Loss
from firstish.objectives.linear.features import Features, SparseMatrix, check_features
from firstish.objectives.linear.targets import checked_weights, per_sample
from firstish.objectives.module.checksums import checksum, require_same
from firstish.objectives.penalty import L2Penalty
from firstish.scaling import Angle

REFRESH = 50
"""Steps after which z is recomputed from x, because the updates z + alpha A p add up rounding."""


class LinearModel:
    """f(x) = sum_i w_i loss(z_i, y_i) / sum_i w_i + weight_decay/2 |x|^2 with z = A x.

    A point keeps its scores z, which saves passes over A: the gradient A'r takes one, the curvature
    along it <Ag, D Ag> one, the product A'(D Ag) another, and a trial x + alpha p none once A p is
    known, because its scores are z + alpha A p. A unit-step iteration takes 2 passes with the CG
    scale and 3 with MR or GM, against 4 with autograd. `passes` counts them; `oracle_calls` are in
    the paper's unit. z is recomputed every `REFRESH` steps.

    x has a row of weights for each score, flattened; `initial()` has its size.

    Args:
        features: A, with a row for each sample: a dense or sparse tensor or a sparse matrix of
            SciPy, float32 or float64. A dense tensor is not copied and must not be modified.
        targets: y; their form depends on the family.
        family: `families.Logistic()`, `Multinomial()`, `LeastSquares()` or `Poisson()`.
        sample_weight: w, at least 0, one for each sample; all equal by default.
        weight_decay: lambda in the formula above.
        intercept: True to add the last entry of each row of x to its score, like a last column of
            ones in A.
        penalise_intercept: True to apply the weight decay to the intercepts too.
        process_group: of `torch.distributed`; features and targets are then the rows of this
            process, at least one, and f is the mean over those of all processes.

    Examples:
        >>> import firstish
        >>> A = torch.tensor([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]], dtype=torch.float64)
        >>> y = torch.tensor([1.0, 3.0, 5.0])
        >>> objective = LinearModel(A, y, firstish.families.LeastSquares())
        >>> result = firstish.minimize(objective, objective.initial(), gtol=1e-10)
        >>> [round(v, 6) for v in result.x.tolist()]
        [1.0, 2.0]
    """

    def __init__(
        self,
        features: Tensor | SparseMatrix,
        targets: Tensor,
        family: Family,
        *,
        sample_weight: Tensor | None = None,
        weight_decay: float = 0.0,
        intercept: bool = False,
        penalise_intercept: bool = True,
        process_group: Any = None,
    ) -> None:
        if not isinstance(family, Family):
            raise TypeError(
                "`LinearModel(family=...)` must be a family such as `firstish.families.Logistic()`,"
                f" got {family!r}."
            )
        A = check_features(features)
        self.loss: Loss = family.on(per_sample(A, "targets", targets), A.dtype)
        self.features = Features(A, intercept, self.loss.columns)
        self.meter = Meter()
        self.dtype, self.device = A.dtype, A.device
        self.eps = torch.finfo(A.dtype).eps
        mask = None
        if intercept and not penalise_intercept:
            mask = torch.ones_like(self.initial())
            mask.view(-1, self.features.width)[:, -1] = 0
        self.penalty = L2Penalty(weight_decay, "LinearModel", mask)
        self._weights, mine = checked_weights(A, sample_weight)
        self.group = Group(process_group, A.device)
        if process_group is None:
            warn_if_not_joined("LinearModel")
        self._checked = self.group.alone
        self._total = sum(self.group.gather(mine))
        # Not the size of x alone: an intercept and an additional column give the same size.
        weights = (A.shape[1], self.loss.columns, getattr(family, "pinned", None))
        penalties = (weight_decay, intercept, penalise_intercept)
        self.group.require_same(
            (weights, A.dtype, type(family).__qualname__, penalties),
            "models or settings",
            "Build the same linear model on every rank, with all classes named.",
        )

    def initial(self) -> Tensor:
        """Zeros, as many as x has entries."""
        return torch.zeros(self.features.size, dtype=self.dtype, device=self.device)

    def at(self, x: Tensor, order: Order = 2) -> LinearPoint:
        """The point x, not yet evaluated."""
        return LinearPoint(self, x, order)

    def check_vector(self, x: Tensor, call: str) -> None:
        """Raise unless x has the size, dtype and device of this objective."""
        check_form(x, self.features.size, self.dtype, self.device, call)

    def check_once(self, x: Tensor) -> None:
        """Check before the first evaluation that all ranks start at the same point."""
        if not self._checked:
            self._checked = True
            require_same(self.group, {"starting point": checksum(x)}, "LinearModel")

    def scores(self, x: Tensor) -> Tensor:
        """A x; one pass."""
        self.meter.passes += 1
        return self.features.times(x)

    def mean(self, losses: Tensor) -> float:
        """The weighted mean over the samples, summed in float64."""
        if self._weights is None:
            wide = torch.float32 if losses.device.type == "mps" else torch.float64
            mine = losses.sum(dtype=wide).item()
        else:
            mine = dot(self._weights, losses)
        return sum(self.group.gather(mine)) / self._total

    def pull_back(self, r: Tensor, of: Tensor) -> Tensor:
        """A'(w r) / sum w + weight_decay `of`, the derivative by x from r, that by z; one pass.

        r is overwritten.
        """
        self.meter.passes += 1
        vector = self.group.all_sum(self.features.transposed(self._weighted(r))).div_(self._total)
        return self.penalty.plus_derivative(vector, of)

    def quadratic_form(self, t: Tensor, u: Tensor, v: Tensor) -> float:
        """<t, w u> / sum w + weight_decay <v, v>, which is <v, Hv> for t = A v and u = D t.

        u is overwritten.
        """
        mine = dot(t.reshape(-1), self._weighted(u).reshape(-1))
        return sum(self.group.gather(mine)) / self._total + 2 * self.penalty.value(v)

    def _weighted(self, r: Tensor) -> Tensor:
        if self._weights is None:
            return r
        return r.mul_(self._weights if r.ndim == 1 else self._weights.unsqueeze(1))


class LinearPoint(Point):
    """A point of a `LinearModel`."""

    _z: Tensor | None = None  # A x
    _age = 0  # steps since z was computed from x
    _known: Tensor | None = None  # a function of z for the derivatives of the loss
    _image: tuple[Tensor, Tensor] | None = None  # the last v, and A v

    def __init__(self, objective: LinearModel, x: Tensor, order: Order) -> None:
        super().__init__(x, objective.meter, order)
        self.objective = objective

    @property
    def eps(self) -> float:
        """Unit roundoff of the arithmetic f is computed in."""
        return self.objective.eps

    def at(self, x: Tensor, order: Order = 2) -> Point:
        """Another point of the same objective."""
        return self.objective.at(x, order)

    def along(self, p: Tensor, alpha: float, order: Order = 2) -> Point:
        """The point x + alpha p with the scores z + alpha A p; A p is kept for the next trial."""
        new = self.objective.at(add(self.x, p, alpha), order)
        if self._age + 1 < REFRESH:
            new._z = add(self._scores(), self._along(p), alpha)
            new._age = self._age + 1
        return new

    def curvature(self, v: Tensor) -> float:
        """<v, Hv> = <Av, D Av>; 2 oracle calls like a product, but one pass less."""
        if self._last_product is not None and self._last_product[0] is v:
            return super().curvature(v)
        return self._curvature(v)

    def angle(
        self, v: Tensor | None = None, v_norm: float | None = None, *, rayleigh_only: bool = False
    ) -> Angle:
        """The angle between v and Hv; `rayleigh_only` omits |Hv|, which costs another pass."""
        if v is None or v_norm is None:
            v, v_norm, _ = self.grad_in_range()
        known = self._last_product is not None and self._last_product[0] is v
        if known or not rayleigh_only:
            return super().angle(v, v_norm)
        rayleigh = self._curvature(v, v_norm)
        length, cosine = abs(rayleigh) * v_norm, math.copysign(1.0, rayleigh)
        return Angle(v_norm, length, cosine, rounding_error(self.eps) * abs(rayleigh), partial=True)

    def score_curvatures(self) -> Tensor:
        """The second derivative of each sample's loss by each of its scores, without a pass."""
        return self.objective.loss.hessian_diagonal(self._derivative_input())

    def inherited(self) -> tuple[Any, ...]:
        """The scores and their age, unless they were computed from x."""
        return () if self._age == 0 else (self._z, self._age)

    def inherit(self, what: tuple[Any, ...]) -> None:
        """Restore what `inherited` returned."""
        if what:
            self._z, self._age = what

    def release(self) -> None:
        """Free the scores, which are recomputed if needed."""
        self._z = self._known = self._image = None
        self._age = 0

    def _scores(self) -> Tensor:
        if self._z is None:
            self._z = self.objective.scores(self.x)
        return self._z

    def _derivative_input(self) -> Tensor:
        if self._known is None:
            self._known = self.objective.loss.at(self._scores())[1]
        return self._known

    def _along(self, v: Tensor) -> Tensor:
        if self._image is None or self._image[0] is not v:
            self._image = (v, self.objective.scores(v))
        return self._image[1]

    def _curvature(self, v: Tensor, norm: float = 1.0) -> float:
        """<v, Hv> / norm^2."""
        _ = self.grad
        t = self._along(v)
        if self._charged is not v:
            self.meter.oracle_calls += 2
            self._charged = v
        if norm != 1.0:  # before the squares, so that they do not overflow
            t, v = t / norm, v / norm
        u = self.objective.loss.hessian_product(self._derivative_input(), t)
        return self.objective.quadratic_form(t, u, v)

    def _value(self) -> float:
        self.objective.check_once(self.x)
        losses, self._known = self.objective.loss.at(self._scores())
        return self.objective.mean(losses) + self.objective.penalty.value(self.x)

    def _gradient(self) -> Tensor:
        return self.objective.pull_back(self.objective.loss.slope(self._derivative_input()), self.x)

    def _product(self, v: Tensor) -> Product:
        u = self.objective.loss.hessian_product(self._derivative_input(), self._along(v))
        return Product.by_exact_formula(self.objective.pull_back(u, v), self.eps)
