"""From curvature pairs to the direction of the lazy step.

`curvature_pairs`, in compact form, on rows of `row_buffer`; `inverse_hessian`, by a matrix;
`between_bounds`, with bounds.
"""
