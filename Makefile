# make demo        run and show the example
# make test        all tests but the slow ones: 5 minutes on two idle cores
# make test-slow   the slow ones: storms of processes, sessions within sessions, every bit flipped
# make test-all    everything; so does plain "pytest", on one core
# make check       ruff, ruff format, mypy, import-linter
# make setup       install memscope with all extras into .venv
#
#   CONSTRAINTS=FILE   versions to install ("" for the newest)
#   PYTHON=python3.12  the Python (3.11 or newer) that .venv is made from
#   TORCH_INDEX=URL    one more package index, for another build of torch
#   ARGS="-k window"   passed on to memscope demo or pytest

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.memscope-ready
CHOICES := $(VENV)/.memscope-choices
PRINT_VERSION := 'import sys; print(sys.version_info[:2])'
FETCH := "from memscope_runners.checkpoint.fetch import open_model; open_model()"
CPU_INDEX := https://download.pytorch.org/whl/cpu

has_driver := $(shell test -e /proc/driver/nvidia && echo yes || command -v nvidia-smi)
is_linux := $(filter Linux,$(shell uname -s))
ifeq ($(origin CONSTRAINTS),undefined)
ifneq ($(is_linux),)
ifeq ($(has_driver),)
CONSTRAINTS := constraints.txt
is_default := yes
endif
endif
endif

ifneq ($(CONSTRAINTS),$(wildcard $(CONSTRAINTS)))
$(error There is no file $(CONSTRAINTS). Name one with CONSTRAINTS=FILE)
endif

PIP := $(BIN)/python -m pip --disable-pip-version-check
PIP_OPTIONS := $(if $(CONSTRAINTS),-c "$(CONSTRAINTS)") \
	$(if $(TORCH_INDEX),--extra-index-url "$(TORCH_INDEX)")

.PHONY: demo test test-slow test-all model check setup clean FORCE

demo: $(STAMP)
	@$(BIN)/memscope demo $(ARGS)

# ARGS comes last, so that ARGS="-m gpu" chooses instead of the tier's own -m.
test: CHOSEN := -m "not slow"
test-slow: CHOSEN := -m slow
test test-slow test-all: model
	@echo "memscope: running the tests"
	@$(BIN)/python -m pytest -n auto $(CHOSEN) $(ARGS)

model: $(STAMP)
	@echo "memscope: fetching the real model, unless it is there"
	@$(BIN)/python -c $(FETCH) 2>/dev/null \
		|| echo "memscope: it cannot be had here; the tests that need it are skipped and say why"

check: $(STAMP)
	@echo "memscope: ruff check"
	@$(BIN)/ruff check .
	@echo "memscope: ruff format --check"
	@$(BIN)/ruff format --check .
	@echo "memscope: mypy"
	@$(BIN)/mypy
	@echo "memscope: lint-imports"
	@$(BIN)/lint-imports

setup: $(STAMP)

clean:
	rm -rf $(VENV)

$(STAMP): pyproject.toml $(CONSTRAINTS) $(CHOICES)
ifeq ($(is_default)$(TORCH_INDEX),yes)
	@echo "memscope: no NVIDIA driver here, so the versions in constraints.txt are installed;" \
		"for torch's small CPU build: TORCH_INDEX=$(CPU_INDEX) make $(or $(MAKECMDGOALS),demo)"
endif
	@echo "memscope: updating pip in $(VENV)"
	@$(PIP) install --quiet --upgrade pip
	@echo "memscope: installing memscope with its extras into $(VENV) (minutes the first time)"
	@$(PIP) install --quiet $(PIP_OPTIONS) --editable ".[all,dev]"
	@touch $@

# Written anew only where it says something else, so that other CONSTRAINTS count.
$(CHOICES): FORCE | $(BIN)/python
ifneq ($(origin PYTHON),file)
	@test "$$($(BIN)/python -c $(PRINT_VERSION))" = "$$($(PYTHON) -c $(PRINT_VERSION))" || { \
		echo "memscope: $(VENV) was made from another Python than $(PYTHON):" \
			"run make clean first" >&2; exit 2; }
endif
	@echo "$(CONSTRAINTS)" | cmp -s - $@ || echo "$(CONSTRAINTS)" > $@

$(BIN)/python:
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11))" || { \
		echo "memscope needs Python 3.11 or newer, and $(PYTHON) is not:" \
			"name one that is: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 2; }
	@echo "memscope: making $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 2; }
