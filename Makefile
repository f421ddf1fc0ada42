# Each target sets up what it needs in $(VENV), with uv when it is there, else with venv and pip.
#
#   make replay    hold the golden traces to today's code (the main job)
#   make test      the whole test suite
#   make check     format, lint, types, layers, and the blocks of the documentation
#   make format    let ruff lay out and fix what it can
#   make api       write the lists of public names in docs/api anew
#   make bench     the benchmarks
#   make soak      the long runs, of about an hour on two cores: 600,000 schedules, crashes, restarts
#                  and cut connections, and their report in reliability-report.md; SOAK=3 runs a tenth
#   make lowest    the golden traces and the library on the oldest versions that pyproject.toml allows
#   make matrix    Python, pytest and async plugins in each combination that can be had
#
# Another Python: make test PYTHON=python3.13 VENV=.venv-3.13

VENV ?= .venv
WORKERS ?= auto
PYTEST_ARGS ?=
SOAK ?= 30

BIN := $(VENV)/bin
RUN := $(BIN)/python -m
CODE = $(wildcard src tests examples benchmarks)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help replay test check format-check lint types typing layers docs format api bench soak lowest matrix setup clean

help:
	@sed -n 's/^#   //p' Makefile

replay: $(VENV)/.ready-test
	$(RUN) pytest --soev-replay fixtures/golden $(PYTEST_ARGS)

test: $(VENV)/.ready-dev
	$(RUN) pytest -n $(WORKERS) --timeout=300 $(PYTEST_ARGS)

check: format-check lint types typing layers docs

format-check: $(VENV)/.ready-dev
	$(RUN) ruff format --check .

lint: $(VENV)/.ready-dev
	$(RUN) ruff check .

types: $(VENV)/.ready-dev
	$(RUN) mypy $(CODE)

typing: $(VENV)/.ready-dev
	$(BIN)/basedpyright --pythonpath $(BIN)/python

layers: $(VENV)/.ready-dev
	$(BIN)/lint-imports

docs: $(VENV)/.ready-dev
	$(RUN) pytest -q tests/test_docs.py

format: $(VENV)/.ready-dev
	$(RUN) ruff format .
	$(RUN) ruff check --fix .

api: $(VENV)/.ready-dev
	$(BIN)/python tests/test_public_names.py

bench: $(VENV)/.ready-dev
	$(RUN) pytest benchmarks --benchmark-sort=name $(PYTEST_ARGS)

soak: $(VENV)/.ready-dev
	SOEV_SOAK=$(SOAK) SOEV_REPORT=reliability-report.md $(RUN) pytest -n $(WORKERS) \
		--timeout=3000 -m 'soak or not soak' tests/reliability tests/world/test_soundness.py \
		tests/adapters/test_postgres_faults.py tests/adapters/test_stores_agree.py $(PYTEST_ARGS)

lowest: $(VENV)/.ready-test
	.ci/lowest $(BIN)/python

matrix: $(VENV)/.ready-test
	.ci/matrix

setup: $(VENV)/.ready-dev

$(VENV)/.ready-test $(VENV)/.ready-dev: $(VENV)/.ready-%: pyproject.toml .ci/setup
	PYTHON="$(PYTHON)" .ci/setup $(VENV) '.[$*]'
	@touch $@ $(if $(filter dev,$*),$(VENV)/.ready-test)

clean:
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .benchmarks
