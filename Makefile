.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
LOCK := $(BIN)/uv pip compile --quiet --no-deps --generate-hashes --python-version 3.11.5 --no-header --no-annotate

help: ## what each target does
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

install: $(INSTALLED) ## make .venv with everything pinned by requirements/, each file by its hash

# torch is pinned by its version alone: each device has its own build. It and build tools go first, so that nothing is
# fetched to build a package.
$(INSTALLED): pyproject.toml constraints.txt requirements/build.txt requirements/all.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Polyclinic needs Python 3.11 or newer")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) -c constraints.txt torch
	$(PIP) --no-deps --require-hashes -r requirements/build.txt
	$(PIP) --no-deps --no-build-isolation --require-hashes -r requirements/all.txt
	$(PIP) --no-build-isolation -e '.[dev]'
	touch $@

lock: install ## requirements/ from constraints.txt: every pin but torch with the hashes of its files
	grep -iE '^(editables|hatchling|packaging|pathspec|pluggy|setuptools|trove-classifiers)==' constraints.txt | $(LOCK) - -o requirements/build.txt
	grep -v '^torch==' constraints.txt | $(LOCK) - -o requirements/all.txt

demo: install ## a five-site synthetic study with its report, in a few minutes
	$(BIN)/polyclinic run studies/demo.toml --fresh

test: install ## the test suite, on two cores
	$(BIN)/python -m pytest -q -n 2 --dist worksteal

test-all: install nginx ## everything: the long studies, and federations of real processes with all their faults
	$(BIN)/python -m pytest -q -m ''

nginx: ## whether nginx is there, which the tests of the coordinator's proxy start
	@PATH="$$PATH:/usr/sbin" command -v nginx > /dev/null || { echo "the tests of the coordinator's proxy need nginx: apt-get install nginx, dnf install nginx or brew install nginx"; exit 1; }

federation: install ## a coordinator and four sites on this machine, with their report
	$(BIN)/python -m demo.federation

check: install ## format, lint, types, import contracts, tests with coverage
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q -n 2 --dist worksteal --cov --cov-report=term:skip-covered
	$(BIN)/coverage report --include='*/federation/*,*/engine/*' --fail-under=99

format: install ## format the code and mend what ruff can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: install ## the documentation as a site, in site/; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

results: install ## the tables of docs/results.md and docs/papers.md, anew; RUNS="FOLDER ..." reads finished runs first
	$(BIN)/python docs/result_tables.py $(RUNS)

.PHONY: method-costs
method-costs: install ## what each method costs beside FedAvg, measured anew into methods/costs.json
	$(BIN)/python -m bench.method_costs

bench: install ## every speed ratio of docs/benchmarks.md, measured anew
	$(BIN)/python -m bench

.PHONY: help install lock demo test test-all nginx federation check format docs results bench
