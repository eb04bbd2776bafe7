"""The losses of linear models and their first two derivatives with respect to the scores z = A x.

    Logistic        log(1 + e^(-b z)),  b = -1 or 1
    Multinomial     log sum_c e^(z_c) - z_y
    LeastSquares    (z - y)^2 / 2
    Poisson         e^z - y z

A `Family` holds settings; with the targets of a data set it makes a `Loss`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from firstish._validate import check_count


class Loss(ABC):
    """The loss of a family on given targets, for scores of shape (n,) or (n, columns).

    Attributes:
        columns: the number of scores per sample; None for scores of shape (n,).
    """

    columns: int | None = None

    @abstractmethod
    def at(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of each sample, (n,), and a tensor `known` from which derivatives follow."""

    @abstractmethod
    def slope(self, known: Tensor) -> Tensor:
        """The derivative of each sample's loss by its scores, a new tensor shaped like z."""

    @abstractmethod
    def hessian_product(self, known: Tensor, t: Tensor) -> Tensor:
        """The Hessian of each sample's loss in its scores times t, a new tensor shaped like z."""

    @abstractmethod
    def hessian_diagonal(self, known: Tensor) -> Tensor:
        """The diagonal of the Hessian of each sample's loss, a new tensor shaped like z."""


class Family(ABC):
    """A kind of loss for a linear model."""

    @abstractmethod
    def on(self, targets: Tensor, dtype: torch.dtype) -> Loss:
        """The loss on these targets; raises if they do not suit the family."""


@dataclass(frozen=True, slots=True)
class Logistic(Family):
    """Two classes, log(1 + e^(-b z)); targets are 0 and 1, -1 and 1, or booleans.

    Examples:
        >>> import math
        >>> loss = Logistic().on(torch.tensor([0, 1]), torch.float64)
        >>> loss.at(torch.zeros(2))[0].tolist() == [math.log(2)] * 2
        True
    """

    def on(self, targets: Tensor, dtype: torch.dtype) -> Loss:
        """The loss on labels of two classes."""
        _vector("Logistic", targets)
        positive = targets == 1
        negative = (targets == 0) | (targets == -1)
        mixed = bool((targets == 0).any()) and bool((targets == -1).any())
        if mixed or not bool((positive | negative).all()):
            wrong = "0 and -1 together" if mixed else targets[~(positive | negative)][0].item()
            raise ValueError(
                f"`Logistic()` needs targets that are 0 and 1, or -1 and 1, got {wrong}. "
                "For more classes use `Multinomial()`."
            )
        return _LogisticLoss(torch.where(positive, -1.0, 1.0).to(dtype))


class _LogisticLoss(Loss):
    def __init__(self, minus_b: Tensor) -> None:
        self._minus_b = minus_b

    def at(self, z: Tensor) -> tuple[Tensor, Tensor]:
        m = self._minus_b * z
        # Above its threshold softplus is the identity. At the default, 20, that is a jump of 2e-9,
        # large enough to disturb a line search in float64.
        return F.softplus(m, threshold=50.0), m

    def slope(self, known: Tensor) -> Tensor:
        return torch.sigmoid(known).mul_(self._minus_b)

    def hessian_product(self, known: Tensor, t: Tensor) -> Tensor:
        return self.hessian_diagonal(known).mul_(t)

    def hessian_diagonal(self, known: Tensor) -> Tensor:
        # p (1 - p), without the cancellation in 1 - p
        return torch.sigmoid(known).mul_(torch.sigmoid(-known))


@dataclass(frozen=True, slots=True, kw_only=True)
class Multinomial(Family):
    """C classes, log sum_c e^(z_c) - z_y; targets are integers from 0 to C - 1.

    Args:
        classes: C; by default the largest target plus 1.
        pinned: fix the score of the last class at 0, as the paper does; x then has C - 1 rows.
            Otherwise it has C rows, and the loss does not change if a vector is added to all.

    Examples:
        >>> loss = Multinomial(classes=3, pinned=True).on(torch.tensor([0, 2]), torch.float64)
        >>> losses, p = loss.at(torch.zeros(2, 2))
        >>> loss.columns, [round(v, 3) for v in losses.exp().tolist()]
        (2, [3.0, 3.0])
    """

    classes: int | None = None
    pinned: bool = False

    def __post_init__(self) -> None:
        if self.classes is not None:
            check_count("Multinomial", "classes", self.classes, least=2)

    def on(self, targets: Tensor, dtype: torch.dtype) -> Loss:
        """The loss on labels of several classes."""
        _vector("Multinomial", targets)
        if targets.dtype is torch.bool or targets.is_floating_point() or targets.is_complex():
            raise TypeError(
                f"`Multinomial()` needs integer targets, got {targets.dtype}. "
                "Convert them with `.long()`."
            )
        labels = targets.long()
        lowest, highest = (int(v) for v in labels.aminmax())
        classes = max(2, highest + 1) if self.classes is None else self.classes
        if lowest < 0 or highest >= classes:
            wrong = lowest if lowest < 0 else highest
            raise ValueError(
                f"`Multinomial()` needs targets from 0 to {classes - 1}, got {wrong}. "
                "Number the classes from 0, and pass `classes=` if it is too small."
            )
        return _MultinomialLoss(labels, classes, self.pinned, dtype)


class _MultinomialLoss(Loss):
    columns: int

    def __init__(self, labels: Tensor, classes: int, pinned: bool, dtype: torch.dtype) -> None:
        self.columns = classes - 1 if pinned else classes
        self._pinned = pinned
        self._labels = labels.unsqueeze(1)
        self._is_label = F.one_hot(labels, classes)[:, : self.columns].to(dtype)

    def at(self, z: Tensor) -> tuple[Tensor, Tensor]:
        log_p = F.log_softmax(F.pad(z, (0, 1)) if self._pinned else z, dim=1)
        return -log_p.gather(1, self._labels).squeeze(1), log_p[:, : self.columns].exp()

    def slope(self, known: Tensor) -> Tensor:
        return known - self._is_label

    def hessian_product(self, known: Tensor, t: Tensor) -> Tensor:
        # (diag(p) - p p') t
        pt = known * t
        return pt.addcmul_(known, pt.sum(1, keepdim=True), value=-1)

    def hessian_diagonal(self, known: Tensor) -> Tensor:
        return known * (1 - known)


@dataclass(frozen=True, slots=True)
class LeastSquares(Family):
    """(z - y)^2 / 2; targets are one number per sample, (n,), or several, (n, columns).

    Examples:
        >>> loss = LeastSquares().on(torch.tensor([1.0, 3.0]), torch.float64)
        >>> loss.at(torch.zeros(2, dtype=torch.float64))[0].tolist()
        [0.5, 4.5]
    """

    def on(self, targets: Tensor, dtype: torch.dtype) -> Loss:
        """The loss on numbers."""
        if targets.ndim not in (1, 2) or targets.numel() == 0:
            raise ValueError(
                "`LeastSquares()` needs targets of shape (n,) or (n, columns), got "
                f"{tuple(targets.shape)}."
            )
        return _SquaredLoss(_finite("LeastSquares", targets, dtype))


class _SquaredLoss(Loss):
    def __init__(self, targets: Tensor) -> None:
        self._y = targets
        self.columns = None if targets.ndim == 1 else targets.shape[1]

    def at(self, z: Tensor) -> tuple[Tensor, Tensor]:
        error = z - self._y
        halves = error.square() / 2
        return halves if halves.ndim == 1 else halves.sum(1), error

    def slope(self, known: Tensor) -> Tensor:
        return known.clone()

    def hessian_product(self, known: Tensor, t: Tensor) -> Tensor:
        return t.clone()

    def hessian_diagonal(self, known: Tensor) -> Tensor:
        return torch.ones_like(known)


@dataclass(frozen=True, slots=True)
class Poisson(Family):
    """Counts with mean e^z, e^z - y z (without the constant log y!); targets are at least 0.

    Examples:
        >>> loss = Poisson().on(torch.tensor([0, 3]), torch.float64)
        >>> loss.at(torch.zeros(2, dtype=torch.float64))[0].tolist()
        [1.0, 1.0]
    """

    def on(self, targets: Tensor, dtype: torch.dtype) -> Loss:
        """The loss on counts."""
        _vector("Poisson", targets)
        counts = _finite("Poisson", targets, dtype)
        if bool((counts < 0).any()):
            raise ValueError(
                f"`Poisson()` needs targets of at least 0, got {counts.min().item()}. "
                "They are counts."
            )
        return _PoissonLoss(counts)


class _PoissonLoss(Loss):
    def __init__(self, counts: Tensor) -> None:
        self._y = counts

    def at(self, z: Tensor) -> tuple[Tensor, Tensor]:
        mean = z.exp()
        return mean - self._y * z, mean

    def slope(self, known: Tensor) -> Tensor:
        return known - self._y

    def hessian_product(self, known: Tensor, t: Tensor) -> Tensor:
        return known * t

    def hessian_diagonal(self, known: Tensor) -> Tensor:
        return known.clone()


def _vector(family: str, targets: Tensor) -> None:
    if targets.ndim != 1:
        raise ValueError(
            f"`{family}()` needs one target per sample, shape (n,), got {tuple(targets.shape)}."
        )


def _finite(family: str, targets: Tensor, dtype: torch.dtype) -> Tensor:
    if targets.is_complex():
        raise TypeError(f"`{family}()` needs real targets, got {targets.dtype}.")
    targets = targets.detach().to(dtype)
    bad = targets[~targets.isfinite()]
    if len(bad):
        raise ValueError(
            f"`{family}()` needs finite targets, got {bad[0].item()} ({len(bad)} in all). "
            "Remove those samples."
        )
    return targets
