# The two commands a newcomer needs: `make run` and `make test`. `make help` lists the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := activities classifier commands embedded service tests workflows cli.py worker.py
PIP := $(BIN)/python -m pip --disable-pip-version-check -q

.PHONY: help run test test-long check mypy pyright format bench chaos soak constraints clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

run: $(VENV)/.run ## triage the example tickets on an embedded stack
	$(BIN)/classifier triage examples/tickets.jsonl

test: $(VENV)/.dev ## run every test; starts what it needs itself
	@$(BIN)/python -m compileall -q $(SOURCES) # or each of many hundred processes would
	$(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder $(ARGS)

test-long: $(VENV)/.dev ## the few tests that take over a minute each
	$(BIN)/python -m pytest -m long $(ARGS)

check: $(VENV)/.dev ## ruff, mypy and pyright, all strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@$(MAKE) --no-print-directory -j 2 mypy pyright

mypy pyright: $(VENV)/.dev
	$(BIN)/$@

format: $(VENV)/.dev ## format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.dev ## run every benchmark; `make bench-stream` and the like run one
	$(BIN)/python -m tests.bench $(ARGS)

bench-%: $(VENV)/.dev
	$(BIN)/python -m tests.bench $* $(ARGS)

chaos: $(VENV)/.dev ## five minutes of kills, outages and bad answers, then a check of everything
	$(BIN)/python -m tests.chaos $(ARGS)

soak: $(VENV)/.dev ## ten minutes at half of the capacity; memory, connections and backlog stay flat
	$(BIN)/python -m tests.chaos.soak $(ARGS)

constraints: $(VENV)/.dev ## pin the newest versions of everything
	$(PIP) install uv
	$(BIN)/uv pip compile -q --universal --all-extras --group test --group lint --no-header --upgrade pyproject.toml -o constraints.txt

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) install -c constraints.txt -e '.[embedded,local]'
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) install -U 'pip>=25.1'
	$(PIP) install -c constraints.txt -e '.[embedded,local,chat,openai-agents,pydantic-ai,otel,serve,pii,parquet]' --group test --group lint
	@touch $@ $(VENV)/.run

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
