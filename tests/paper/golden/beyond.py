"""The methods beyond the paper, straight from their formulas: NumPy only, nothing of firstish.

As in paper.py no care is taken of rounding or overflow. Rows are (x, note, s, alpha, trials): the
point, what was decided there, the scale, the step size and the number of trials.
"""

import numpy as np


def backtracked(f, x, p, slope, rho=1e-4, theta=0.5, alpha=1.0, reference=None):
    trials = 1
    reference = f(x) if reference is None else reference
    while f(x + alpha * p) > reference + rho * alpha * slope:
        alpha, trials = theta * alpha, trials + 1
    return alpha, trials


def forward(f, x, p, slope, rho=1e-4, theta=0.5):
    alpha, trials = 1.0, 1
    if f(x + p) > f(x) + rho * slope:
        alpha, trials = backtracked(f, x, p, slope, alpha=theta)
        return alpha, trials + 1
    while True:
        trials += 1
        if f(x + alpha / theta * p) > f(x) + rho * alpha / theta * slope:
            return alpha, trials
        alpha = alpha / theta


def plane(f, g, Hv, x, *, sigma, steps, s_lpc=1.0, s_nc=1.0, memory=3):
    rows, last, kept = [], None, []  # kept: (d, y) of the last steps, the newest first
    for _ in range(steps):
        grad = g(x)
        if last is not None:
            kept = [(x - last[0], grad - last[1]), *kept][:memory]
        Hg = Hv(x, grad)
        gg, gHg = grad @ grad, grad @ Hg
        if gHg < 0:
            note, s, p = "NC", s_nc, -s_nc * grad
        elif gHg <= sigma * gg:
            note, s, p = "LPC", s_lpc, -s_lpc * grad
        else:
            note, s = "CG", gg / gHg
            p = -s * grad
            basis, M = [grad], np.array([[gHg]])
            for d, y in kept:
                if not d @ y > sigma * (d @ d):
                    continue
                # H d is y, of the time of each; where the two times disagree, H has changed
                taken = [(e, v) for e, v in kept if any(e is c for c in basis)]
                if any(abs(d @ v - e @ y) > 0.3 * np.sqrt((d @ y) * (e @ v)) for e, v in taken):
                    continue
                column = np.array([Hg @ d, *((d @ v + e @ y) / 2 for e, v in taken)])
                larger = np.block([[M, column[:, None]], [column[None], np.array([[d @ y]])]])
                if d @ y - column @ np.linalg.solve(M, column) >= 1e-8 * (d @ y):
                    basis, M = [*basis, d], larger
            if len(basis) > 1:
                B = np.array(basis)
                c = np.linalg.solve(M, -B @ grad)
                note, s, p = "plane", -c[0], c @ B
        slope = grad @ p
        alpha, trials = (forward if note == "NC" else backtracked)(f, x, p, slope)
        rows.append((x, note, s, alpha, trials))
        last = x, grad
        x = x + alpha * p
    return rows


def dense_bfgs(pairs, self_scaled):
    """B itself, a matrix, by the update formula of self-scaled BFGS; the oldest pair first."""
    s, y, _ = pairs[0 if self_scaled else -1]
    B = (s @ y) / (y @ y) * np.eye(len(s))
    for k, (s, y, tau) in enumerate(pairs):
        V = np.eye(len(s)) - np.outer(y, s) / (s @ y)
        B = V.T @ B @ V / (tau if k else 1.0) + np.outer(s, s) / (s @ y)
    return B


def lengthened(f, x, p, slope, rho=1e-4, theta=0.5):
    """Alpha and the trials of a first step that is grown while f follows its tangent."""
    alpha, trials, start = 1.0, 1, f(x)
    if f(x + p) > start + rho * slope:
        lowest = -slope / (2 * (f(x + p) - start - slope))
        alpha, trials = parabolic(f, x, p, slope, np.clip(lowest, 0.1, theta))
        return alpha, trials + 1
    while True:
        short = (f(x + alpha * p) - start - alpha * slope) / (-alpha * slope)
        if short >= 0.05:
            return alpha, trials
        longer = alpha * (np.clip(1 / (2 * short), 1 / theta, 10) if short > 0 else 10)
        trials += 1
        further = f(x + longer * p)
        if further > start + rho * longer * slope or further >= f(x + alpha * p):
            return alpha, trials
        alpha = longer


def parabolic(f, x, p, slope, alpha=1.0, rho=1e-4, theta=0.5):
    """Backtracking to the lowest point of a parabola."""
    trials, start = 1, f(x)
    while f(x + alpha * p) > start + rho * alpha * slope:
        lowest = -slope * alpha / (2 * (f(x + alpha * p) - start - slope * alpha))
        alpha, trials = alpha * np.clip(lowest, 0.1, theta), trials + 1
    return alpha, trials


def falling(f, x, p, slope, rho=1e-4, theta=0.5):
    """Forward tracking as long as f falls."""
    alpha, trials, start = 1.0, 1, f(x)
    if f(x + p) > start + rho * slope:
        alpha, trials = parabolic(f, x, p, slope, theta)
        return alpha, trials + 1
    while True:
        trials += 1
        further = f(x + alpha / theta * p)
        if further > start + rho * alpha / theta * slope or further >= f(x + alpha * p):
            return alpha, trials
        alpha = alpha / theta


def lazy(f, g, Hv, x, *, steps, memory=10**6, self_scaled=True):
    rows, pairs, x_old, g_old, cuts, excess = [], [], None, None, 0, 0.0
    for _ in range(steps):
        grad, note, scale, search = g(x), None, 1.0, parabolic
        if x_old is not None:
            s, y = x - x_old, grad - g_old
            ratio = 1.0
            if pairs and self_scaled:
                ratio = (s @ y) / (s @ np.linalg.solve(dense_bfgs(pairs, True), s))
                excess = 0.95 * excess + 0.05 * np.log(np.clip(ratio, 0.25, 10))
            if s @ y >= 1e-8 * np.linalg.norm(s) * np.linalg.norm(y):
                pairs = [*pairs, (s, y, ratio if cuts >= 5 else min(1.0, ratio))][-memory:]
                scale = min(1.0, np.exp(-excess))
            else:
                note = "curvature"
        p = -dense_bfgs(pairs, self_scaled) @ grad if pairs else -grad
        if x_old is None:
            scale, search = 2 * abs(f(x)) / (grad @ grad), lengthened
        elif note is not None:
            curvature = p @ Hv(x, p)
            scale = -(grad @ p) / curvature if curvature > 0 else 1.0
            search = parabolic if curvature > 0 else falling
        p = scale * p
        alpha, trials = search(f, x, p, grad @ p)
        rows.append((x, note, scale, alpha, trials))
        x_old, g_old, cuts = x, grad, cuts + 1 if alpha < 0.3 else 0
        x = x + alpha * p
    return rows


def ruled(f, g, Hv, x, *, rule, sigma, steps, s_lpc=1.0, s_nc=1.0):
    """ASD, DY or SDC; DY and SDC begin again after a step that is not SPC or was cut."""
    cycle = {
        "ASD": ["ASD"],
        "DY": ["CG", "CG", "Y", "Y"],
        "SDC": ["CG"] * 4 + ["Y"] + ["held"] * 3,
    }[rule]
    rows, turn, a, moved, held = [], 0, None, None, None
    for _ in range(steps):
        grad = g(x)
        Hg = Hv(x, grad)
        gg, gHg, HgHg = grad @ grad, grad @ Hg, Hg @ Hg
        if gHg > sigma * gg:
            note = cycle[turn % len(cycle)]
            CG, MR = gg / gHg, gHg / HgHg
            if note == "CG":
                s = CG
            elif note == "ASD":
                s = MR if MR / CG > 0.5 else CG - 0.5 * MR
            else:
                b = 1 / CG
                if note == "Y":
                    held = 2 / (np.sqrt((a - b) ** 2 + 4 * gg / (moved @ moved)) + a + b)
                    held = np.clip(held, 0.1 * MR, CG)
                s = np.clip(held, 0.1 * MR, CG)
        else:
            note, s = ("NC", s_nc) if gHg < 0 else ("LPC", s_lpc)
        p = -s * grad
        alpha, trials = (forward if note == "NC" else backtracked)(f, x, p, grad @ p)
        rows.append((x, note, s, alpha, trials))
        turn = turn + 1 if note not in ("NC", "LPC") and trials == 1 else 0
        a, moved = gHg / gg, alpha * p
        x = x + alpha * p
    return rows


def directed(f, g, Hv, x, *, kind, sigma, steps, s_lpc=1.0, s_nc=1.0):
    """Adam's or heavy ball's direction, scaled by the curvature along it."""
    rows, m, v = [], np.zeros_like(x), np.zeros_like(x)
    for k in range(1, steps + 1):
        grad = g(x)
        if kind == "adam":
            m, v = 0.9 * m + 0.1 * grad, 0.999 * v + 0.001 * grad**2
            p = -(m / (1 - 0.9**k)) / (np.sqrt(v / (1 - 0.999**k)) + 1e-8)
        else:
            m = 0.9 * m - grad
            p = m
        note = "direction"
        if grad @ p > -1e-8 * np.linalg.norm(grad) * np.linalg.norm(p):
            note, p = "gradient", -grad
        pHp, length = p @ Hv(x, p), np.linalg.norm(grad) / np.linalg.norm(p)
        if pHp > sigma * (p @ p):
            s = -(grad @ p) / pHp
        else:
            note, s = ("NC", s_nc * length) if pHp < 0 else ("LPC", s_lpc * length)
        p = s * p
        alpha, trials = (forward if note == "NC" else backtracked)(f, x, p, grad @ p)
        rows.append((x, note, s, alpha, trials))
        x = x + alpha * p
    return rows


def annealed(f, g, Hv, x, *, steps, over, eta=0.85):
    """CG steps times alpha, from 2 down to 1, against Zhang and Hager's mean."""
    rows, Q, C = [], 0.0, 0.0
    for k in range(steps):
        grad = g(x)
        s = (grad @ grad) / (grad @ Hv(x, grad))
        p, first = -s * grad, 2.0 - min(1.0, k / over)
        Q, C = eta * Q + 1, (eta * Q * C + f(x)) / (eta * Q + 1)
        alpha, trials = backtracked(f, x, p, grad @ p, alpha=first, reference=C)
        rows.append((x, "CG", s, alpha, trials))
        x = x + alpha * p
    return rows
