# Everything a person types here. Each target sets up what it needs (.venv, packages) by itself.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.installed

.PHONY: demo test check bench setup clean

setup: $(READY)

$(READY): pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -q -e '.[test,lint]'
	@touch $@

demo: $(READY)      ## run a real example, kill its worker half-way, watch another finish it
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
