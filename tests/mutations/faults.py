"""One-line faults, and for each the test that must notice it.

`original` occurs exactly once in `src/firstish/<file>`; `faulty` takes its place. `run.py` shows
that the named test passes without the fault and fails with it.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    name: str
    file: str
    original: str
    faulty: str
    reason: str
    test: str


P = "tests/properties/"
LINE = P + "test_line_search.py::"
DEGENERATE = P + "test_degenerate.py::"
BOUNDS = P + "test_p1_scale_bounds.py::"
COST = P + "test_accounting.py::"
RESTORE = "tests/mutations/test_restore.py::"

FAULTS = [
    # scaling.py
    Fault(
        "mr-cg-swapped",
        "methods/scaled_gradient.py",
        "s = scale(name, angle, self.sigma)",
        's = scale({"CG": "MR", "MR": "CG"}.get(name, name), angle, self.sigma)',
        "MR and CG swapped",
        BOUNDS + "test_the_step_uses_the_formula_of_its_name",
    ),
    Fault(
        "sigma-equal-is-spc",
        "scaling.py",
        " rayleigh - error > sigma",
        " rayleigh - error >= sigma",
        "the sigma test with >=",
        BOUNDS + "test_curvature_equal_to_sigma_is_limited",
    ),
    Fault(
        "zero-is-nc",
        "scaling.py",
        " rayleigh + error < 0",
        " rayleigh + error <= 0",
        "gHg = 0 taken for negative curvature",
        DEGENERATE + "test_a_gradient_orthogonal_to_its_product_is_limited",
    ),
    Fault(
        "error-ignored-in-spc",
        "scaling.py",
        " rayleigh - error > sigma",
        " rayleigh > sigma",
        "the product's error decides for SPC",
        BOUNDS + "test_an_inexact_product_decides_only_where_its_error_cannot",
    ),
    Fault(
        "error-ignored-in-nc",
        "scaling.py",
        " rayleigh + error < 0",
        " rayleigh < 0",
        "the product's error decides for NC",
        BOUNDS + "test_an_inexact_product_decides_only_where_its_error_cannot",
    ),
    Fault(
        "upper-bound-up-to-rounding",
        "scaling.py",
        "return min(s, 1 / sigma) if sigma > 0 else s",
        "return s",
        "CG <= 1/sigma only up to rounding",
        BOUNDS + "test_the_upper_bound_holds_where_rounding_would_exceed_it",
    ),
    Fault(
        "inverse-may-overflow",
        "scaling.py",
        " and math.isfinite(g_norm / rayleigh)",
        "",
        "a curvature whose inverse overflows taken for strong",
        DEGENERATE + "test_overflow_of_curvature_is_limited_not_strong",
    ),
    Fault(
        "limited-and-negative-scales-swapped",
        "methods/scaled_gradient.py",
        "self.limited_scale() if case is Curvature.LPC else self.s_nc",
        "self.s_nc if case is Curvature.LPC else self.limited_scale()",
        "s_lpc and s_nc swapped",
        "tests/golden/test_reference.py::test_the_settings_reach_the_steps",
    ),
    Fault(
        "nc-below-minus-sigma",
        "scaling.py",
        " rayleigh + error < 0",
        " rayleigh + error < -sigma",
        "a dead zone of sigma around 0",
        P + "test_p8_inexact.py::test_bounds_descent_and_unit_steps_hold_for_an_inexact_hessian",
    ),
    Fault(
        "cg-without-the-angle",
        "scaling.py",
        "GM / angle.cosine if",
        "GM if",
        "CG computed as GM",
        P + "test_p4_newton.py::test_equals_the_first_krylov_iterate_on_the_newton_system",
    ),
    Fault(
        "cg-times-the-angle",
        "scaling.py",
        "GM / angle.cosine if",
        "GM * angle.cosine if",
        "CG computed as MR",
        P + "test_p9_curvature_condition.py::test_curvature_condition_holds_inside_the_radius[CG]",
    ),
    Fault(
        "mr-without-the-angle",
        "scaling.py",
        "angle.cosine * GM if",
        "GM if",
        "MR computed as GM",
        P + "test_p6_local_rate.py::test_mr_gradient_recursion_holds_at_every_unit_step",
    ),
    # vectors.py
    Fault(
        "cosine-not-clipped",
        "vectors.py",
        "max(-1.0, min(1.0, dot(v, along) / (v_norm * along_norm)))",
        "dot(v, along) / (v_norm * along_norm)",
        "rounding lifts the cosine above 1",
        DEGENERATE + "test_cosine_is_clipped",
    ),
    Fault(
        "norm-not-rescaled",
        "vectors.py",
        "    if _SMALL < square < _LARGE:",
        "    if True:",
        "squares overflow in the norm",
        DEGENERATE + "test_norm_neither_overflows_nor_underflows",
    ),
    Fault(
        "cosine-not-rescaled",
        "vectors.py",
        "    if _SMALL < square < _LARGE and _SMALL < along_norm * along_norm < _LARGE:",
        "    if square > 0:",
        "products overflow in the cosine",
        DEGENERATE
        + "test_extreme_sizes_of_f_and_x_change_nothing"
        + "[convex quadratic-1e+150-1.0-double-backward]",
    ),
    # line_search.py
    Fault(
        "armijo-without-rho",
        "line_search.py",
        "f < ray.value and f <= ray.value + self.rho * alpha * ray.slope",
        "f < ray.value",
        "any decrease accepted",
        P + "test_p5_unit_step.py::test_the_radius_is_sharp",
    ),
    Fault(
        "armijo-without-alpha",
        "line_search.py",
        "ray.value + self.rho * alpha * ray.slope",
        "ray.value + self.rho * ray.slope",
        "alpha forgotten in Armijo's condition",
        LINE + "test_backtracking_returns_the_first_power_of_theta_that_armijo_accepts",
    ),
    Fault(
        "theta-applied-twice",
        "line_search.py",
        " if interpolate else self.theta",
        " if interpolate else self.theta * self.theta",
        "backtracking skips every other step",
        LINE + "test_backtracking_returns_the_first_power_of_theta_that_armijo_accepts",
    ),
    Fault(
        "forward-returns-the-refused-trial",
        "line_search.py",
        "            further = ray.trial(alpha / self.theta)",
        "            further = best = ray.trial(alpha / self.theta)",
        "forward tracking returns the trial it refused",
        LINE + "test_forward_tracking_returns_the_last_accepted_step",
    ),
    Fault(
        "forward-returns-the-refused-alpha",
        "line_search.py",
        "            return Found(best, alpha, spent)",
        "            return Found(best, alpha / self.theta, spent)",
        "forward tracking returns the alpha it refused",
        LINE + "test_forward_tracking_grows_by_one_over_theta",
    ),
    Fault(
        "forward-without-cap",
        "line_search.py",
        "while spent < self.max_trials and math.isfinite(alpha / self.theta):",
        "while math.isfinite(alpha / self.theta):",
        "with rho = 0 forward tracking does not end",
        LINE + "test_forward_tracking_with_rho_zero_on_f_that_flattens_ends_at_the_cap",
    ),
    Fault(
        "non-finite-accepted",
        "line_search.py",
        "        if not math.isfinite(f):",
        "        if math.isnan(f):",
        "f = -inf taken for a decrease",
        LINE + "test_non_finite_trials_are_refused",
    ),
    Fault(
        "unusable-gradient-accepted",
        "line_search.py",
        "if self.accepts(ray, alpha, trial) and trial.usable():",
        "if self.accepts(ray, alpha, trial):",
        "the next gradient may be infinite",
        LINE + "test_a_trial_whose_gradient_is_not_finite_is_refused",
    ),
    Fault(
        "null-step-accepted",
        "line_search.py",
        "return trial.moved() and trial.slope()",
        "return trial.slope()",
        "x + alpha p = x taken for progress",
        P + "test_p7_never_rises.py::test_a_start_on_the_floor_takes_no_null_step",
    ),
    Fault(
        "search-goes-on-where-x-does-not-move",
        "line_search.py",
        "            if not trial.moved():",
        "            if False:",
        "trials spent on steps too short for x",
        LINE + "test_a_null_step_is_no_progress_and_shorter_ones_are_not_tried",
    ),
    Fault(
        "slopes-with-the-wrong-sign",
        "line_search.py",
        "(2 * self.rho - 1) * ray.slope",
        "(1 - 2 * self.rho) * ray.slope",
        "the approximate Wolfe test turned round",
        LINE + "test_on_a_quadratic_the_slopes_decide_as_armijo_does",
    ),
    Fault(
        "slopes-always-decide",
        "line_search.py",
        "if abs(f - ray.value) <= ray.noise:",
        "if abs(f - ray.value) <= 1e12 * ray.noise:",
        "f may rise by far more than rounding",
        P + "test_p7_never_rises.py::test_f_does_not_rise_onto_a_hilltop_where_it_is_flat",
    ),
    # methods/
    Fault(
        "cycle-always-advances",
        "methods/scaled_gradient.py",
        "state.turns + (case is Curvature.SPC)",
        "state.turns + 1",
        "the cycle advanced on every step",
        P + "test_cycle.py::test_the_cycle_advances_on_spc_steps_only",
    ),
    Fault(
        "cycle-advances-on-nc",
        "methods/scaled_gradient.py",
        "state.turns + (case is Curvature.SPC)",
        "state.turns + (case is not Curvature.LPC)",
        "the cycle advanced on NC",
        P + "test_cycle.py::test_other_steps_leave_the_turn_where_it_is",
    ),
    Fault(
        "nc-backtracks",
        "methods/scaled_gradient.py",
        "search.forward_track(along) if case is Curvature.NC else search.backtrack(along)",
        "search.backtrack(along)",
        "negative curvature not exploited",
        "tests/golden/test_reference.py::test_a_nonconvex_function",
    ),
    Fault(
        "limited-scale-ignores-sigma",
        "methods/cases.py",
        "return 1.0 if sigma <= 1 else 1 / sigma",
        "return 1.0",
        "s_lpc above 1/sigma",
        P + "test_p2_descent.py::test_first_and_second_order_descent",
    ),
    Fault(
        "slope-without-scale",
        "methods/scaled_gradient.py",
        "slope = -length * angle.grad_norm",
        "slope = -angle.grad_norm * angle.grad_norm",
        "<g,p> without s",
        P + "test_p3_invariance.py::test_bitwise_for_powers_of_two",
    ),
    Fault(
        "moved-always",
        "methods/ray.py",
        "return not torch.equal(self.point.x, self.start.x)",
        "return True",
        "a null step not noticed",
        P + "test_p7_never_rises.py::test_a_start_on_the_floor_takes_no_null_step",
    ),
    # counters
    Fault(
        "accepted-value-recounted",
        "loop.py",
        "self.point, self.state = point, state",
        "self.point, self.state = point.at(point.x), state",
        "the accepted point evaluated and counted again",
        COST + "test_a_unit_step_iteration_costs_exactly_four",
    ),
    Fault(
        "gradient-recounted",
        "objectives/point.py",
        "self._g_norm = norm(self.grad)",
        "self._g_norm, self.meter.oracle_calls = norm(self.grad), self.meter.oracle_calls + 1",
        "the gradient counted again with its norm",
        COST + "test_a_point_counts_each_thing_once_and_what_it_stands_on",
    ),
    Fault(
        "product-counted-one",
        "objectives/point.py",
        "self.meter.oracle_calls += 2 * self.product_fraction",
        "self.meter.oracle_calls += self.product_fraction",
        "a product at the price of a gradient",
        COST + "test_a_unit_step_iteration_costs_exactly_four",
    ),
    Fault(
        "budget-exceeded",
        "loop.py",
        "oracle_calls >= self.max_oracle_calls",
        "oracle_calls > self.max_oracle_calls",
        "an iteration starts on a spent budget",
        COST + "test_no_iteration_starts_once_the_budget_is_spent",
    ),
    # objectives/
    Fault(
        "decay-missing-in-the-product",
        "objectives/graph.py",
        "self.objective.flat(Hv, v)",
        "self.objective.flat(Hv, torch.zeros_like(v))",
        "H without the weight decay",
        P + "test_dense.py::test_weight_decay_adds_to_value_gradient_and_product",
    ),
    Fault(
        "write-through-data",
        "objectives/layout.py",
        "parameter.copy_(part)",
        "parameter.data.copy_(part)",
        "old graphs silently see new weights",
        RESTORE + "test_a_write_invalidates_the_graphs_of_the_old_values",
    ),
    Fault(
        "buffers-not-restored",
        "objectives/closure.py",
        "            self._buffers.write(self._committed)",
        "            pass",
        "every trial updates BatchNorm's statistics",
        RESTORE + "test_a_step_updates_buffers_once_however_many_trials_it_makes[average-False]",
    ),
    Fault(
        "random-state-not-replayed",
        "objectives/random_state.py",
        "        self.restore()",
        "        pass",
        "every trial draws its own dropout mask",
        RESTORE + "test_every_evaluation_sees_the_same_dropout_mask",
    ),
    Fault(
        "grad-not-put-back",
        "objectives/closure.py",
        "                p.grad = grad",
        "                pass",
        "the user's .grad is lost",
        RESTORE + "test_grad_is_left_alone",
    ),
    Fault(
        "stale-graph-trusted",
        "objectives/closure.py",
        "return run is self._newest",
        "return True",
        "the graph of an older trial used after the parameters were written",
        RESTORE + "test_forward_tracking_through_the_closure_takes_the_steps_of_minimize",
    ),
    # optim.py
    Fault(
        "refused-trial-left-in-place",
        "optim.py",
        "            objective.keep(new.x)",
        "            pass",
        "a failed search leaves its last trial in the parameters",
        RESTORE + "test_refused_trials_leave_the_parameters_as_they_were",
    ),
    Fault(
        "exception-leaves-the-trial-in-place",
        "optim.py",
        "            objective.write(point.x)",
        "            pass",
        "Ctrl-C in a trial leaves it in the parameters",
        RESTORE + "test_an_exception_in_a_trial_leaves_the_parameters_as_they_were",
    ),
    Fault(
        "random-state-left-behind",
        "optim.py",
        "            objective.random_after.restore()",
        "            pass",
        "the next step would draw the same dropout mask",
        RESTORE + "test_a_step_leaves_the_random_state_of_one_evaluation",
    ),
]
