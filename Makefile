# Everything sets itself up: Python 3.11 or newer and make are all it takes; a C compiler makes it faster.
PYTHON ?= python3
VENV ?= .venv
BUILD ?= build
BIN := $(VENV)/bin
READY := $(VENV)/.ready
COMPILED := $(BUILD)/compiled
PEERS := $(BUILD)/peers
CC_FOUND := $(shell command -v cc || command -v gcc || command -v clang)
# The compiled form stands beside the editable, interpreted one, and comes first when it is on the path.
ifneq ($(CC_FOUND),)
FASTEST := PYTHONPATH=$(COMPILED)
FASTEST_READY := $(COMPILED)/.ready
FASTEST_BENCH := --compiled $(COMPILED) --peers $(PEERS)
FASTEST_BENCH_READY := $(COMPILED)/.ready $(PEERS)/.ready
endif

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-workers demo-broker pipeline test test-all test-forms test-interpreted test-compiled test-chaos \
	test-broker test-spark test-pipeline check lint types docs wheels programs bench bench-full bench-smoke clean

help:  ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY)  ## make the virtual environment .venv, with the interpreted library in it

demo: $(READY) $(FASTEST_READY)  ## a real server with 2,000 long polls at once: about 30 s
	@$(FASTEST) $(BIN)/python examples/demo.py

# Of the programs below it needs one of these two.
demo-workers: PROGRAMS := initdb redis-server
demo-workers: PACKAGES := postgresql redis-server
demo-workers: $(READY) $(FASTEST_READY) programs  ## long polls in three workers that share a bus, on PostgreSQL or Redis: 40 s
	@$(FASTEST) $(BIN)/python examples/demo_workers.py $(ARGS)

demo-broker: $(READY) $(FASTEST_READY)  ## Kafka's own clients at work on the example's broker: 30 s
	@$(FASTEST) $(BIN)/python examples/demo_broker.py $(ARGS)

PIPELINE := $(BUILD)/pipeline
pipeline: $(READY) $(FASTEST_READY)  ## a journal of the demo's server under load, and of that a report, a model, and advice: 2 minutes
	@rm -rf $(PIPELINE)
	@$(FASTEST) $(BIN)/python examples/demo.py --seconds 60 --journal $(PIPELINE)/journal
	@$(FASTEST) $(BIN)/python -m aiopurgatory pipeline run $(PIPELINE)/journal $(PIPELINE)/out

test: check test-forms test-spark  ## lint, types, the suite against the interpreted and the compiled form, and on Spark

test-forms: test-interpreted test-compiled

# Every competitor at once takes more than a minute: make bench-smoke.
SUITE := $(BIN)/pytest -m "not spark and not chaos and not broker" -n 2 --ignore tests/benchmarks/test_smoke.py
# Servers, pages and competitors bring forms and processes of their own: once is enough.
SLOW_AND_NOT_COMPILED := tests/benchmarks tests/broker tests/bus tests/examples $(addprefix tests/web/,inspector proxies \
	test_crowds.py test_events_browser.py test_events_served.py test_servers.py) \
	$(filter-out tests/pipeline/test_replay.py,$(wildcard tests/pipeline/test_*.py))

test-interpreted: $(READY) programs  ## the suite against the interpreted form
	AIOPURGATORY_FORM=interpreted $(SUITE) $(ARGS)

ifneq ($(CC_FOUND),)
test-compiled: $(READY) $(COMPILED)/.ready  ## the suite against the compiled form
	AIOPURGATORY_FORM=compiled PYTHONPATH=$(COMPILED) $(SUITE) $(SLOW_AND_NOT_COMPILED:%=--ignore %) $(ARGS)
else
test-compiled:
	@echo "No C compiler found (cc, gcc or clang): the compiled form is not tested."
endif

# The live page, long polls and buses are tested with a real browser, real proxies and real servers. Those that are
# missing are installed by apt, as root, and not run as services: policy-rc.d forbids it now, update-rc.d at the next
# boot. Where there is no apt or no root, their tests are skipped, and say so.
PROGRAMS := chromium chromedriver nginx haproxy apache2 initdb pgbouncer redis-server openssl
PACKAGES := chromium chromium-driver fonts-dejavu-core nginx haproxy apache2-bin postgresql pgbouncer redis-server openssl
POLICY := /usr/sbin/policy-rc.d
programs: export PATH := $(PATH):/usr/sbin:$(lastword $(sort $(wildcard /usr/lib/postgresql/*/bin)))
programs: $(READY)  ## what tests run beside Python: a browser, proxies, PostgreSQL, Redis; installs what is missing
	@missing=""; \
	for program in $(PROGRAMS); do command -v $$program >/dev/null || missing="$$missing $$program"; done; \
	if [ -z "$$missing" ]; then exit; fi; \
	if [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then \
	  echo "Not tested with$$missing: not here, and there is no apt to install them with as root."; exit; \
	fi; \
	echo "Installing$$missing, to test with ..."; \
	if [ ! -e $(POLICY) ]; then \
	  trap 'rm -f $(POLICY)' EXIT; printf '#!/bin/sh\nexit 101\n' >$(POLICY); chmod +x $(POLICY); \
	fi; \
	{ apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $(PACKAGES) \
	  && for service in $$(echo $$missing | sed s/initdb/postgresql/); do \
	    [ ! -e /etc/init.d/$$service ] || update-rc.d $$service disable; done; \
	} >$(VENV)/programs.log 2>&1 || echo "Not all could be installed: see $(VENV)/programs.log."

# One process, and so one session: several would each start a JVM.
test-spark: $(READY)  ## the pipeline on a real Spark, from journal to advice, and its faults: 4 minutes
	AIOPURGATORY_FORM=interpreted $(BIN)/pytest -m "spark and not slow" tests/pipeline $(ARGS)

test-pipeline: $(READY)  ## what takes longer: a cluster whose worker is killed, 50 kills, the whole command
	AIOPURGATORY_FORM=interpreted $(BIN)/pytest -m "spark and slow" --timeout 1800 tests/pipeline $(ARGS)

test-chaos: $(READY) programs  ## buses while servers are killed, stopped and cut off: 5 minutes
	AIOPURGATORY_FORM=interpreted $(BIN)/pytest -m chaos --timeout 300 tests/bus $(ARGS)

test-broker: $(READY)  ## the broker of the examples under crowds, noise and churn: a minute
	AIOPURGATORY_FORM=interpreted $(BIN)/pytest -m broker --timeout 300 tests/broker $(ARGS)

test-all: test  ## the suite on every Python from 3.11 to 3.13 that is installed
	@for version in 3.11 3.12 3.13; do \
	  if python$$version -c '' 2>/dev/null; then \
	    $(MAKE) test-forms PYTHON=python$$version VENV=.venv-$$version BUILD=build/$$version || exit 1; \
	  else echo "Python $$version not found, not tested."; fi; \
	done

check: lint types

lint: $(READY)  ## ruff
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(READY)  ## mypy --strict and pyright
	$(BIN)/mypy
	$(BIN)/basedpyright

docs: $(READY)  ## the documentation, as pages in build/docs that load nothing from elsewhere
	@$(BIN)/zensical build --config-file .zensical.toml --clean --strict
	@! grep -rnoE '<(script|link|img|source|iframe)[^>]+(src|href)="?(https?:)?//[^ >]+' build/docs --include '*.html' \
	  || { echo "A page loads something from elsewhere."; exit 1; }

wheels: $(READY)  ## what a release uploads, into dist/: built, looked into, installed and tested on every Python found: 10 minutes
	@$(BIN)/python .ci/wheels.py $(ARGS)

bench: $(READY) $(FASTEST_BENCH_READY)  ## every design side by side, and the figures of the README: 20 to 25 minutes
	$(BIN)/python benchmarks/run.py $(FASTEST_BENCH)

bench-full: $(READY) $(FASTEST_BENCH_READY)  ## the same at every rate and size, up to 5M timers: more than an hour
	$(BIN)/python benchmarks/run.py $(FASTEST_BENCH) --full

bench-smoke: $(READY) $(FASTEST_BENCH_READY)  ## tiny: every competitor runs and agrees with the oracle
	$(BIN)/python benchmarks/run.py $(FASTEST_BENCH) --smoke
	$(BIN)/pytest tests/benchmarks

clean:  ## remove everything that was built or installed here
	rm -rf .venv .venv-* build dist .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) must be Python 3.11 or newer; try: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	@echo "Setting up $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable . --group dev
	@touch $@

# From an sdist, so that no *.so is left among the sources, where it would win over an edited .py.
$(COMPILED)/.ready: $(READY) pyproject.toml hatch_build.py $(shell find src -name '*.py')
	@echo "Compiling ..."
	@rm -rf $(COMPILED) $(BUILD)/dist
	@HATCH_BUILD_HOOKS_ENABLE=1 $(BIN)/python -m build --outdir $(BUILD)/dist . > $(VENV)/build.log 2>&1 || { cat $(VENV)/build.log; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(COMPILED) $(BUILD)/dist/*.whl
	@touch $@

# The competitors get a compiler, too: those that are data structures, and not what users write around asyncio.
$(PEERS)/.ready: $(READY) $(shell find benchmarks -name '*.py')
	@echo "Compiling the competitors ..."
	@rm -rf $(PEERS)
	@cp -r benchmarks $(PEERS)
	@cd $(PEERS) && MYPYC_OPT_LEVEL=3 $(abspath $(BIN))/mypyc --strict peers/timers*.py > mypyc.log 2>&1 || { cat mypyc.log; exit 1; }
	@touch $@
