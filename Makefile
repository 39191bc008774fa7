# make serve | make install | make test | make check | make clean
PYTHON ?= python3
# A CUDA machine may want another build: make install TORCH="torch==2.13.0+cu130"
TORCH ?= torch==2.13.0
CONFIG ?=
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: install serve test check lint types imports unit clean

install: $(VENV)/.installed

serve: $(VENV)/.installed
	@$(BIN)/prove serve $(CONFIG)

test: check unit

check: lint types imports

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev
	$(BIN)/mypy

imports: $(VENV)/.installed-dev
	$(BIN)/lint-imports

# Those of services mostly wait for processes, so the others run beside them, with what CPU they leave
unit: $(VENV)/.installed-dev
	@nice $(BIN)/python -m pytest -q --ignore tests/services > $(VENV)/unit.log 2>&1 & others=$$!; \
	trap 'kill $$others' INT TERM; \
	$(BIN)/python -m pytest -q tests/services; services=$$?; \
	wait $$others; result=$$?; cat $(VENV)/unit.log; exit $$((services | result))

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# torch first and by itself: as a dependency pip would take the newest build, gigabytes of CUDA included
$(VENV)/.installed: pyproject.toml | $(BIN)/python
	@echo "installing into $(VENV) (about 600 MB, once)"
	@echo "installing $(TORCH) (a minute or more) ..."
	@$(BIN)/python -m pip install --quiet $(TORCH)
	@echo "installing prove and its other dependencies ..."
	@$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "installing the tools for tests and checks ..."
	@$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@
