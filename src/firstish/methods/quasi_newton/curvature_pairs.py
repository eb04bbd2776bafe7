"""The inverse Hessian B of self-scaled BFGS, from its curvature pairs, in compact form.

A pair (s, y), the changes of x and of the gradient over a step, says that H s = y along s. BFGS
puts it into B; the self-scaled update (Oren and Luenberger; Al-Baali) first rescales what older
pairs say by the ratio of the curvature found along s to the curvature that B expected there:

    B+ = (1/tau) V^T B V + s s^T/<s,y>,    V = I - y s^T/<s,y>,
    tau = min(1, <s,y> / <s,B^-1 s>),      tau = 1 for the oldest pair, where B = <s,y>/<y,y> I

(`LazyStep` drops the bound 1 where B has proved too large; nothing here depends on it.)

B is not formed (Byrd, Nocedal and Schnabel). With unit vectors s_k, y_k as the rows of S and Y, the
stretches |y|/|s| of the pairs, R the upper triangle of S Y^T, and

    e_k = w_k R_kk / stretch_k,    w_k = 1 / (tau_k+1 ... tau_m),    gamma = e_1:

    u = R^-1 S v,    q = v - Y^T u,    B v = gamma q + S^T R^-T (e u - gamma Y q)

two products with S, two with Y and two triangular solves; a new pair costs one more with S, its
column of R. R_kk is the cosine of the angle between s and y, and R_kk/stretch is <s,y>/<y,y>, so no
product of two norms is ever formed. R and its systems are float64 whatever the vectors are. Where
these are sharded, R is the same on every rank.

S and Y may be rounded to float32 under an x in float64: half the memory, and half the time of the
products, which is that of reading S and Y. y was then still a difference of float64 gradients, and
B is as good relative to it: this is not an optimization in float32.

Without self-scaling all w are 1, and gamma is that of the newest pair: textbook L-BFGS.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from firstish.linalg import Array, Vector, add_combination, dots, norm, norm_and_cosine, on_cpu
from firstish.methods.quasi_newton.row_buffer import aligned, appended

POSITIVE = 1e-8  # least cosine of the angle between the changes of x and g
LEAST = 10  # pairs that are kept however long they are
SHARE = 0.5  # least part of a step, |s_F|^2/|s|^2, in the free variables
LARGE = 2**18  # numbers in S, 1 or 2 MB: more than a cache close to a core holds
ALONE = 1e-2  # 1 less that part: the free variables moved all but alone
SHOWN = 1e-6  # least part of a pair, <s_F,y_F>/(|s||y|), in the free variables


class Pair(NamedTuple):
    """s/|s|, y/|y|, the cosine of their angle and |y|/|s|; the cosine is positive."""

    step: Vector
    change: Vector
    cosine: float
    stretch: float

    def vectors(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """s/|s| and y/|y| in that dtype."""
        if self.step.dtype is dtype:
            return self.step, self.change
        return self.step.to(dtype), self.change.to(dtype)

    @property
    def curvature(self) -> float:
        """<s,y>/<s,s>."""
        return self.cosine * self.stretch


def pair(s: Vector, y: Vector, least: float) -> Pair | None:
    """The pair, if its cosine is at least `least`: else it shows no positive curvature.

    Writes into s and y.
    """
    s_norm = norm(s)
    if s_norm == 0:
        return None
    y_norm, cosine = norm_and_cosine(y, s, s_norm)
    stretch = y_norm / s_norm
    if not (cosine >= least and 0 < stretch < math.inf):
        return None
    s /= s_norm
    y /= y_norm
    return Pair(s, y, cosine, stretch)


class FreePart(NamedTuple):
    """The part of curvature pairs that is of the free variables.

    Attributes:
        free: 1 for the free variables, 0 for the others, for which S and Y count as 0.
        R: that of the pairs over the free variables. A pair that is not used has an infinite
            diagonal entry, which makes its coefficients 0.
    """

    free: Tensor
    R: Array

    @classmethod
    def of(cls, free: Tensor, R: Array, shares: Array, eps: float) -> FreePart | None:
        """The part of the pairs that tell of the free variables; None if there are none.

        For a pair whose step left the others where they were, H_FF s_F = y_F. In the y_F of another
        step is the effect of the others: such a pair is used only if it is one of the newest and
        its step was mostly one of the free variables. (With all of them, a non-negative least
        squares problem in 1,000 variables took three times as many calls.) Nor is a pair used that
        shows too little curvature of the free variables.

        Args:
            free: 1 for the free variables, 0 for the others.
            R: that of the pairs over them.
            shares: |s_F|^2/|s|^2 of the pairs.
            eps: the unit roundoff of their vectors.
        """
        noise, cosines = 100 * eps, R.diagonal()
        used = (cosines > max(SHOWN, noise)) & (shares >= SHARE)
        used[:-LEAST] &= shares[:-LEAST] >= 1 - max(ALONE, noise)
        count = np.count_nonzero(used)
        if count == 0:
            return None
        if count < len(used):
            R = R.copy()
            R.reshape(-1)[:: len(R) + 1][~used] = math.inf  # its diagonal
        return cls(free, R)


@dataclass(frozen=True, slots=True)
class Pairs:
    """Curvature pairs, the oldest first.

    Args:
        S: s/|s| of each, as rows; of a vector spread over ranks, this rank's part.
        Y: y/|y| of each.
        R: transposed, its lower triangle is in use: R[j, i] = <s_i, y_j> for i <= j.
        stretches: |y|/|s|.
        taus: the ratio by which each rescaled those before it.
        known: a v whose B v is wanted next, and S u with the u of `_in_range`; None without one.
    """

    S: Tensor
    Y: Tensor
    R: Array
    stretches: tuple[float, ...]
    taus: tuple[float, ...]
    known: tuple[Tensor, Tensor] | None = None

    @classmethod
    def first(cls, new: Pair) -> Pairs:
        """One pair."""
        rows = appended(None, new.step), appended(None, new.change)
        return cls(*rows, np.array([[new.cosine]]), (new.stretch,), (1.0,))

    def __len__(self) -> int:
        return len(self.taus)

    def plus(self, new: Pair, tau: float, memory: int, v: Tensor | None = None) -> Pairs:
        """These and a new pair; the oldest are dropped where there would be more than `memory`.

        If B v is wanted next: where S is large, most of the time is that of reading it, which is
        then done once for the new pair and for v.
        """
        kept = self.newest(memory - 1)
        if kept is None:
            return Pairs.first(new)
        m, (step, change) = len(kept), new.vectors(kept.S.dtype)
        R, known = np.zeros((m + 1, m + 1)), None
        R[:m, :m] = kept.R
        if type(v) is Tensor and kept.S.numel() >= LARGE:
            u, _ = kept._in_range(v)
            both = on_cpu(torch.mm(kept.S, torch.stack([change, u]).t()))
            R[m, :m] = both[:, 0].numpy()
            known = v, torch.cat([both[:, 1], dots(step[None], u)])
        else:
            R[m, :m] = dots(kept.S, change).numpy()
        R[m, m] = new.cosine
        S, Y = appended(kept.S, step), appended(kept.Y, change)
        return Pairs(S, Y, R, (*kept.stretches, new.stretch), (*kept.taus, tau), known)

    def newest(self, count: int) -> Pairs | None:
        """The newest of these, at most `count`; the first of them has no older ones to rescale."""
        drop = max(0, len(self) - count)
        if drop == len(self):
            return None
        if drop == 0:
            return self
        rest = self.stretches[drop:], (1.0, *self.taus[drop + 1 :])
        return Pairs(self.S[drop:], self.Y[drop:], self.R[drop:, drop:], *rest)

    def rounded(self) -> Pairs:
        """The same with S and Y in float32."""
        S, Y = (aligned(rows.to(torch.float32)) for rows in (self.S, self.Y))
        return Pairs(S, Y, self.R, self.stretches, self.taus)

    def newest_scale(self) -> float:
        """<s,y>/<y,y> of the newest pair, within the range of its vectors."""
        return min(float(self.R[-1, -1]) / self.stretches[-1], torch.finfo(self.S.dtype).max)

    def times(self, v: Tensor, self_scaled: bool = True, part: FreePart | None = None) -> Tensor:
        """B v; with a part over the free variables, for a v that is 0 for the others."""
        u, length = self._in_range(v)
        Su = self.known[1] if self.known is not None and v is self.known[0] else dots(self.S, u)
        q, t, gamma = self._coefficients(u, Su, self_scaled, part)
        if u is v:
            return self._combined(q, t, gamma, part)
        scale = max(gamma, float(t.abs().max()))  # B may be beyond the range of float32
        found = self._combined(q, t / scale, gamma / scale, part)
        return found.to(v.dtype).mul_(scale).mul_(length)

    def _in_range(self, v: Tensor) -> tuple[Tensor, float]:
        """v, or v/|v| in the dtype of the pairs, and its factor."""
        if v.dtype == self.S.dtype:
            return v, 1.0
        length = norm(v)
        return (v / length).to(self.S.dtype), length

    def _coefficients(
        self, v: Tensor, Sv: Tensor, self_scaled: bool, part: FreePart | None
    ) -> tuple[Tensor, Tensor, float]:
        """q, t and gamma with B v = gamma q + S^T t."""
        R = torch.from_numpy(self.R if part is None else part.R)
        e, gamma = self._initial_scales(self_scaled, part)
        u = _solve(R.t(), Sv, upper=True)
        q = _of_free(part, add_combination(v, self.Y, u, sign=-1.0))
        rest = torch.from_numpy(e).mul_(u).sub_(dots(self.Y, q), alpha=gamma)
        return q, _solve(R, rest, upper=False), gamma

    def _combined(self, q: Tensor, t: Tensor, gamma: float, part: FreePart | None) -> Tensor:
        return _of_free(part, add_combination(q, self.S, t, gamma))

    def _initial_scales(self, self_scaled: bool, part: FreePart | None) -> tuple[Array, float]:
        """e: <s,y>/<y,y> of each pair, over the taus of those after it; and gamma."""
        taus = np.array((1.0, *self.taus[:0:-1]))  # of the pair after each, the newest first
        cosines = (self.R if part is None else part.R).diagonal()
        used = np.isfinite(cosines)
        taus[1:][~used[:0:-1]] = 1.0
        w = np.divide.accumulate(taus)[::-1]  # 1/(tau_k+1 ... tau_m)
        e: Array = w * cosines / np.array(self.stretches)
        k = int(used.nonzero()[0][0 if self_scaled else -1])
        if part is None:
            return e, float(e[k])
        e[~used] = 0.0
        return e, float(e[k]) / norm(self.Y[k] * part.free) ** 2


def _of_free(part: FreePart | None, v: Tensor) -> Tensor:
    return v if part is None else v.mul_(part.free)


def _solve(R: Tensor, b: Tensor, upper: bool) -> Tensor:
    found: Tensor = torch.linalg.solve_triangular(R, b[:, None], upper=upper)
    return found[:, 0]
