"""x0 as users hold it: what `fun` gets, what comes back, and vectors shaped like it."""

from collections import OrderedDict, namedtuple

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

import firstish
from firstish import LinearModel, ModuleObjective, NumpyObjective, families, minimize
from firstish.objectives.flatten import Structure

Pair = namedtuple("Pair", ["first", "second"])
TARGET = 3.0


def distance(tree):
    """The sum of (x - 3)^2 over everything in a tree, all of whose leaves must be tensors."""
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, list | tuple):
        return sum(distance(part) for part in tree)
    assert isinstance(tree, torch.Tensor)
    return ((tree - TARGET) ** 2).sum()


def single(*shape):
    return torch.zeros(shape, dtype=torch.float32)


STARTS = {
    "number": 0,
    "float": 1.5,
    "NumPy number": np.float64(0.5),
    "list": [0, 1.0],
    "tuple": (0.0, 1.0, 2.0),
    "list of lists": [[0.0, 1.0], [2.0, 3.0]],
    "array": np.zeros((2, 3)),
    "integers": np.arange(3),
    "float32": np.zeros(2, dtype=np.float32),
    "tensor": single(2, 2),
    "scalar tensor": single(),
    "parameters": [nn.Parameter(single(2)), nn.Parameter(single(1, 2))],
    "nested": {"w": single(2, 3), "rest": [single(1), (single(), single(2))]},
    "ordered": OrderedDict(a=single(1), b=single(2)),
    "named tuple": Pair(single(2), [single(1)]),
    "mixed": {"array": np.zeros(2), "number": 1, "list": [1.0, 2.0]},
}
BACK = {
    "number": float,
    "float": float,
    "NumPy number": float,
    "list": np.ndarray,
    "tuple": np.ndarray,
    "list of lists": np.ndarray,
}


def same_form(one, two):
    """True if `two` has the containers, shapes and kinds that `one` should come back with."""
    if isinstance(one, dict):
        return (
            type(one) is type(two)
            and list(one) == list(two)
            and all(same_form(one[key], two[key]) for key in one)
        )
    if isinstance(one, list | tuple) and not isinstance(two, np.ndarray):
        parts = zip(one, two, strict=True)
        return type(one) is type(two) and all(same_form(a, b) for a, b in parts)
    kind = np.ndarray if isinstance(one, list | tuple) else type(one)
    kind = float if np.isscalar(one) else torch.Tensor if kind is nn.Parameter else kind
    return type(two) is kind and np.shape(one) == np.shape(two)


@pytest.mark.parametrize("name", STARTS)
def test_fun_gets_tensors_and_the_result_comes_back_as_x0_came_in(name):
    seen = []
    result = minimize(
        distance, STARTS[name], gtol=1e-4, callback=lambda progress: seen.append(progress.x)
    )
    assert result.success
    assert same_form(STARTS[name], result.x)
    assert isinstance(result.x, BACK.get(name, type(result.x)))
    assert all(same_form(STARTS[name], x) for x in seen)
    assert len(repr(result)) < 300
    flat = Structure(result.x).start
    assert_close(flat, torch.full_like(flat, TARGET), rtol=0, atol=1e-3)


@pytest.mark.parametrize("name", STARTS)
def test_x0_itself_is_never_written_to(name):
    before = Structure(STARTS[name]).start.clone()
    minimize(distance, STARTS[name], max_iterations=2)
    assert torch.equal(Structure(STARTS[name]).start, before)


def test_a_generator_of_parameters_is_a_list():
    model = nn.Linear(2, 1)
    result = minimize(distance, model.parameters(), gtol=1e-4)
    assert [tuple(x.shape) for x in result.x] == [(1, 2), (1,)]


@pytest.mark.parametrize(
    ("x0", "dtype"),
    [
        (0, torch.float64),
        ([1, 2], torch.float64),
        (np.arange(3), torch.float64),
        (np.zeros(2, dtype=np.float32), torch.float32),
        ({"w": single(2), "b": 1.0, "n": np.arange(2)}, torch.float32),
    ],
)
def test_numbers_take_the_dtype_of_what_is_beside_them(x0, dtype):
    assert Structure(x0).start.dtype == dtype


def test_the_steps_do_not_depend_on_the_form_of_x0():
    A = torch.diag(torch.tensor([1.0, 10.0, 100.0], dtype=torch.float64))

    def whole(x):
        return 0.5 * x @ A @ x + (x**4).sum()

    def in_parts(p):
        return whole(torch.cat([p["a"], p["b"].reshape(-1)]))

    start = torch.ones(3, dtype=torch.float64)
    one = minimize(whole, start)
    two = minimize(in_parts, {"a": start[:1], "b": start[1:].view(2, 1)})
    three = minimize(whole, start.numpy())
    four = minimize(whole, start.tolist())
    assert torch.equal(one.x, torch.cat([two.x["a"], two.x["b"].reshape(-1)]))
    assert np.array_equal(one.x.numpy(), three.x)
    assert np.array_equal(three.x, four.x)
    assert one.oracle_calls == two.oracle_calls == three.oracle_calls


def test_objectives_take_arrays_and_give_them_back():
    numpy = NumpyObjective(lambda x: float(x @ x), lambda x: 2 * x)
    assert np.array_equal(minimize(numpy, [1.0, 2.0]).x, np.zeros(2))
    features = torch.eye(2, dtype=torch.float64)
    model = LinearModel(features, torch.ones(2, dtype=torch.float64), families.LeastSquares())
    result = minimize(model, np.zeros(2))
    assert isinstance(result.x, np.ndarray)


def test_a_function_of_the_module_trains_the_module():
    torch.manual_seed(0)
    model = nn.Linear(3, 1).double()
    inputs = torch.randn(20, 3, dtype=torch.float64)
    targets = inputs.sum(1, keepdim=True)

    def loss(m, scale):
        return scale * nn.functional.mse_loss(m(inputs), targets)

    result = minimize(loss, model, args=(2.0,))
    assert result.success
    assert_close(model.weight.detach(), torch.ones(1, 3, dtype=torch.float64), atol=1e-5, rtol=0)
    held = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    assert torch.equal(result.x, held)


def test_a_module_as_x0_takes_the_steps_of_its_objective():
    inputs, targets = torch.eye(3), torch.ones(3, 1)

    def fresh():
        torch.manual_seed(0)
        return nn.Linear(3, 1)

    def loss(m):
        return nn.functional.mse_loss(m(inputs), targets)

    one, two = fresh(), fresh()
    minimize(loss, one, max_iterations=3)
    minimize(ModuleObjective(two, nn.functional.mse_loss, inputs, targets), two, max_iterations=3)
    assert torch.equal(one.weight, two.weight)


def test_args_and_product_are_passed_on():
    def scaled(x, factor, offset):
        return factor * ((x - offset) ** 2).sum()

    result = minimize(scaled, np.zeros(2), (2.0, 5.0), product="difference", method="CGMR")
    assert_close(result.x, np.full(2, 5.0))
    alone = minimize(lambda x, offset: ((x - offset) ** 2).sum(), np.zeros(2), args=4.0)
    assert_close(alone.x, np.full(2, 4.0))
    with pytest.raises(ValueError, match="gauss-newton"):
        minimize(scaled, np.zeros(2), (2.0, 5.0), product="gauss-newton")


def test_tol_is_gtol():
    runs = [minimize(lambda x: (x**4).sum(), torch.ones(2), **{n: 1e-2}) for n in ("tol", "gtol")]
    assert runs[0].oracle_calls == runs[1].oracle_calls


def test_a_tree_shaped_like_x0_becomes_a_vector():
    form = Structure({"w": torch.zeros(2, 2), "b": (torch.zeros(1), 3.0)})
    lower = {"w": [[1, 2], [3, 4]], "b": (5.0, 6.0)}
    assert form.vector_of(lower, "lower").tolist() == [1, 2, 3, 4, 5, 6]
    assert form.vector_of(-1.0, "lower").tolist() == [-1] * 6
    assert form.vector_of({"w": None, "b": 7}, "lower", none=9.0).tolist() == [9] * 4 + [7] * 2
    for wrong, place in (
        ({"w": 0}, "lower"),
        ({"w": [1, 2, 3], "b": 0}, r"lower\['w'\]"),
        ({"w": 0, "b": (0,)}, r"lower\['b'\]"),
        ({"w": None, "b": 0}, r"lower\['w'\]"),
    ):
        with pytest.raises(ValueError, match=f"`{place}` must"):
            form.vector_of(wrong, "lower")


def test_a_function_objective_takes_a_structure_as_example():
    objective = firstish.FunctionObjective(distance, {"a": np.zeros(2), "b": 0.0})
    assert objective.at(torch.zeros(3, dtype=torch.float64)).grad.tolist() == [-6.0] * 3
