# Sets up, builds, tests and demonstrates the project without an activated environment. `make help`
# lists the targets.
#
# make PYTHON=python3.12 VENV=.venv312 test     another Python
# make JOBS=1 demo                              fewer compilers at once (each takes about 1.5 GB)
# make VECTOR_UNITS=all test                    kernels for every vector unit, as wheels have them

PYTHON ?= python3
VENV ?= .venv
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
VECTOR_UNITS ?= native
PYTEST_ARGS ?=
TRAIN_ARGS ?=

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:

BIN := $(VENV)/bin
EDITABLE := $(if $(wildcard $(VENV)/.editable),--editable)
comma := ,
export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1
# cmake and ninja come from the environment where the machine has none.
export PATH := $(abspath $(BIN)):$(PATH)
# Neither the user's site-packages nor an outer project may leak into the environment.
export PYTHONNOUSERSITE := 1
unexport PYTHONPATH
unexport PYTHONHOME
unexport VIRTUAL_ENV
# Without bytecode each process of a test compiles the package anew, and pytest its tests.
unexport PYTHONDONTWRITEBYTECODE

# What a build depends on. Folders are listed too, so that a deleted file counts as a change.
SOURCES := pyproject.toml CMakeLists.txt tools/build_backend.py \
  $(shell find aten c10 cmake third_party torch \( -name __pycache__ -prune \) -o \
    \( -type d -o -type f ! -name '*.pyc' ! -name '*.so' ! -name _build_info.py \) -print 2>/dev/null)
CXX_FILES = find aten c10 torch test tools -type f \
  \( -name '*.h' -o -name '*.cpp' -o -name '*.cuh' -o -name '*.cu' \) -print0
REQUIREMENTS := $(addprefix requirements/,build.txt train.txt test.txt constraints.txt)

.PHONY: help
help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' \
	  $(firstword $(MAKEFILE_LIST))

.PHONY: demo
demo: $(VENV)/.package ## Train the example network in 16 and 8 bits; report in demo-out/
	$(BIN)/python -m torch_dtypes train --optimizer sgd --lr 0.05 --momentum 0.9 --repeats 3 \
	  --dtype posit16es2 --dtype q43 --dtype q43_stochastic --out demo-out $(TRAIN_ARGS)

.PHONY: test
test: $(VENV)/.package ## Run the tests, thinned out; PYTEST_ARGS="-k name" goes to pytest
	$(BIN)/python -m pytest -n $(JOBS) $(PYTEST_ARGS) test

.PHONY: test-rest
test-rest: $(VENV)/.package ## Run the cases that `make test` leaves out, but the slow ones
	$(BIN)/python -m pytest -n $(JOBS) -m "whole and not slow" $(PYTEST_ARGS) test

.PHONY: test-all
test-all: test test-rest ## Run every case once, but the slow ones

.PHONY: build
build: $(VENV)/.package ## Build and install the package into .venv

.PHONY: develop
develop: $(VENV)/.python ## Install editable, until `make clean`: Python is used as it lies here
	@touch $(VENV)/.editable
	@rm -f $(VENV)/.package
	@$(MAKE) --no-print-directory build

.PHONY: wheel
wheel: $(VENV)/.compiler $(VENV)/.requirements ## Build a wheel into dist/
	$(BIN)/pip wheel --no-build-isolation --no-deps --wheel-dir dist .

.PHONY: notebooks
notebooks: $(VENV)/.python ## Write the tutorials as notebooks, beside the scripts
	$(BIN)/python tools/notebooks.py

.PHONY: lint
lint: $(VENV)/.lint ## Check Python and C++ code: errors, layout, and which room imports which
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PYTHONPATH=torch $(BIN)/lint-imports --no-logo --no-cache pyproject.toml
	$(CXX_FILES) | xargs -0 -r $(BIN)/clang-format --dry-run --Werror

.PHONY: format
format: $(VENV)/.lint ## Format Python and C++ code in place
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .
	$(CXX_FILES) | xargs -0 -r $(BIN)/clang-format -i

.PHONY: docs
docs: $(VENV)/.package $(VENV)/.docs ## Build pages and API reference into build/docs; no warnings
	$(BIN)/sphinx-build -q -W --keep-going -d build/doctrees -c docs/site . build/docs

.PHONY: in-tree
in-tree: $(VENV)/.requirements ## Put the formats into the PyTorch tree SOURCE=... and build it
	@[ -n "$(SOURCE)" ] || $(call need,a PyTorch source tree$(comma) but got none; \
	  say make in-tree SOURCE=/path/to/pytorch)
	$(BIN)/python tools/intree/build --jobs $(JOBS) "$(SOURCE)"

.PHONY: clean
clean: ## Remove the builds, not the environment
	rm -rf build dist demo-out .pytest_cache .ruff_cache .hypothesis
	rm -f $(VENV)/.package $(VENV)/.editable
	find aten benchmarks c10 docs test tools torch -name __pycache__ -type d -prune \
	  -exec rm -rf {} + 2>/dev/null || true

.PHONY: distclean
distclean: clean ## Remove the environment too
	rm -rf $(VENV)

# --- stamps ---

# One clear line instead of a page from the tool that would have failed.
need = { echo "expected $(1)" >&2; exit 1; }

$(VENV)/.python:
	@command -v "$(PYTHON)" >/dev/null || $(call need,Python 3.11 or newer as '$(PYTHON)'$(comma) but found none; install it or say make PYTHON=/path/to/python3)
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || $(call need,Python 3.11 or newer$(comma) but '$(PYTHON)' is $$("$(PYTHON)" -V 2>&1); say make PYTHON=/path/to/python3)
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || $(call need,Python's venv module$(comma) but '$(PYTHON)' has none; on Debian: apt install python3-venv)
	@rm -rf $(VENV)
	"$(PYTHON)" -m venv $(VENV)
	@touch $@

$(VENV)/.requirements: $(REQUIREMENTS) $(VENV)/.python
	$(BIN)/pip install --quiet -r requirements/build.txt -r requirements/train.txt \
	  -r requirements/test.txt
	@touch $@

$(VENV)/.lint: requirements/lint.txt $(VENV)/.python
	$(BIN)/pip install --quiet -r requirements/lint.txt
	@touch $@

$(VENV)/.docs: requirements/docs.txt requirements/constraints.txt $(VENV)/.requirements
	$(BIN)/pip install --quiet -r requirements/docs.txt
	@touch $@

# Before the requirements, since one of them is compiled too and they take minutes.
$(VENV)/.compiler: $(VENV)/.python
	@command -v "$${CXX:-c++}" >/dev/null || command -v g++ >/dev/null || command -v clang++ >/dev/null \
	  || $(call need,a C++20 compiler (g++ 11 or newer)$(comma) but found none; on Debian: apt install g++)
	@$(BIN)/python -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' \
	  || $(call need,Python's C headers (Python.h)$(comma) but found none; on Debian: apt install python3-dev)
	@touch $@

$(VENV)/.package: $(SOURCES) $(VENV)/.compiler $(VENV)/.requirements
	@echo "building torch_dtypes: minutes the first time, then only what has changed"
	$(BIN)/pip install --quiet --no-build-isolation --no-deps \
	  -C cmake.define.TORCH_DTYPES_VECTOR_UNITS=$(VECTOR_UNITS) $(EDITABLE) ".[train,test]"
	@touch $@
