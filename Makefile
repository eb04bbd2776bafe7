# `make` lists the targets. Everything happens in .venv, which `make setup` builds from nothing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
HEAVY := $(VENV)/.installed-heavy
# More arguments for the command behind a target: make unit ARGS='-k armijo'
ARGS ?=

# pip, not uv: uv does not find the CPU build of torch. Both variables bind the isolated environment in which hatchling
# builds us: pip before 25.3 reads the first there, later ones the second. It installs no torch: a constraint only pins.
PIP := PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 \
	$(BIN)/python -m pip

# One thread each unless the caller says otherwise: two workers with a thread pool apiece fight over
# the cores.
THREADS := OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} MKL_NUM_THREADS=$${MKL_NUM_THREADS:-1}

.DEFAULT_GOAL := help
.PHONY: help setup run test test-all test-everywhere test-noise test-oldest lint types unit docs notebooks mutations bench bench-linear bench-estimators race bench-memory bench-processes bench-sample attack format clean

help: ## list the targets
	@sed -n -E 's/^([a-z-]+):.*## (.*)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

setup: $(STAMP) ## make .venv and install everything into it

# torch first and alone, at its pin: an open requirement would fetch gigabytes of CUDA libraries.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install -q "$$(grep '^torch==' constraints.txt)"
	$(PIP) install -q -e '.[dev,docs]'
	@touch $@

run: $(STAMP) ## compare the methods on the digits
	$(BIN)/firstish run $(ARGS)

test: lint types unit docs ## all checks: lint, types, unit, docs

# Outside of `make test`: slow to install, and not ours to mend. Without Chromium its tests skip and say so.
test-all: $(HEAVY) ## the heavy tests: the page in Chromium, TensorBoard, trainers, notebooks, the wheel
	$(THREADS) $(BIN)/pytest tests_heavy $(ARGS)

# ARGS=--list names them; ARGS='narrow two-threads -- tests/experiments' takes two of them and some tests.
test-everywhere: $(STAMP) ## `make test` in 22 environments: threads, locales, offline, one core, ...
	$(BIN)/python tests/environments.py $(ARGS)

# Each seed is the arithmetic of another processor: tests/noise.py. All seeds run, whatever the first ones say.
test-noise: $(STAMP) ## the numerical tests with torch's results an ulp off, five times (ARGS='5 6': these seeds)
	@for seed in $(or $(ARGS),0 1 2 3 4); do echo "noise of seed $$seed"; \
		$(THREADS) $(BIN)/pytest -q -n 2 --noise $$seed || failed=1; done; exit $${failed:-0}

# Fetches 2.5 GB: that torch has no build without CUDA on PyPI.
test-oldest: $(STAMP) ## the core's tests on the oldest torch we claim (5 GB on disk)
	$(BIN)/python tests_heavy/oldest.py $(ARGS)

# Debian's Chromium, driven by playwright: its own download of a browser needs another network.
$(HEAVY): $(STAMP)
	$(PIP) install -q -e '.[dev,docs,heavy]'
	@if test ! -x /usr/bin/chromium && test "$$(id -u)" = 0 && command -v apt-get > /dev/null; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium \
		|| echo 'chromium could not be installed: the tests of the page will skip'; fi
	@touch $@

lint: $(STAMP) ## ruff: rules and format
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(STAMP) ## mypy --strict
	$(BIN)/mypy

unit: $(STAMP) ## pytest on two workers
	$(THREADS) $(BIN)/pytest -n 2 $(ARGS)

docs: $(STAMP) ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict -d site

notebooks: $(HEAVY) ## run the notebooks and keep their outputs
	$(THREADS) MPLBACKEND=module://matplotlib_inline.backend_inline $(BIN)/python tests_heavy/refresh_notebooks.py

mutations: $(STAMP) ## show that each known fault makes a test fail (slow)
	$(BIN)/python tests/mutations/run.py $(ARGS)

attack: $(STAMP) ## try to break the library: kills, full disks, damaged files, hostile functions (ARGS='--seed 1')
	$(THREADS) $(BIN)/python -m attacks.run $(ARGS)

bench: $(STAMP) ## time per iteration over the bare autograd calls
	$(BIN)/python benchmarks/iteration_cost.py $(ARGS)

bench-linear: $(STAMP) ## time per iteration of a linear model against autograd (1.2 GB)
	$(BIN)/python benchmarks/linear_model.py $(ARGS)

bench-estimators: $(STAMP) ## time of a fit against scikit-learn's solvers (ARGS='--data DIR')
	$(BIN)/python benchmarks/estimators.py $(ARGS)

race: $(STAMP) ## every method on 119 problems (ARGS=--quick: two minutes; .[bench] adds peers)
	OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python benchmarks/race.py $(ARGS)

bench-memory: $(STAMP) ## peak memory of the finite sum at 10 times the data
	$(BIN)/python benchmarks/finite_sum_memory.py $(ARGS)

bench-processes: $(STAMP) ## time per iteration of two processes over that of one
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/two_processes.py $(ARGS)

# All rows, as here, take hours; ARGS='--subset 6000' minutes.
bench-sample: $(STAMP) ## oracle calls that a sampled Hessian saves on FashionMNIST
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/hessian_sample.py $(ARGS)

format: $(STAMP) ## let ruff format and fix
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean: ## remove .venv, caches and what was built
	rm -rf $(VENV) site dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
