"""The table of problems: complete, as the specification has it, documented, and easy to add to."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
import tinyfiles as tiny
import torch
from tolerances import summed

import firstish
from firstish.problems import PROBLEMS, Instance, Options, Problem, get
from firstish.problems.datasets import CATALOGUE, load_cifar10, load_libsvm
from firstish.problems.mushrooms import INITIAL_STEPS

DOCS = Path(__file__).parents[2] / "docs"
NAMES = [
    "digits-logistic",
    "digits-mlp",
    "mushrooms",
    "cifar10-logistic",
    "fashion-mlp",
    "imagenette-resnet",
]
SMALL = ["digits-logistic", "digits-mlp"]
ADAM = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
GRIDS = {
    "fixed": (1e0, 1e-1, 1e-2, 1e-3),
    "adam": (1e-2, 1e-3, 1e-4, 1e-5),
    "heavy-ball": (1e-1, 1e-2, 1e-3),
    "nesterov": (1e-1, 1e-2, 1e-3),
}


def test_table_is_complete():
    assert list(PROBLEMS) == NAMES
    for name, problem in PROBLEMS.items():
        assert problem.name == name
        assert problem.title
        assert problem.formula
        assert problem.choices
        assert get(name) is problem


def test_unknown_name_lists_the_names():
    with pytest.raises(ValueError, match=f"Unknown problem 'mnist'.*{', '.join(NAMES)}"):
        get("mnist")


@pytest.mark.parametrize(
    ("name", "dtype", "sigma", "rho", "gtol", "budget", "scaling", "grids", "rates"),
    [
        (
            "cifar10-logistic",
            torch.float64,
            0.0,
            1e-4,
            1e-4,
            100_000,
            "CGMR",
            {"adam": ADAM},
            {},
        ),
        (
            "fashion-mlp",
            torch.float64,
            1e-6,
            1e-4,
            1e-4,
            100_000,
            "CGMR",
            GRIDS,
            {"fixed": 1e-2, "adam": 1e-5, "heavy-ball": 1e-3, "nesterov": 1e-3},
        ),
        (
            "imagenette-resnet",
            torch.float32,
            1e-6,
            0.0,
            1e-4,
            10_000,
            "MRCG",
            GRIDS,
            {"fixed": 1e-1, "adam": 1e-3, "heavy-ball": 1e-2, "nesterov": 1e-2},
        ),
    ],
)
def test_settings_are_the_papers(name, dtype, sigma, rho, gtol, budget, scaling, grids, rates):
    problem = get(name)
    assert (problem.dtype, problem.sigma, problem.rho) == (dtype, sigma, rho)
    assert (problem.gtol, problem.budget, problem.scaling) == (gtol, budget, scaling)
    assert (dict(problem.grids), dict(problem.rates)) == (grids, rates)


def test_settings_that_are_ours():
    problem = get("mushrooms")
    assert INITIAL_STEPS == (0.1, 1.0, 10.0, 100.0)
    assert problem.panel[3:] == tuple(f"line-search-full@{step:g}" for step in INITIAL_STEPS)
    assert problem.sigma == get("digits-logistic").sigma == 0
    assert dict(get("digits-mlp").grids) == GRIDS
    for name in (*SMALL, "mushrooms"):
        assert not get(name).rates  # the paper states none


# Options --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SMALL)
def test_same_options_same_problem(name):
    options = Options(subset=50, seed=3)
    one, two = get(name).load(options), get(name).load(options)
    assert torch.equal(one.x0, two.x0)
    assert one.objective.at(one.x0).value == two.objective.at(two.x0).value
    assert one.rows == 50
    assert get(name).load().rows == 1797


@pytest.mark.parametrize("name", SMALL)
def test_subset_out_of_range(name):
    with pytest.raises(ValueError, match=r"`--subset` of the command\) is 1,798 rows, .*1,797"):
        get(name).load(Options(subset=1798))
    with pytest.raises(ValueError, match="must be at least 1, got 0"):
        get(name).load(Options(subset=0))


def test_seed_sets_the_start_and_nothing_else():
    problem = get("digits-mlp")
    starts = [problem.load(Options(subset=20, seed=seed)).x0 for seed in (0, 1)]
    assert not torch.equal(*starts)
    x = torch.zeros_like(starts[0])
    values = [problem.load(Options(subset=20, seed=seed)).objective.at(x).value for seed in (0, 1)]
    assert values[0] == values[1]
    logistic = get("digits-logistic")
    assert not logistic.load(Options(subset=20, seed=1)).x0.any()


@pytest.mark.parametrize("name", SMALL)
def test_global_random_state_is_left_alone(name):
    torch.manual_seed(5)
    np.random.seed(5)
    before, numbers = torch.get_rng_state(), np.random.get_state()[1].copy()
    first = get(name).load(Options(subset=20)).x0
    assert torch.equal(torch.get_rng_state(), before)
    np.testing.assert_array_equal(np.random.get_state()[1], numbers)
    torch.manual_seed(6)
    assert torch.equal(get(name).load(Options(subset=20)).x0, first)


@pytest.mark.parametrize("name", SMALL)
def test_dtype(name):
    own = get(name).load(Options(subset=100))
    single = get(name).load(Options(subset=100, dtype=torch.float32))
    assert own.x0.dtype == torch.float64
    assert single.x0.dtype == torch.float32
    assert torch.equal(own.x0.float(), single.x0)
    value, approximate = own.objective.at(own.x0).value, single.objective.at(single.x0).value
    assert value != approximate or name == "digits-logistic"
    assert approximate == pytest.approx(value, rel=1e-5)
    assert single.lipschitz == (None if own.lipschitz is None else pytest.approx(own.lipschitz))
    with pytest.raises(TypeError, match=r"`Options\(dtype=...\)` must be floating-point"):
        get(name).load(Options(dtype=torch.int64))


# Problems with data of their own --------------------------------------------------------------


def mushrooms_value(data, x, rows):
    A = np.hstack([data.features[rows].toarray(), np.ones((len(rows), 1))])
    signs = np.where(data.labels[rows] == 1, 1, -1)
    return np.mean(np.logaddexp(0, -signs * (A @ x))) + 1e-3 / 2 * x @ x


def check_mushrooms(folder):
    data = load_libsvm("mushrooms", data=folder)
    problem = get("mushrooms")
    whole = problem.load(Options(data=folder))
    x = np.random.RandomState(0).randn(113)
    wanted = mushrooms_value(data, x, np.arange(8124))
    assert whole.objective.at(torch.from_numpy(x)).value == pytest.approx(wanted, rel=1e-13)
    assert whole.objective.at(whole.x0).value == pytest.approx(np.log(2), rel=summed(8124))
    assert whole.rows == 8124
    part = problem.load(Options(data=folder, subset=100))
    rows = np.random.RandomState(0).permutation(8124)[:100]
    wanted = mushrooms_value(data, x, rows)
    assert part.objective.at(torch.from_numpy(x)).value == pytest.approx(wanted, rel=1e-13)
    assert 30 < np.sum(data.labels[rows] == 1) < 70  # mixed, whatever the order of the file
    return whole


def test_mushrooms(tmp_path):
    (tmp_path / "mushrooms").write_text(tiny.mushrooms())  # sorted by class
    check_mushrooms(tmp_path)


def test_real_mushrooms(real_data):
    whole = check_mushrooms(real_data)
    problem = get("mushrooms")
    result = firstish.minimize(
        whole.objective,
        whole.x0,
        method=firstish.ScaledGradient(sigma=problem.sigma),
        gtol=problem.gtol,
        max_oracle_calls=problem.budget,
    )
    assert result.success


@pytest.mark.parametrize(
    ("name", "size", "start"),
    [
        ("cifar10-logistic", 9 * 3073, np.log(10)),
        ("fashion-mlp", 784 * 100 + 100 + 100 * 100 + 100 + 100 * 10 + 10, None),
        ("imagenette-resnet", 11_181_642, None),
    ],
)
def test_real_problems_take_a_step(real_data, name, size, start):
    problem = get(name)
    instance = problem.load(Options(data=real_data, subset=10))
    assert instance.rows == 10
    assert instance.x0.shape == (size,)
    assert instance.x0.dtype == problem.dtype
    method = firstish.ScaledGradient(
        scaling=problem.scaling,
        sigma=problem.sigma,
        line_search=firstish.Armijo(rho=problem.rho),
    )
    result = firstish.minimize(instance.objective, instance.x0, method=method, max_iterations=1)
    assert result.value < result.history[0].value
    if start is not None:
        assert result.history[0].value == pytest.approx(start)
    assert (instance.lipschitz is None) == (start is None)


def test_real_problems_scale_pixels_to_one(real_data):
    """f at a point where only a pixel and a bias count."""
    data = load_cifar10(real_data, 50)
    instance = get("cifar10-logistic").load(Options(data=real_data, subset=50))
    x = torch.zeros(9, 3073)
    x[2, 1000], x[4, 3072] = 3.0, 0.5
    scores = np.zeros((50, 10))
    scores[:, 2] = 3.0 * data.images.reshape(50, -1)[:, 1000] / 255
    scores[:, 4] = 0.5
    losses = np.log(np.exp(scores).sum(1)) - scores[np.arange(50), data.labels]
    wanted = losses.mean() + 1e-3 / 2 * (9 + 0.25)
    assert instance.objective.at(x.reshape(-1)).value == pytest.approx(wanted, rel=1e-13)


def test_real_imagenette_subset_is_mixed_and_normalised(real_data):
    options = Options(data=real_data, subset=60)
    problem = get("imagenette-resnet")
    inputs, targets = problem.load(options).objective._arguments
    assert inputs.shape == (60, 3, 32, 32)
    assert len(targets.unique()) == 10
    torch.testing.assert_close(inputs.double().mean((0, 2, 3)), torch.zeros(3), atol=1e-6, rtol=0)
    again, _ = (
        get("imagenette-resnet").load(dataclasses.replace(options, seed=1)).objective._arguments
    )
    assert torch.equal(inputs, again)


# Adding one -----------------------------------------------------------------------------------


def test_a_problem_is_one_file_and_one_line():
    # The file:
    def build(options: Options) -> Instance:
        weights = torch.logspace(0, 2, 5, dtype=options.dtype or torch.float64)
        objective = firstish.FunctionObjective(
            lambda x: (weights * (x - 1) ** 2).sum() / 2, torch.zeros_like(weights)
        )
        x0 = torch.zeros_like(weights)
        return Instance(objective=objective, x0=x0, rows=1, mu=1.0, lipschitz=100.0)

    QUADRATIC = Problem(
        name="quadratic",
        title="A quadratic",
        formula=r"f(x) = \frac12 \sum_i w_i (x_i - 1)^2",
        choices=("Ours.",),
        build=build,
        sigma=0.0,
    )

    # The line:
    problems = {**PROBLEMS, QUADRATIC.name: QUADRATIC}

    instance = problems["quadratic"].load()
    result = firstish.minimize(instance.objective, instance.x0, gtol=1e-8)
    assert result.success
    torch.testing.assert_close(result.x, torch.ones(5))


# The pages ------------------------------------------------------------------------------------


def words(text):
    return re.sub(r"\s+", " ", text)


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=NAMES)
def test_every_problem_is_documented(problem):
    page = (DOCS / "problems.md").read_text(encoding="utf-8")
    section = words(page.split(f"\n## {problem.name}\n")[1].split("\n## ")[0])
    assert problem.title in section
    assert f"$$ {words(problem.formula)} $$" in section
    for choice in problem.choices:
        assert words(choice) in section
    for method, grid in problem.grids.items():
        assert method in section
        assert ", ".join(f"{rate:g}" for rate in grid) in section
    for method, rate in problem.rates.items():
        assert re.search(rf"\| {method} \|[^|]*\| {rate:g} \|", section)


@pytest.mark.parametrize("dataset", CATALOGUE.values(), ids=CATALOGUE)
def test_every_file_is_documented(dataset):
    page = words((DOCS / "data.md").read_text(encoding="utf-8"))
    for text in (dataset.page, dataset.licence):
        assert text in page
    for file in (file for form in dataset.forms for file in form.files):
        assert f"`{file.path}`" in page
        assert file.checksum.partition(":")[2] in page
        assert f"{file.size:,}" in page
        if file.url is not None:
            assert file.url in page


@pytest.mark.parametrize("name", ["problems.md", "data.md"])
def test_examples_on_the_pages_run(name, capsys):
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / name).read_text(encoding="utf-8"), re.S)
    assert blocks
    for block in blocks:
        exec(compile(block, name, "exec"), {})
    assert capsys.readouterr().out
