# The two commands: `make demo` runs the main job on this machine, `make test` runs every test.
# `make grid-demo` runs one across three sites, two of them behind firewalls (as root).
# Both make .venv with the pinned versions of constraints.txt; a second call finds it ready.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo grid-demo test check soak pins clean

$(READY): constraints.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Sureline needs Python 3.11 or newer; name one with: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing the pinned packages into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r constraints.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@$(BIN)/python -m sureline.forecast.warm
	@touch $@

demo: $(READY)
	@bash examples/demo.sh $(BIN)/sureline

grid-demo: $(READY)
	@bash examples/grid-demo.sh $(BIN)/sureline

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# The tests start hundreds of processes: without its bytecode, each would compile what it imports.
test soak: export PYTHONDONTWRITEBYTECODE =

test: check
	$(BIN)/pytest -n 4 --dist worksteal -m 'not soak'

soak: export SURELINE_PATIENCE_S = 300
soak: $(READY)
	$(BIN)/pytest -m soak -s

# Resolve the pins anew from pyproject.toml; records versions and hashes, no addresses.
pins: $(READY)
	$(PYTHON) tools/pins.py

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .hypothesis
