# Everything a person types here. Each target sets up what it needs (.venv, packages) by itself.
PYTHON ?= $(firstword $(foreach name,python3.11 python3.12 python3.13 python3.14 python3,$(shell \
  $(name) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(name))))
VENV    := .venv
BIN     := $(VENV)/bin
RUNTIME := $(VENV)/.runtime
READY   := $(VENV)/.installed
PIP     := $(BIN)/python -m pip --disable-pip-version-check -qq

.PHONY: demo test check bench setup clean

setup: $(READY)

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Durable needs Python 3.11 or newer; name yours: make PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) does not run, or is older than Python 3.11"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) comes without venv; on Debian and Ubuntu: apt install python3-venv"; exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(RUNTIME): pyproject.toml | $(BIN)/python
	@echo "setting up $(VENV) (about a minute the first time)"
	@$(PIP) install -e .
	@touch $@

$(READY): $(RUNTIME)
	@echo "adding what the tests need"
	@$(PIP) install -e '.[test,lint]'
	@touch $@

demo: $(RUNTIME)    ## run a real example, kill its worker half-way, watch another finish it
	@$(BIN)/python -m examples.demo

test: $(READY)      ## everything that must hold
	@$(MAKE) --no-print-directory check
	@$(BIN)/python -m pytest

check: $(READY)     ## style, types, import direction, and that migrations build exactly sql/
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m pytest tests/store/test_drift.py

bench: $(READY)     ## every benchmark with its ratio to the bare limits of the same server
	@$(BIN)/python -m bench

clean:
	rm -rf $(VENV) .durable dist build
