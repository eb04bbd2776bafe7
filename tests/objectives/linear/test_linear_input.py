"""Bad data: an error at construction that names the call, the value and the remedy."""

import math

import numpy as np
import pytest
import torch
from scipy.sparse import coo_matrix, csc_matrix, csr_array, csr_matrix

from firstish import LinearModel, families, minimize

A = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], dtype=torch.float64)
ZEROS = torch.zeros(3, dtype=torch.long)


def model(features=A, targets=ZEROS, family=None, **more):
    return LinearModel(features, targets, family or families.Logistic(), **more)


@pytest.mark.parametrize(
    ("features", "kind", "message"),
    [
        (np.ones((3, 2)), TypeError, r"must be a tensor or .* got ndarray.*as_tensor"),
        (csr_matrix(np.eye(3, dtype=int)), TypeError, r"float32 or float64, got torch.int64"),
        (A[:, 0], ValueError, r"one row per sample.*\(3,\)"),
        (torch.ones(0, 2), ValueError, r"at least one sample.*\(0, 2\)"),
        (torch.ones(3, 0), ValueError, r"one feature.*\(3, 0\)"),
        (A.long(), TypeError, r"float32 or float64, got torch.int64.*double"),
        (A.half(), TypeError, r"got torch.float16"),
        (A.clone().index_fill_(1, torch.tensor([1]), math.nan), ValueError, "3 entries that are"),
        (A.clone().index_fill_(0, torch.tensor([1]), math.inf), ValueError, "2 entries that are"),
        (
            A.clone().index_fill_(0, torch.tensor([1]), math.inf).to_sparse(),
            ValueError,
            "2 entries",
        ),
    ],
)
def test_features_that_will_not_do_are_refused(features, kind, message):
    with pytest.raises(kind, match=rf"`LinearModel\(features=...\)`.*{message}"):
        model(features)


def test_large_features_whose_sum_overflows_are_finite():
    assert model(torch.full((3, 2), 1e308)).at(torch.zeros(2)).value == pytest.approx(math.log(2))


@pytest.mark.parametrize(
    ("family", "targets", "kind", "message"),
    [
        (families.Logistic(), [0, 1, 2], ValueError, r"`Logistic\(\)`.*0 and 1.*got 2.*Multino"),
        (families.Logistic(), [0, 1, -1], ValueError, r"got 0 and -1 together"),
        (families.Logistic(), [0.0, 1.0, 0.5], ValueError, r"got 0.5"),
        (families.Logistic(), [0.0, 1.0, math.nan], ValueError, r"got nan"),
        (families.Logistic(), [[0], [1], [1]], ValueError, r"shape \(n,\), got \(3, 1\)"),
        (families.Multinomial(), [0, 1, -1], ValueError, r"from 0 to 1, got -1.*Number"),
        (families.Multinomial(classes=3), [0, 1, 3], ValueError, r"from 0 to 2, got 3.*classes="),
        (families.Multinomial(), [0.0, 1.0, 2.0], TypeError, r"integer targets.*float64.*long"),
        (families.Multinomial(), [[0], [1], [1]], ValueError, r"shape \(n,\)"),
        (families.Poisson(), [0, 2, -1], ValueError, r"`Poisson\(\)`.*at least 0, got -1.0"),
        (families.Poisson(), [0, 2, math.inf], ValueError, r"finite targets, got inf \(1 in all\)"),
        (families.LeastSquares(), [0, 2, math.nan], ValueError, r"finite targets, got nan"),
        (families.LeastSquares(), [[[0]], [[2]], [[1]]], ValueError, r"got \(3, 1, 1\)"),
    ],
)
def test_targets_that_will_not_do_are_refused(family, targets, kind, message):
    with pytest.raises(kind, match=message):
        model(targets=torch.tensor(targets), family=family)


@pytest.mark.parametrize("targets", [torch.zeros(2), torch.zeros(4), torch.tensor(0.0)])
def test_as_many_targets_as_rows(targets):
    with pytest.raises(ValueError, match=r"`LinearModel\(targets=...\)`.*each of the 3 rows"):
        model(targets=targets)


def test_targets_must_be_a_tensor_on_the_device_of_the_features():
    with pytest.raises(TypeError, match=r"`LinearModel\(targets=...\)` must be a tensor, got list"):
        model(targets=[0, 1, 0])
    with pytest.raises(ValueError, match=r"is on meta and the features on cpu. Move"):
        model(targets=ZEROS.to("meta"))


@pytest.mark.parametrize(
    "weights", [[1.0, -1.0, 1.0], [0.0, 0.0, 0.0], [1.0, math.inf, 1.0], [1.0, math.nan, 1.0]]
)
def test_weights_out_of_range_are_refused(weights):
    with pytest.raises(ValueError, match=r"`LinearModel\(sample_weight=...\)` must be finite"):
        model(sample_weight=torch.tensor(weights))


def test_weights_of_a_wrong_shape_are_refused():
    with pytest.raises(ValueError, match=r"sample_weight=.*each of the 3 rows.*\(2,\)"):
        model(sample_weight=torch.ones(2))
    with pytest.raises(ValueError, match=r"sample_weight=.*one real number.*\(3, 1\)"):
        model(sample_weight=torch.ones(3, 1))


@pytest.mark.parametrize("value", [-1e-9, math.inf, math.nan])
def test_a_weight_decay_out_of_range_is_refused(value):
    with pytest.raises(ValueError, match=rf"`LinearModel\(weight_decay=...\)`.*got {value}"):
        model(weight_decay=value)


@pytest.mark.parametrize("family", ["logistic", families.Logistic, None])
def test_the_family_is_an_object(family):
    with pytest.raises(TypeError, match=r"`LinearModel\(family=...\)`.*families.Logistic\(\)"):
        LinearModel(A, ZEROS, family)


@pytest.mark.parametrize("classes", [1, 0, -2])
def test_fewer_than_two_classes_are_refused(classes):
    with pytest.raises(ValueError, match=rf"`Multinomial\(classes=...\)`.*got {classes}"):
        families.Multinomial(classes=classes)


@pytest.mark.parametrize(
    "x0", [torch.zeros(3, dtype=torch.float64), torch.zeros(2, dtype=torch.float32)]
)
def test_a_start_of_another_size_or_dtype_is_refused(x0):
    with pytest.raises(
        ValueError, match=r"the objective is a function of 2 \(torch.float64, cpu\)"
    ):
        minimize(model(), x0)


def test_labels_may_be_booleans_signs_or_bits():
    points = [
        model(targets=torch.tensor(y)).at(torch.tensor([0.3, -0.1]))
        for y in ([True, False, True], [1, -1, 1], [1, 0, 1], [1.0, -1.0, 1.0])
    ]
    assert len({point.value for point in points}) == 1


def test_the_number_of_classes_is_found_in_the_labels():
    found = model(targets=torch.tensor([0, 2, 1]), family=families.Multinomial())
    assert found.initial().shape == (3 * 2,)
    pinned = families.Multinomial(pinned=True)
    assert model(targets=torch.tensor([0, 2, 1]), family=pinned).initial().shape == (2 * 2,)
    with_intercept = model(intercept=True)
    assert with_intercept.initial().shape == (3,)


@pytest.mark.parametrize("kind", [csr_matrix, csc_matrix, coo_matrix, csr_array])
def test_a_sparse_matrix_of_scipy_is_taken_as_the_dense_tensor(kind):
    rows, columns = [0, 2, 1, 2, 2], [1, 1, 0, 0, 1]  # unsorted, and one entry in two parts
    entries = np.array([2.0, 4.0, 3.0, 5.0, 2.0])
    matrix = kind(coo_matrix((entries, (rows, columns)), shape=(3, 2)))
    x = torch.tensor([0.3, -0.7], dtype=torch.float64)
    one = model(matrix).at(x)
    two = model(torch.from_numpy(matrix.toarray())).at(x)
    assert one.value == pytest.approx(two.value, rel=1e-14)
    torch.testing.assert_close(one.grad, two.grad, rtol=1e-13, atol=0)


def test_a_scipy_matrix_that_is_not_canonical_is_added_up_and_left_alone():
    matrix = csr_matrix((np.array([1.0, 2.0, 4.0]), [1, 1, 0], [0, 2, 3]), shape=(2, 2))
    before = matrix.data.copy()
    x = torch.tensor([0.3, -0.7], dtype=torch.float64)
    dense = torch.from_numpy(matrix.toarray())
    one, two = (model(A, ZEROS[:2]).at(x).value for A in (matrix, dense))
    assert one == pytest.approx(two, rel=1e-14)
    assert np.array_equal(matrix.data, before)


def _sparse(kind="csr"):
    return coo_matrix(np.arange(12.0).reshape(4, 3)).asformat(kind)


DAMAGES = {
    "pointers that fall": ("csr", "indptr", [0, 9, 2, 8, 11], r"indptr falls from 9 to 2 at 2"),
    "pointers beyond the end": ("csr", "indptr", [0, 2, 5, 8, 999], r"from 0 to 999.*11 entries"),
    "a negative pointer": ("csr", "indptr", [-3, 2, 5, 8, 11], r"goes from -3 to 11"),
    "too few pointers": ("csr", "indptr", [0, 2, 11], r"indptr must be 5 integers.*\(3,\)"),
    "pointers of a fraction": ("csr", "indptr", [0.0, 2, 5, 8, 11], r"must be 5 integers.*float64"),
    "a column too far": ("csr", "indices", [10**9, *[0] * 10], r"between 0 and 2, got 1000000000"),
    "a negative column": ("csr", "indices", [-7, *[0] * 10], r"between 0 and 2, got -7"),
    "too few columns": ("csr", "indices", [0, 1], r"from 0 to 11, but there are 2 entries"),
    "too few entries": ("csr", "data", [1.0], r"from 0 to 11, but there are 1 entries"),
    "another shape": ("csr", "_shape", (4, 2), r"between 0 and 1, got 2"),
    "more rows": ("csr", "_shape", (400, 3), r"indptr must be 401 integers"),
    "by columns": ("csc", "indices", [4, *[0] * 10], r"between 0 and 3, got 4"),
    "in blocks": ("bsr", "indices", [2**30, *[0] * 11], r"between 0 and 2, got"),
    "a row of a list": ("coo", "row", [-1, *[0] * 10], r"row must lie between 0 and 3, got -1"),
    "a column of a list": ("coo", "col", [3, *[0] * 10], r"col must lie between 0 and 2, got 3"),
    "diagonals": ("dia", "offsets", [0, 1], r"2 offsets for data of shape \(6, 3\)"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_scipy_matrix_is_refused(damage):
    kind, name, values, message = DAMAGES[damage]
    matrix = _sparse(kind)
    if name == "_shape":
        matrix._shape = values
    elif name in ("row", "col"):
        setattr(matrix, name, np.array(values))
    else:
        old = getattr(matrix, name)
        new = np.array(values)
        setattr(matrix, name, new.astype(old.dtype) if new.dtype.kind == old.dtype.kind else new)
    message = rf"`LinearModel\(features=...\)` is a damaged sparse matrix:.*{message}.*Build it"
    with pytest.raises(ValueError, match=message):
        model(matrix, torch.zeros(matrix.shape[0]))


def test_a_row_of_lists_with_more_indices_than_entries_is_refused():
    matrix = _sparse("lil")
    matrix.rows[2] = [*matrix.rows[2], 0]  # the entries of later rows would move up
    with pytest.raises(ValueError, match="damaged sparse matrix: row 2 has 4 indices for 3 ent"):
        model(matrix, torch.zeros(4))


@pytest.mark.filterwarnings("ignore:Sparse CS")
def test_a_damaged_sparse_tensor_is_refused():
    one = torch.ones(1, dtype=torch.float64)
    far = torch.tensor([[0], [10**9]])
    damaged = {
        "indices\\[1\\].*between 0 and 1": torch.sparse_coo_tensor(
            far, one, (3, 2), check_invariants=False
        ),
        "indptr falls from 9 to 0": torch.sparse_csr_tensor(
            torch.tensor([0, 9, 0, 1]), torch.tensor([0]), one, (3, 2), check_invariants=False
        ),
        "between 0 and 2, got 77": torch.sparse_csc_tensor(
            torch.tensor([0, 1, 1]), torch.tensor([77]), one, (3, 2), check_invariants=False
        ),
    }
    for message, tensor in damaged.items():
        with pytest.raises(ValueError, match=rf"damaged sparse matrix: .*{message}"):
            model(tensor)


def test_what_scipy_remembers_of_arrays_since_changed_is_not_trusted():
    matrix = csr_matrix(np.array([[1.0, 2.0], [0.0, 4.0]]))
    assert matrix.has_canonical_format  # found out, and remembered
    matrix.indices[:] = [1, 1, 0]
    x = torch.tensor([0.3, -0.7], dtype=torch.float64)
    dense = torch.tensor([[0.0, 3.0], [4.0, 0.0]], dtype=torch.float64)
    one, two = (model(A, ZEROS[:2]).at(x).value for A in (matrix, dense))
    assert one == pytest.approx(two, rel=1e-14)


def test_entries_stored_after_the_last_row_do_not_count():
    matrix = csr_matrix(np.array([[1.0, 2.0], [0.0, 4.0]]))
    matrix.indices, matrix.data = (
        np.append(matrix.indices, [0] * 9),
        np.append(matrix.data, [7] * 9),
    )
    x = torch.tensor([0.3, -0.7], dtype=torch.float64)
    one = model(matrix, ZEROS[:2]).at(x)
    two = model(torch.tensor([[1.0, 2.0], [0.0, 4.0]], dtype=torch.float64), ZEROS[:2]).at(x)
    assert one.value == pytest.approx(two.value, rel=1e-14)
    torch.testing.assert_close(one.grad, two.grad, rtol=1e-13, atol=0)
    assert len(matrix.data) == 12  # left alone
