# Everything a person runs: `make demo`, `make check`, `make test`. VENV may name another one.
VENV ?= .venv
PYTHON ?= python3
BIN = $(VENV)/bin

.PHONY: check lint unit
check: lint unit

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

unit: $(VENV)/.ready
	$(BIN)/python -m pytest -q

$(VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	touch $@
