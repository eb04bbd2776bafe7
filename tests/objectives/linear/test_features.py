"""A' by rows is torch's own, and each item's second derivatives are autograd's."""

import pytest
import torch
from linear_cases import CASES, SETTINGS, make

from firstish.objectives.linear.features import _transposed


@pytest.mark.filterwarnings("ignore:Sparse CS")
@pytest.mark.parametrize("shape", [(7, 5), (5, 7), (3, 70_000), (3, 140_000), (1, 1)])
@pytest.mark.parametrize("index", [torch.int32, torch.int64])
def test_the_transposed_features_are_torchs(shape, index):
    generator = torch.Generator().manual_seed(0)
    A = torch.randn(shape, generator=generator)
    A[torch.rand(shape, generator=generator) < (0.5 if shape[1] < 10 else 0.99)] = 0
    A = A.to_sparse_csr()
    A = torch.sparse_csr_tensor(
        A.crow_indices().to(index),
        A.col_indices().to(index),
        A.values(),
        A.shape,
        check_invariants=True,
    )
    mine, theirs = _transposed(A), A.transpose(0, 1).to_sparse_csr()
    assert mine.shape == theirs.shape
    assert torch.equal(mine.values(), theirs.values())
    assert torch.equal(mine.col_indices(), theirs.col_indices().to(index))
    assert torch.equal(mine.crow_indices(), theirs.crow_indices().to(index))


@pytest.mark.parametrize("case", CASES)
def test_score_curvatures_are_the_diagonal_of_each_samples_hessian(case):
    made = make(case, SETTINGS["decay"])
    x = torch.linspace(-0.5, 0.5, made.size)
    point = made.linear.at(x)
    loss, z = made.linear.loss, made.linear.features.times(x)
    curvatures = point.score_curvatures()
    assert curvatures.shape == z.shape
    for i in (0, 3):

        def one(scores, i=i):
            changed = z.clone()
            changed[i] = scores
            return loss.at(changed)[0][i]

        H = torch.autograd.functional.hessian(one, z[i])
        torch.testing.assert_close(curvatures[i].reshape(-1), torch.atleast_2d(H).diagonal())
