"""The paper's bounds as functions of its constants, to plan a run or to check one.

The paper's symbols and our argument names:

    sigma  curvature above which a step is SPC      L1  gradient_lipschitz: |Hg| <= L1 |g|
    rho    constant of Armijo's condition           L2  hessian_lipschitz, along -g
    theta  factor between line search trials        D   hessian_error: |<g,(H - H~)g>| <= D gg
    s_lpc, s_nc  scales of LPC and NC steps         mu, M  extreme eigenvalues of H near x*

These are worst-case bounds and often very pessimistic: with `sigma = 1e-6` the unit-step radius is
almost 0, although most steps of a run are unit steps. If f is mu-strongly convex, pass `sigma=mu`.
Where the paper needs a correction (docs/errata.md), the corrected bound is the default.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


def hessian_error_allowed(*, sigma: float, rho: float = 1e-4, s_nc: float = 1.0) -> float:
    """The largest Hessian error D that still allows unit steps near a stationary point.

        2 min{ sigma (1/2 - rho), (1 - rho) / s_nc }

    Pass `s_nc=0` if f is convex: no step is NC then.
    """
    _check_at_least_zero("hessian_error_allowed", sigma=sigma, s_nc=s_nc)
    _check_rho("hessian_error_allowed", rho)
    return 2 * min(sigma * (0.5 - rho), _ratio(1 - rho, s_nc))


def unit_step_radius(
    *,
    sigma: float,
    hessian_lipschitz: float,
    rho: float = 1e-4,
    s_nc: float = 1.0,
    hessian_error: float = 0.0,
) -> float:
    """The gradient norm up to which alpha = 1 passes Armijo's condition.

        6/L2 min{ sigma^2 (1/2 - rho - D/(2 sigma)), (1 - rho - s_nc D/2) / s_nc^2 }

    It is 0 if D exceeds `hessian_error_allowed`, and infinite if L2 = 0. Pass `s_nc=0` if f is
    convex: no step is NC then.

    >>> unit_step_radius(sigma=0.5, hessian_lipschitz=1.0, rho=0.25)
    0.375
    """
    _check_at_least_zero(
        "unit_step_radius",
        sigma=sigma,
        hessian_lipschitz=hessian_lipschitz,
        s_nc=s_nc,
        hessian_error=hessian_error,
    )
    _check_rho("unit_step_radius", rho)
    if hessian_error > hessian_error_allowed(sigma=sigma, rho=rho, s_nc=s_nc):
        return 0.0
    positive = 6 * sigma * max(0.0, sigma * (0.5 - rho) - hessian_error / 2)
    negative = _ratio(6 * max(0.0, 1 - rho - s_nc * hessian_error / 2), s_nc * s_nc)
    return _ratio(min(positive, negative), hessian_lipschitz)


def scale_bounds(
    *, scaling: str, sigma: float, gradient_lipschitz: float = math.inf
) -> tuple[float, float]:
    """The smallest and the largest scale of an SPC step; for a cycle, over all of its members.

        MR >= sigma / L1^2,    GM, CG >= 1 / L1,    all <= 1 / sigma

    If 0 <= H <= M I, then MR >= 1/M as well.

    >>> scale_bounds(scaling="CGMR", sigma=0.5, gradient_lipschitz=2.0)
    (0.125, 2.0)
    """
    names = _members("scale_bounds", scaling)
    _check_sigma_and_l1("scale_bounds", sigma, gradient_lipschitz)
    return _least_scale(names, sigma, gradient_lipschitz), _ratio(1, sigma)


def curvature_condition_radius(
    *,
    scaling: str,
    eta: float,
    sigma: float,
    hessian_lipschitz: float,
    gradient_lipschitz: float = math.inf,
) -> float:
    """The gradient norm up to which <g(x+p),p> >= eta <g,p> holds for an SPC step p.

        CG   2 sigma^2 eta / L2
        GM   2 sigma^2 (eta - (1 - sigma/L1)) / L2
        MR   2 sigma^2 (eta - (1 - sigma^2/L1^2)) / L2

    It is 0 if eta is too small for a guarantee, and for a cycle the smallest radius of its members.
    The paper states MR's radius for GM too; ours for GM follows from its remark that GM >= 1/L1,
    and is never smaller. CG needs no L1.

    >>> curvature_condition_radius(scaling="CG", eta=0.5, sigma=1.0, hessian_lipschitz=2.0)
    0.5
    """
    names = _members("curvature_condition_radius", scaling)
    _check_sigma_and_l1("curvature_condition_radius", sigma, gradient_lipschitz)
    _check_at_least_zero("curvature_condition_radius", hessian_lipschitz=hessian_lipschitz)
    if not 0 < eta < 1:
        raise ValueError(f"`curvature_condition_radius(eta=...)` must lie in (0, 1), got {eta}.")
    # Lower bounds on s gHg / gg, the fraction of the slope that a step removes on a quadratic.
    fraction = {
        "CG": 1.0,
        "GM": sigma / gradient_lipschitz,
        "MR": (sigma / gradient_lipschitz) ** 2,
    }
    margin = eta - (1 - min(fraction[name] for name in names))
    return _ratio(2 * sigma * sigma * margin, hessian_lipschitz) if margin > 0 else 0.0


@dataclass(frozen=True, slots=True)
class DecreaseConstants:
    """The guaranteed decrease of f by a step of each case, in units of gtol^2.

    It holds where |g| > gtol, for gtol < 1.
    """

    spc: float
    lpc: float
    nc: float

    @property
    def least(self) -> float:
        """The smallest of the three, which holds for every step."""
        return min(self.spc, self.lpc, self.nc)


def decrease_constants(
    *,
    sigma: float,
    gradient_lipschitz: float,
    hessian_lipschitz: float,
    rho: float = 1e-4,
    theta: float = 0.5,
    scaling: str = "CGMR",
    s_lpc: float | None = None,
    s_nc_ratio: float = 1.0,
    hessian_error: float = 0.0,
    grid: bool = True,
) -> DecreaseConstants:
    """The guaranteed decrease of f by a step of each case, in units of gtol^2.

    With `s` the smallest SPC scale (`scale_bounds`) and `t(b)` the root of L2 t^2/6 + D t/2 = b,

        SPC  rho min{ theta sigma (6 sigma (1/2 - rho) / L2)^2, s }     for D = 0
             rho min{ theta t(sigma (1/2 - rho) s), s }                 for D > 0
        LPC  rho min{ theta t(sigma (1/2 - rho) s_lpc), s_lpc }
        NC   rho theta t((1 - rho) s_nc_ratio)

    The line search rejects a trial only if it is longer than the longest step guaranteed to pass,
    and accepts either the unit step or theta times a rejected trial: hence the factor theta. The
    NC constant assumes that forward tracking is not stopped by its cap.

    Args:
        s_lpc: the LPC scale; min(1, 1/sigma) by default.
        s_nc_ratio: smallest over largest NC scale; 1 for a fixed one.
        grid: False omits theta, as the paper does; a line search can then do worse.
    """
    call = "decrease_constants"
    names = _members(call, scaling)
    _check_sigma_and_l1(call, sigma, gradient_lipschitz)
    _check_at_least_zero(call, hessian_lipschitz=hessian_lipschitz, hessian_error=hessian_error)
    _check_rho(call, rho)
    s_lpc = _checked_s_lpc(call, s_lpc, sigma)
    if not 0 < theta < 1:
        raise ValueError(f"`{call}(theta=...)` must lie in (0, 1), got {theta}.")
    if not 0 < s_nc_ratio <= 1:
        raise ValueError(f"`{call}(s_nc_ratio=...)` must lie in (0, 1], got {s_nc_ratio}.")
    if rho == 0:
        return DecreaseConstants(0.0, 0.0, 0.0)

    def t(b: float) -> float:
        return _guaranteed_length(b, hessian_lipschitz, hessian_error)

    shrink = theta if grid else 1.0
    s = _least_scale(names, sigma, gradient_lipschitz)
    margin = sigma * (0.5 - rho)
    if hessian_error > 0 or hessian_lipschitz == 0:
        long_step = t(margin * s)
    else:
        longest = 6 * margin / hessian_lipschitz
        long_step = sigma * longest * longest
    return DecreaseConstants(
        spc=rho * min(shrink * long_step, s),
        lpc=rho * min(shrink * t(margin * s_lpc), s_lpc),
        nc=rho * shrink * t((1 - rho) * s_nc_ratio),
    )


def iteration_bound(
    *,
    initial_gap: float,
    gtol: float,
    sigma: float,
    gradient_lipschitz: float,
    hessian_lipschitz: float,
    rho: float = 1e-4,
    theta: float = 0.5,
    scaling: str = "CGMR",
    s_lpc: float | None = None,
    s_nc_ratio: float = 1.0,
    hessian_error: float = 0.0,
    grid: bool = True,
) -> float:
    """The number of iterations K within which |g| <= gtol, for any f with these constants.

        K = ceil( (f(x0) - f*) / (min{c_SPC, c_LPC, c_NC} gtol^2) ),    0 < gtol < 1

    The constants and the other arguments are those of `decrease_constants`. K is infinite if one of
    the constants is 0, as it is for sigma = 0 or rho = 0.

    Args:
        initial_gap: f(x0) - f*, or an upper bound on it.
        gtol: the gradient norm to reach.
    """
    _check_at_least_zero("iteration_bound", initial_gap=initial_gap)
    if not 0 < gtol < 1:
        raise ValueError(
            f"`iteration_bound(gtol=...)` must lie in (0, 1), got {gtol}. Multiply f by a constant."
        )
    constants = decrease_constants(
        sigma=sigma,
        gradient_lipschitz=gradient_lipschitz,
        hessian_lipschitz=hessian_lipschitz,
        rho=rho,
        theta=theta,
        scaling=scaling,
        s_lpc=s_lpc,
        s_nc_ratio=s_nc_ratio,
        hessian_error=hessian_error,
        grid=grid,
    )
    iterations = _ratio(initial_gap, constants.least * gtol * gtol)
    return math.ceil(iterations) if math.isfinite(iterations) else math.inf


def local_rate(
    *, mu: float, M: float, sigma: float, rho: float = 1e-4, s_lpc: float | None = None
) -> float:
    """The rate tau near a minimiser: f(x+) - f* <= (1 - tau) (f(x) - f*).

        tau = 2 rho mu / M                       if sigma < mu: every step is SPC
        tau = 2 rho mu min{ 1/M, s_lpc }         otherwise

    The paper has max in place of min, which LPC steps contradict. `s_lpc` is min(1, 1/sigma) by
    default.

    >>> local_rate(mu=1.0, M=4.0, sigma=0.5, rho=0.25)
    0.125
    """
    _check_spectrum("local_rate", mu, M)
    _check_at_least_zero("local_rate", sigma=sigma)
    _check_rho("local_rate", rho)
    s_lpc = _checked_s_lpc("local_rate", s_lpc, sigma)
    return 2 * rho * mu * (1 / M if sigma < mu else min(1 / M, s_lpc))


def mr_gradient_radius(
    *, mu: float, hessian_lipschitz: float, M: float | None = None, nu: float | None = None
) -> float:
    """The gradient norm G0 below which every MR unit step decreases |g|.

        G0 = 2 mu^2 (1 - sqrt(1 - nu)) / L2

    Args:
        mu: lower bound on |gHg| / gg.
        M: upper bound on H, which gives nu = mu^2/M^2. Pass either M or nu.
        nu: lower bound on cos^2 of the angle between g and Hg. For a spectrum in [mu, M] the best
            one is 4 mu M / (mu + M)^2 (Kantorovich).
    """
    if (M is None) == (nu is None):
        raise ValueError(f"`mr_gradient_radius` takes either M or nu, got M={M} and nu={nu}.")
    _check_spectrum("mr_gradient_radius", mu, mu if M is None else M)
    _check_at_least_zero("mr_gradient_radius", hessian_lipschitz=hessian_lipschitz)
    nu = (mu / M) ** 2 if M is not None else nu
    return _ratio(2 * mu * mu * _gain("mr_gradient_radius", nu), hessian_lipschitz)


def mr_gradient_rate(*, nu: float) -> float:
    """The factor r in |g_k| <= G0 / (G0 - |g_0|) r^k |g_0| for MR unit steps from |g_0| < G0.

        r = 1 / (2 - sqrt(1 - nu))

    `nu` and G0 as in `mr_gradient_radius`.
    """
    return 1 / (1 + _gain("mr_gradient_rate", nu))


def hessian_sample_size(
    *, error: float, failure_probability: float, max_lipschitz: float, n: int | None = None
) -> int:
    """The number of terms of f to sample for |(H~ - H)g| <= D |g| with probability 1 - delta.

        m = ceil( L1max^2 (1 + sqrt(8 log(1/delta)))^2 / D^2 )

    If it is `n`, sampling saves nothing: use the exact product.

    Args:
        error: D.
        failure_probability: delta, for one iteration.
        max_lipschitz: L1max, with |H_i g| <= L1max |g| for every term.
        n: the number of terms.
    """
    call = "hessian_sample_size"
    _check_at_least_zero(call, max_lipschitz=max_lipschitz)
    if not 0 < error < math.inf:
        raise ValueError(f"`{call}(error=...)` must be positive and finite, got {error}.")
    if not 0 < failure_probability < 1:
        raise ValueError(
            f"`{call}(failure_probability=...)` must lie in (0, 1), got {failure_probability}."
        )
    if n is not None and n < 1:
        raise ValueError(f"`{call}(n=...)` must be at least 1, got {n}.")
    root = max_lipschitz * (1 + math.sqrt(-8 * math.log(failure_probability))) / error
    size = max(root * root, 1.0)
    return n if n is not None and size >= n else math.ceil(size)


def _ratio(a: float, b: float) -> float:
    return math.inf if b == 0 else a / b


def _guaranteed_length(b: float, hessian_lipschitz: float, hessian_error: float) -> float:
    if hessian_error == 0:
        return math.sqrt(_ratio(6 * b, hessian_lipschitz))
    half = 3 * hessian_error
    return 12 * b / (half + math.sqrt(half * half + 24 * hessian_lipschitz * b))


def _least_scale(names: set[str], sigma: float, gradient_lipschitz: float) -> float:
    least = 1 / gradient_lipschitz
    return sigma / gradient_lipschitz * least if "MR" in names else least


def _gain(call: str, nu: float | None) -> float:
    if nu is None or not 0 < nu <= 1:
        raise ValueError(f"`{call}(nu=...)` must lie in (0, 1], got {nu}.")
    return nu / (1 + math.sqrt(1 - nu))  # 1 - sqrt(1 - nu) without cancellation


def _members(call: str, scaling: str) -> set[str]:
    names = {scaling[i : i + 2].upper() for i in range(0, len(scaling), 2)}
    if not names or not names <= {"CG", "MR", "GM"}:
        raise ValueError(
            f"`{call}(scaling=...)` must be 'CG', 'MR', 'GM' or a cycle of them such as 'CGMR', "
            f"got {scaling!r}."
        )
    return names


def _checked_s_lpc(call: str, s_lpc: float | None, sigma: float) -> float:
    largest = _ratio(1, sigma)
    if s_lpc is None:
        return min(1.0, largest)
    if not (0 < s_lpc <= largest and s_lpc < math.inf):
        raise ValueError(f"`{call}(s_lpc=...)` must lie in (0, 1/sigma], got {s_lpc}.")
    return s_lpc


def _check_rho(call: str, rho: float) -> None:
    if not 0 <= rho < 0.5:
        raise ValueError(f"`{call}(rho=...)` must lie in [0, 1/2), got {rho}.")


def _check_sigma_and_l1(call: str, sigma: float, gradient_lipschitz: float) -> None:
    _check_at_least_zero(call, sigma=sigma)
    if not gradient_lipschitz > 0:
        raise ValueError(
            f"`{call}(gradient_lipschitz=...)` must be positive, got {gradient_lipschitz}."
        )
    if sigma > gradient_lipschitz:
        raise ValueError(
            f"`{call}(sigma=...)` must not exceed gradient_lipschitz={gradient_lipschitz}, "
            f"got {sigma}. Lower sigma: above that no step is SPC."
        )


def _check_spectrum(call: str, mu: float, M: float) -> None:
    if not 0 < mu < math.inf:
        raise ValueError(f"`{call}(mu=...)` must be positive and finite, got {mu}.")
    if not mu <= M < math.inf:
        raise ValueError(f"`{call}(M=...)` must be finite and at least mu={mu}, got {M}.")


def _check_at_least_zero(call: str, **values: float) -> None:
    for name, value in values.items():
        if not 0 <= value < math.inf:
            raise ValueError(f"`{call}({name}=...)` must be finite and at least 0, got {value}.")
