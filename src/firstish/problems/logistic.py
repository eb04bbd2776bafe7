"""Binary and multi-class logistic regression, with the constants mu and L."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from firstish.objectives.linear.families import Family, Logistic, Multinomial
from firstish.objectives.linear.model import LinearModel
from firstish.problems.base import Instance, Options

SOFTMAX = (
    r"f(x) = \frac1n \sum_{i=1}^n \Big( \log \sum_{c=1}^{C} e^{\langle x_c, a_i \rangle} "
    r"- \langle x_{b_i}, a_i \rangle \Big) + \frac{\lambda}{2} \lVert x \rVert^2, "
    r"\qquad x = (x_1, \dots, x_{C-1}), \quad x_C = 0"
)
SOFTMAX_TEXT = (
    "f(x) = 1/n Σᵢ (log Σ_c exp⟨x_c, aᵢ⟩ - ⟨x_bᵢ, aᵢ⟩) + λ/2 ‖x‖², x = (x₁, …, x_C), x_C = 0"
)
BINARY = (
    r"f(x) = \frac1n \sum_{i=1}^n \log \big( 1 + e^{-b_i \langle x, a_i \rangle} \big) "
    r"+ \frac{\lambda}{2} \lVert x \rVert^2, \qquad b_i \in \{-1, 1\}"
)

BINARY_TEXT = "f(x) = 1/n Σᵢ log(1 + exp(-bᵢ ⟨x, aᵢ⟩)) + λ/2 ‖x‖², bᵢ ∈ {-1, 1}"

LIKELIHOOD = (
    "The sum over classes is printed up to C−1, which would leave the samples of class C without "
    "a loss; the full likelihood is used."
)
CONSTANTS = (
    "The constants are the paper's: μ = λ and L = (C−1)/(4n)·‖A‖² + λ, ‖A‖ the largest singular "
    "value with the bias column, from the Gram matrix in float64. Böhning's bound, 1/2 in place "
    "of (C−1)/4, is sharper for C > 3."
)
BIAS = "The bias is the last entry of each a_i, equal to 1, and λ applies to it as to the rest."

GRIDS = {"adam": (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)}


def with_bias(features: NDArray[np.generic], scale: float, dtype: torch.dtype) -> Tensor:
    """The matrix A = [features / scale, 1], one row per sample."""
    rows, width = features.shape
    A = torch.empty(rows, width + 1, dtype=dtype)
    A[:, :width] = torch.from_numpy(features)
    A[:, :width] /= scale
    A[:, width] = 1
    return A


def squared_norm(A: Tensor) -> float:
    """The square of the largest singular value, from the smaller Gram matrix in float64."""
    rows, columns = A.shape
    A = A.detach().to("cpu", torch.float64)
    A = A if A.layout == torch.strided else A.to_dense()
    gram = A.T @ A if columns <= rows else A @ A.T
    return float(torch.linalg.eigvalsh(gram)[-1])


def softmax_regression(
    A: Tensor, labels: Tensor, classes: int, weight_decay: float, options: Options | None = None
) -> Instance:
    """Softmax regression over C classes, the weights of the last class fixed at 0.

    x holds a row of weights for each of the other C-1 classes; the start is 0.

    Args:
        A: one row per sample, on the CPU.
        labels: the class of each sample, from 0.
        classes: C.
        weight_decay: lambda.
        options: sets the device and the process group.
    """
    lipschitz = (classes - 1) / (4 * len(A)) * squared_norm(A) + weight_decay
    family = Multinomial(classes=classes, pinned=True)
    return _instance(A, labels, family, weight_decay, lipschitz, options)


def logistic_regression(
    A: Tensor, signs: Tensor, weight_decay: float, options: Options | None = None
) -> Instance:
    """Logistic regression of two classes; the start is 0.

    Args:
        A: one row per sample, on the CPU; strided or sparse.
        signs: -1 or 1 for each sample.
        weight_decay: lambda.
        options: sets the device and the process group.
    """
    lipschitz = squared_norm(A) / (4 * len(A)) + weight_decay
    return _instance(A, signs, Logistic(), weight_decay, lipschitz, options)


def _instance(
    A: Tensor,
    targets: Tensor,
    family: Family,
    weight_decay: float,
    lipschitz: float,
    options: Options | None,
) -> Instance:
    options, rows = options or Options(), len(A)
    if not options.group.alone:
        own = options.own_rows(rows)
        A = A[own] if A.layout == torch.strided else A.to_dense()[own].to_sparse_csr()
        targets = targets[own]
    objective = LinearModel(
        A.to(options.device),
        targets.to(options.device),
        family,
        weight_decay=weight_decay,
        process_group=options.group.process_group,
    )
    return Instance(
        objective=objective,
        x0=objective.initial(),
        rows=rows,
        mu=weight_decay,
        lipschitz=lipschitz,
    )
