"""What keeps the source easy to enter: small rooms, short functions, public torch, no cycles."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

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
