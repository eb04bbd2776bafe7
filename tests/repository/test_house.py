"""What keeps the source easy to enter: small rooms, short functions, public torch, no cycles."""

import ast
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
import torch

import firstish

SOURCE = Path(firstish.__file__).parent
FOLDERS = sorted({path.parent for path in SOURCE.rglob("*.py")})
FILES = sorted(SOURCE.rglob("*.py"))
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in FILES}
BRANCHES = (ast.If, ast.For, ast.While, ast.ExceptHandler, ast.IfExp, ast.comprehension, ast.Match)


def name_of(path):
    """`firstish.objectives.base` of its file; the package's name of an `__init__.py`."""
    parts = ("firstish", *path.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): tree for path, tree in TREES.items()}


def imported(tree):
    """The full names that a module imports, from modules or as modules."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def runs_before(name, tree):
    """The modules of ours that run when this one does: what it imports, and their packages.

    A package that a module itself is in has begun before it, so it does not count.
    """
    for other in imported(tree):
        module = other if other in MODULES else other.rpartition(".")[0]
        parts = module.split(".")
        for k in range(1, len(parts) + 1):
            before = ".".join(parts[:k])
            if before in MODULES and not f"{name}.".startswith(f"{before}."):
                yield before


def functions():
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                yield f"{name_of(path)}.{node.name}", node


def own(function):
    """The nodes of a function, without those of functions inside it, which count by themselves."""
    waiting = list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)


def lines(function):
    """The lines of the body, without the docstring."""
    body = function.body[ast.get_docstring(function) is not None :]
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda f: f.relative_to(SOURCE.parent).as_posix())
def test_no_folder_has_more_than_14_modules(folder):
    assert len(list(folder.glob("*.py"))) <= 14


def test_no_body_is_longer_than_60_lines():
    assert not {name: lines(f) for name, f in functions() if lines(f) > 60}


def test_no_function_has_more_than_12_branches():
    counts = {name: sum(isinstance(n, BRANCHES) for n in own(f)) for name, f in functions()}
    assert not {name: count for name, count in counts.items() if count > 12}


def test_no_private_name_of_torch_is_imported():
    private = {
        (name, other)
        for name, tree in MODULES.items()
        for other in imported(tree)
        if other.split(".")[0] == "torch" and any(p.startswith("_") for p in other.split("."))
    }
    assert not private


def test_there_is_no_import_cycle_with_packages_counted():
    graph = {name: set(runs_before(name, tree)) for name, tree in MODULES.items()}
    assert "firstish.objectives" in graph["firstish.methods.base"]
    list(TopologicalSorter(graph).static_order())  # raises if there is one


WALK = [
    "minimize",
    "methods/registry",
    "objectives/function",
    "loop",
    "methods/take_step",
    "methods/scaled_gradient",
    "scaling",
    "objectives/base",
    "objectives/autograd",
    "objectives/hvp",
    "line_search",
    "result",
]
LAZY = {"methods/lazy_step", "methods/quasi_newton/curvature_pairs"}
ROWS = {"methods/quasi_newton/row_buffer"}  # of many variables
MATRIX = {"methods/quasi_newton/inverse_hessian"}  # of few
LEAVES = ["linalg", "_validate", "objectives/flatten", "objectives/global_state"]


def trace(function):
    """The files of ours whose functions run, and how far the products are below `propose`."""
    source, files, depths = f"{SOURCE}/", set(), []

    def profile(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(source):
            files.add(frame.f_code.co_filename)
            if frame.f_code.co_name == "double_backward":
                depths.append(depth_below_propose(frame))

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(before)
    return {Path(name).relative_to(SOURCE).with_suffix("").as_posix() for name in files}, depths


def depth_below_propose(frame):
    depth = 0
    while frame.f_code.co_name != "propose":
        frame, depth = frame.f_back, depth + 1
    return depth


def walk(**settings):
    """The files from `minimize` to the history on Rosenbrock's valley, the depths, the result."""
    x0, results = torch.tensor([-1.2, 1.0]), []
    valley = lambda x: (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2  # noqa: E731
    files, depths = trace(
        lambda: results.append(firstish.minimize(valley, x0, gtol=1e-2, **settings))
    )
    assert results[0].success
    return files, depths, results[0]


def test_minimize_walks_through_twelve_files_and_four_leaves():
    files, depths, result = walk(method="CGMR")
    assert files == {*WALK, *LEAVES}
    assert len(WALK) == 12
    assert len(depths) == result.iterations == len(result.history) - 1
    assert max(depths) <= 5


@pytest.mark.parametrize(("method", "more"), [(None, MATRIX), (firstish.LazyStep(memory=10), ROWS)])
def test_the_default_method_walks_through_its_own_files_instead(method, more):
    files, _, _ = walk(method=method)
    assert files - {*WALK, *LEAVES} == LAZY | more
    assert not files & {"methods/scaled_gradient"}


def test_the_walk_in_contributing_names_these_files():
    text = (SOURCE.parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    walk = text[text.index("### Three walks") : text.index("*`ScaledGD.step")]
    assert not [
        name for name in (*WALK, *LEAVES, *LAZY, *ROWS, *MATRIX) if f"{name}.py" not in walk
    ]
