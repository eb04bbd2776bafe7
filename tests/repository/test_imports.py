"""Imports point downwards, the core needs torch and NumPy alone, and every example runs."""

import ast
import doctest
import importlib
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import firstish

SOURCE = Path(firstish.__file__).parent

LAYERS = [
    {"errors", "_validate"},
    {"interface"},
    {"scaling", "linalg", "distributed", "line_search", "theory"},
    {"objectives", "bounds"},
    {"methods"},
    {"result"},
    {"loop"},
    {"advice"},
    {"minimize", "optim"},
    {"scipy", "spectrum"},
]
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}
LATE = {  # imported by a function: they are extras
    "firstish.scipy.method": {"scipy"},
    "firstish.interface.plot": {"matplotlib"},
    "firstish.interface.table": {"pandas"},
}
# The runner and the doors that need an extra: the library knows nothing of them.
TOP = {"experiments", "__main__", "sklearn"}


def name_of(path):
    parts = ("firstish", *path.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sorted(SOURCE.rglob("*.py"))}
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}


def part(name):
    """`objectives` of `firstish.objectives.base`; the empty string for the package itself."""
    return name.partition(".")[2].partition(".")[0]


CORE = [name for name in MODULES if part(name) in RANK]


def imported(name):
    """The modules of ours that a module imports anywhere in its text."""
    found = set()
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} has a relative import"
            below = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (below & MODULES.keys()) or {node.module}
    return {other for other in found if other.split(".")[0] == "firstish"}


def test_the_scan_sees_the_package():
    assert {part(name) for name in CORE} == RANK.keys()
    assert "firstish.objectives.base" in imported("firstish.methods.base")
    assert "firstish.objectives.hvp" in imported("firstish.objectives.autograd")


@pytest.mark.parametrize("name", CORE)
def test_the_core_imports_downwards_only(name):
    upwards = {other for other in imported(name) if RANK.get(part(other), 99) > RANK[part(name)]}
    assert not upwards


def test_scalars_know_nothing_of_tensors():
    for name in ("scaling", "methods.rules", "line_search", "theory"):
        for node in ast.walk(TREES[f"firstish.{name}"]):
            names = [alias.name for alias in getattr(node, "names", [])]
            assert "torch" not in [*names, getattr(node, "module", None)]


def test_methods_know_of_points_and_of_no_concrete_objective():
    for name in CORE:
        if part(name) == "methods":
            ours = {other for other in imported(name) if part(other) == "objectives"}
            assert ours <= {"firstish.objectives.base"}


def test_there_is_no_cycle():
    graph = {name: imported(name) - {name} for name in MODULES}
    order = list(TopologicalSorter(graph).static_order())
    assert order.index("firstish.scaling") < order.index("firstish.minimize")


def test_nothing_in_the_library_imports_the_runner():
    for name in MODULES:
        if part(name) not in TOP:
            assert not {other for other in imported(name) if part(other) in TOP}, name


@pytest.mark.parametrize("name", CORE)
def test_the_core_imports_at_the_top_of_the_file(name):
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inside = set()
            for n in ast.walk(node):
                if isinstance(n, ast.Import):
                    inside |= {alias.name.split(".")[0] for alias in n.names}
                elif isinstance(n, ast.ImportFrom):
                    inside.add(n.module.split(".")[0])
            assert inside <= LATE.get(name, set()), node.name


def loaded_by(statement):
    """The top-level modules in memory after a statement in a fresh interpreter."""
    code = f"import sys; {statement}; print(*{{name.split('.')[0] for name in sys.modules}})"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def test_importing_it_loads_torch_and_numpy_and_nothing_else():
    new = loaded_by("import firstish") - loaded_by("import torch, numpy")
    new -= set(sys.stdlib_module_names)
    assert new == {"firstish"}


def test_importing_it_loads_no_extra():
    extras = {"scipy", "sklearn", "matplotlib", "plotly", "rich", "typer", "click", "pandas", "PIL"}
    assert not loaded_by("import firstish") & extras


@pytest.mark.parametrize("name", [name for name in MODULES if part(name) != "__main__"])
def test_every_example_runs(name):
    module = importlib.import_module(name)
    results = doctest.testmod(module, raise_on_error=False)
    assert results.failed == 0


def test_the_public_doors_have_an_example():
    doors = [
        firstish.minimize,
        firstish.ScaledGD,
        firstish.ScaledGradient,
        firstish.PlaneStep,
        firstish.LazyStep,
        firstish.ScaledDirection,
        firstish.AdamDirection,
        firstish.MomentumDirection,
        firstish.NonMonotone,
        firstish.Anneal,
        firstish.FunctionObjective,
        firstish.ModuleObjective,
        firstish.LinearModel,
        firstish.NumpyObjective,
        firstish.scipy_method,
        firstish.hvp,
        firstish.curvature,
        firstish.largest_eigenvalue,
    ]
    assert all(">>>" in door.__doc__ for door in doors)


def test_all_names_of_the_package_exist_and_are_documented():
    for name in firstish.__all__:
        assert getattr(firstish, name).__doc__, name
