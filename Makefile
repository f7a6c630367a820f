# Two commands do everything: `make train` and `make test`. Each sets up .venv the first time.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TRAIN ?=

.PHONY: setup train train-gpu gpu-compile test test-extended test-all lint bench soak fuzz kill-test pages site clean

setup: $(VENV)/.run

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed; set PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install -q -e .
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install -q -e '.[dev]'
	@touch $@ $(VENV)/.run

$(VENV)/.cuda: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install -q -e '.[cuda]'
	@touch $@ $(VENV)/.run

# XLA's compiler for NVIDIA GPUs, for `echelon bench --compile-for h100` on a machine without one: in a directory of its own that
# ECHELON_GPU_COMPILE must name, because beside JAX it would make every other process look for a GPU.
GPU_COMPILE := .cache/gpu-compile
gpu-compile: $(VENV)/.run
	ECHELON_GPU_COMPILE=$(GPU_COMPILE) $(BIN)/python -m echelon_jax.gpu.target --check || \
	  $(BIN)/python -m pip install -q --no-deps --upgrade --target $(GPU_COMPILE) $$($(BIN)/python -m echelon_jax.gpu.target)

# With the variable, arrays of megabytes lie in huge pages where Linux gives them on request; without glibc it does nothing.
train: $(VENV)/.run
	GLIBC_TUNABLES=glibc.malloc.hugetlb=1 $(BIN)/python train.py --preset cpu --kernels auto $(TRAIN)

train-gpu: $(VENV)/.cuda
	$(BIN)/python train.py --preset gpu $(TRAIN)

test: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

# What CI runs after the suite: long tests, most of which compile a program that nothing else needs.
test-extended: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m extended

# Everything: the extended tests, the slow ones and the whole golden set (ECHELON_GOLDEN) as well.
test-all: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m ''

bench: $(VENV)/.run
	$(BIN)/echelon bench

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Fuzzed parity of the simulator against the plain reference over all shapes, until you stop it: make fuzz, or make fuzz FUZZ="--steps 100000".
# A fault is shrunk and becomes a test case in tests/data/fuzz.
FUZZ ?=
fuzz: $(VENV)/.run
	$(BIN)/python -m echelon_jax.parity.fuzzing.command $(FUZZ)

# 10,000 random games under the revised rules that must leave nothing wrong behind.
soak: $(VENV)/.run
	$(BIN)/python benchmarks/soak.py

# SIGKILL at 100 random moments, many inside a save, and resume each time (docs/reliability.md). Some ten minutes on a free core.
kill-test: $(VENV)/.run
	$(BIN)/python benchmarks/kill_test.py

# Pages that are made from the code.
pages: $(VENV)/.run
	$(BIN)/python -m echelon_jax.cli.configuration > docs/configuration.md
	$(BIN)/python -m echelon_jax.runs.metric_names > docs/metrics.md
	$(BIN)/python -m echelon_jax.env.page > docs/observations.md
	$(BIN)/python -m echelon_jax.rules.page docs/rules.md

# The pages as a site, in build/site; a warning fails.
site: $(VENV)/.run
	$(BIN)/python -m pip install -q -e '.[docs]'
	$(BIN)/python -m mkdocs build --strict

clean:
	rm -rf $(VENV) .cache build *.egg-info
