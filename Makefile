# Culver: `make run` starts a site, `make test` runs the tests. Both set up everything they need in .venv.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

# Tests start hundreds of Python processes: without bytecode on disk, each of them would compile the package again.
unexport PYTHONDONTWRITEBYTECODE

# Two workers more than cores, because many tests wait for processes; an idle worker takes tests from the others.
PYTEST := $(BIN)/python -m pytest -n $$(( $$(getconf _NPROCESSORS_ONLN) + 2 )) --dist worksteal

.PHONY: help setup run test thorough again unit check lint format bench clean java

help:
	@echo "make run       set up, start a site on the Spark engine and print two lines to try it with"
	@echo "make test      set up and run the tests, in five to eight minutes on two free cores"
	@echo "make thorough  for releases, in ten minutes and more: more seeds, more kills, and the benchmarks in short"
	@echo "make again     run the tests that failed last, one after another"
	@echo "make check     lint and the quick tests, in about two: for every step of your work"
	@echo "make unit      the quick tests alone: tests/unit and tests/contracts without those marked slow"
	@echo "make lint      ruff, mypy --strict and the package map"
	@echo "make format    let ruff format the code"
	@echo "make bench     run the benchmark of the whole path"
	@echo "make setup     install into .venv only"
	@echo "make clean     remove .venv and caches"

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Culver needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version). Try: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	@echo "Installing into $(VENV) (about two minutes, the first time) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@$(BIN)/culver setup
	@touch $@

java:
	@command -v java >/dev/null 2>&1 || [ -x "$$JAVA_HOME/bin/java" ] || { \
	  echo "The Spark engine needs Java 17 or newer, and there is no java here. Install it with one of:"; \
	  echo "  Debian, Ubuntu:  sudo apt-get install openjdk-17-jre-headless"; \
	  echo "  Fedora:          sudo dnf install java-17-openjdk-headless"; \
	  echo "Without Java, this works now:  $(BIN)/culver serve --engine inline"; exit 1; }

run: setup java
	@exec $(BIN)/culver serve

test: setup java
	$(PYTEST) -m "not thorough"

# One worker for each core: many of these tests keep both cores busy, and have limits in seconds.
thorough: setup java
	$(BIN)/python -m pytest -n $$(getconf _NPROCESSORS_ONLN) --dist worksteal -m thorough

again: setup java
	$(BIN)/python -m pytest --last-failed --last-failed-no-failures none --timeout 900

unit: setup
	$(PYTEST) -m "not slow and not thorough" tests/unit tests/contracts

check: setup
	@$(MAKE) --no-print-directory -j2 lint unit

lint: setup
	$(BIN)/ruff check src tests
	$(BIN)/ruff format --check src tests
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff format src tests
	$(BIN)/ruff check --fix src tests

bench: setup java
	$(BIN)/culver bench spine

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
