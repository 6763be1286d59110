# Every target sets up what it needs. Requirements: make and Python 3.11 or newer. A C compiler makes it faster.
PYTHON ?= python3
VERSIONS := 3.11 3.12 3.13 3.14
VENV ?= .venv
BUILD ?= build
BIN := $(VENV)/bin
READY := $(VENV)/.ready
COMPILED := $(BUILD)/compiled
PEERS := $(BUILD)/peers
# Where this variable is set, each of the hundreds of processes of a run would compile the sources anew.
unexport PYTHONDONTWRITEBYTECODE
CC_FOUND := $(shell command -v cc || command -v gcc || command -v clang)
# The compiled library is a second copy beside the editable, interpreted one. It takes precedence when on the path.
ifneq ($(CC_FOUND),)
FASTEST := PYTHONPATH=$(COMPILED)
FASTEST_READY := $(COMPILED)/.ready
FASTEST_BENCH := --compiled $(COMPILED) --peers $(PEERS)
FASTEST_BENCH_READY := $(COMPILED)/.ready $(PEERS)/.ready
endif

.DEFAULT_GOAL := help
.PHONY: help setup demo pipeline test test-all test-interpreted test-compiled test-attacks test-chaos test-broker test-examples \
	test-servers test-listeners test-protocols test-spark test-sail test-pipeline test-cluster test-stress test-core test-newer check types docs wheels rehearsal programs bench clean

help:  ## show this list of targets
	@awk -F':.*## ' '/^[a-z%-]+:.*## / {sub(/%/, "NAME", $$1); printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY)  ## create the virtual environment .venv with the interpreted library: 1 to 4 minutes
	@echo "$(VENV) has the library, interpreted. Next: make demo (see it at work for 30 s), or . $(BIN)/activate"
	@echo "To change it: docs/developing.md, make check, make test (9 minutes). All commands: make"

demo: $(READY)  ## run a real server with 2,000 concurrent long polls, interpreted: 30 s
	@$(BIN)/python examples/demo.py

# Two of them need one of these programs. They are not .PHONY: make looks for no pattern rule for those.
demo-workers demo-streams: PROGRAMS := initdb redis-server
demo-workers demo-streams: PACKAGES := postgresql redis-server
demo-workers demo-streams: programs
demo-%: $(READY) $(FASTEST_READY)  ## compile, and run another demo for 40 s: demo-workers, demo-streams (a worker and the server are killed) or demo-broker
	@$(FASTEST) $(BIN)/python examples/demo_$*.py $(ARGS)

PIPELINE := $(BUILD)/pipeline
pipeline: $(READY) $(FASTEST_READY)  ## record a journal of the demo under load, and make a report, a model and advice from it: 2 minutes
	@rm -rf $(PIPELINE)
	@$(FASTEST) $(BIN)/python examples/demo.py --seconds 60 --journal $(PIPELINE)/journal
	@$(FASTEST) $(BIN)/python -m aiopurgatory pipeline run $(PIPELINE)/journal $(PIPELINE)/out

# The compiler takes one core: the checks and the docs run beside it. The make of macOS cannot keep their output apart.
# -o: a caller's own -o for the environment is not passed on.
SUBMAKE = $(MAKE) --no-print-directory -o $(READY)
test: $(READY)  ## run all checks, build the docs, and test both forms: 9 minutes
	@$(SUBMAKE) -j 2 $(if $(filter output-sync,$(.FEATURES)),--output-sync=line) $(FASTEST_READY) check docs
	@$(SUBMAKE) test-interpreted test-compiled

# Other targets: make test-attacks and make test-examples. Of the benchmarks' tests, those that run every competitor take
# minutes: pytest tests/benchmarks runs them, too.
ATTACKS := tests/web/attacks tests/web/proxies $(addprefix tests/web/test_,connected_served.py events_served.py servers.py)
EXAMPLES := tests/benchmarks tests/examples
NOT_BY_DEFAULT := $(ATTACKS) $(EXAMPLES)
SUITE := $(BIN)/pytest -m "not spark and not chaos and not servers" -n 4 --dist worksteal $(NOT_BY_DEFAULT:%=--ignore %)
# These tests choose the form themselves, start their own processes, test scripts of pages, or read the sources: once is
# enough. What is tested twice runs on both loops interpreted, and tests/web on one of them compiled.
SLOW_AND_NOT_COMPILED := tests/bus tests/pipeline tests/streams tests/testing/test_plugin.py \
	$(addprefix tests/test_,built_docs.py docs.py grammar.py layering.py readme.py release.py) \
	$(addprefix tests/web/,inspector $(addprefix test_,clients_browser.py clients_node.py logs_browser.py logs_down.py))

test-interpreted: $(READY) programs  ## test the interpreted form
	AIOPURGATORY_FORM=interpreted $(SUITE) $(ARGS)

ifneq ($(CC_FOUND),)
test-compiled: $(READY) $(COMPILED)/.ready  ## test the compiled form
	AIOPURGATORY_FORM=compiled PYTHONPATH=$(COMPILED) $(SUITE) $(SLOW_AND_NOT_COMPILED:%=--ignore %) $(ARGS)
else
test-compiled:
	@echo "No C compiler found (cc, gcc or clang): the compiled form is not tested."
endif

# The live page, long polls and buses are tested with a real browser, real proxies and real servers. Missing programs are
# installed with apt, as root, but not run as services: policy-rc.d prevents that now, update-rc.d at the next boot.
# Without apt or root, the tests that need them are skipped with a message. One by one: a package that a distribution
# does not have must not keep the others away.
PROGRAMS := chromium chromedriver nginx haproxy apache2 initdb pgbouncer redis-server openssl curl promtool
PACKAGES := chromium chromium-driver fonts-dejavu-core nginx haproxy apache2-bin postgresql pgbouncer redis-server openssl curl prometheus
POLICY := /usr/sbin/policy-rc.d
programs: export PATH := $(PATH):/usr/sbin:$(lastword $(sort $(wildcard /usr/lib/postgresql/*/bin)))
programs: $(READY)  ## install the programs that tests need, if missing: a browser, proxies, PostgreSQL, Redis
	@missing=""; \
	for program in $(PROGRAMS); do command -v $$program >/dev/null || missing="$$missing $$program"; done; \
	if [ -z "$$missing" ]; then exit; fi; \
	if [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then \
	  echo "Not tested with$$missing: not installed, and installing them takes apt and root."; exit; \
	fi; \
	echo "Installing$$missing, to test with ..."; \
	if [ ! -e $(POLICY) ]; then \
	  trap 'rm -f $(POLICY)' EXIT; printf '#!/bin/sh\nexit 101\n' >$(POLICY); chmod +x $(POLICY); \
	fi; \
	export DEBIAN_FRONTEND=noninteractive; \
	{ apt-get update -q || failed=" lists"; \
	  for package in $(PACKAGES); do \
	    apt-get install -y -q --no-install-recommends $$package || failed="$$failed $$package"; done; \
	  for service in $$(echo $$missing | sed 's/initdb/postgresql/; s/promtool/prometheus/'); do \
	    [ ! -e /etc/init.d/$$service ] || update-rc.d $$service disable; done; \
	} >$(VENV)/programs.log 2>&1; \
	[ -z "$$failed" ] || echo "Not installed:$$failed. See $(VENV)/programs.log."

# One process, because each would start a JVM of its own.
test-spark: $(READY)  ## test the pipeline and its failures on a real Spark: 15 minutes
	AIOPURGATORY_FORM=interpreted $(BIN)/pytest -m "spark and not slow" tests/pipeline $(ARGS)

# The client of Sail is older than the pipeline's PySpark.
ON_SAIL := $(addprefix tests/pipeline/test_,generate.py simulate.py cli.py promises.py rules.py sums.py report_tables.py)
test-sail: $(VENV)-sail/.ready  ## test the pipeline's functions of DataFrames on Sail, an engine without Java: a minute
	AIOPURGATORY_MASTER=sail $(VENV)-sail/bin/pytest -m "spark and not slow" $(ON_SAIL) $(ARGS)

ON_CLUSTER := tests/pipeline/test_cluster.py
test-pipeline: $(READY)  ## run the slow pipeline tests: 50 kills, the whole command
	AIOPURGATORY_FORM=interpreted $(BIN)/pytest -m "spark and slow" --timeout 1800 tests/pipeline $(ON_CLUSTER:%=--ignore %) $(ARGS)

test-cluster: $(READY)  ## test the pipeline on a master with two workers of which some are killed, and on Spark Connect: 4 to 8 minutes
	AIOPURGATORY_FORM=interpreted $(BIN)/pytest -m "spark and slow" $(ON_CLUSTER) $(ARGS)

test-attacks: $(READY) programs  ## test long polls and event streams on every real server and proxy, under hostile clients and crowds: 5 minutes
	AIOPURGATORY_FORM=interpreted $(BIN)/pytest $(ATTACKS) $(ARGS)

test-examples: $(READY) programs  ## test the examples, the demos and the benchmarks: 1 minute
	AIOPURGATORY_FORM=interpreted $(BIN)/pytest -m "not chaos" -n 3 $(EXAMPLES) \
	  $(addprefix --ignore tests/benchmarks/test_,smoke.py broker_peers.py streams.py) $(ARGS)

test-chaos: $(READY) programs  ## test buses and event logs while servers and workers are killed, stopped and cut off: 11 minutes
	AIOPURGATORY_FORM=interpreted $(BIN)/pytest -m chaos --timeout 300 tests/bus tests/streams tests/examples $(ARGS)

# Kafka clients of other languages. npm's versions are pinned in package-lock.json, the others are Debian 12's: kcat 1.7.1,
# sarama 1.22.1 on Go 1.19. The Java client 3.9.0 is part of a wheel. One that cannot be installed is not tested. Debian's Node
# is too old, so it is not installed.
CLIENTS := $(BUILD)/clients
test-broker: PROGRAMS := kcat go javac
test-broker: PACKAGES := kcat golang-go golang-github-shopify-sarama-dev default-jdk-headless
test-broker: $(READY) programs  ## test the example broker, also with clients in Java, JavaScript, C and Go: 3 minutes
	@mkdir -p $(CLIENTS) && cp -p examples/broker/tests/other_clients/* $(CLIENTS)
	@cd $(CLIENTS) && { [ node_modules/.package-lock.json -nt package-lock.json ] \
	  || npm ci --cache npm-cache --ignore-scripts --no-audit --no-fund --fetch-retries 1 --fetch-timeout 20000 >npm.log 2>&1 \
	  || echo "Not tested with kafkajs and @platformatic/kafka: npm failed. See $(CLIENTS)/npm.log."; }
	@cd $(CLIENTS) && { GO111MODULE=off GOPATH=/usr/share/gocode GOCACHE=$$PWD/go-cache go build -o sarama sarama.go >go.log 2>&1 \
	  || echo "Not tested with sarama: go failed. See $(CLIENTS)/go.log."; }
	@cd $(CLIENTS) && { [ Java.class -nt Java.java ] || sh java.sh $(abspath $(BIN))/python >java.log 2>&1 \
	  || echo "Not tested with the Java client: pip or javac failed. See $(CLIENTS)/java.log."; }
	AIOPURGATORY_FORM=interpreted $(BIN)/pytest -m "not slow" -n 3 examples/broker/tests $(ARGS)
	AIOPURGATORY_FORM=interpreted OTHER_CLIENTS=$(abspath $(CLIENTS)) $(BIN)/pytest -m slow --timeout 300 examples/broker/tests $(ARGS)

# Each package as its users install it: arq needs an older redis-py than the others. By a thread, a timeout also ends a
# test that hangs in code that is not Python's.
SERVERS := --timeout 300 --timeout-method thread
test-servers: $(VENV)-servers/.ready $(VENV)-arq/.ready programs  ## test MCP, arq, taskiq and nine frameworks on our waits: 1 minute
	$(VENV)-arq/bin/pytest $(SERVERS) tests/servers/test_arq.py $(ARGS)
	$(VENV)-servers/bin/pytest $(SERVERS) -m "not slow" tests/servers --ignore tests/servers/test_arq.py $(ARGS)

test-listeners: $(VENV)-servers/.ready programs  ## test 40 listeners of MCP while the server of their bus fails, beside the SDK's own ways: 5 minutes
	$(VENV)-servers/bin/pytest $(SERVERS) -m slow tests/servers/test_mcp.py $(ARGS)

test-protocols: PROGRAMS := redis-server
test-protocols: PACKAGES := redis-server
test-protocols: $(VENV)-protocols/.ready programs  ## test the servers of examples/protocols, and redis_lists.py, with their real clients: 2 minutes
	$(VENV)-protocols/bin/pytest -n 3 --timeout 300 tests/protocols $(ARGS)

test-stress: $(READY) $(FASTEST_READY)  ## test calls, wake one of many, with 20,000 random programs in each form: 5 minutes
	AIOPURGATORY_FORM=interpreted AIOPURGATORY_PROGRAMS=20000 $(BIN)/pytest tests/model/test_calls.py $(ARGS)
ifneq ($(CC_FOUND),)
	AIOPURGATORY_FORM=compiled AIOPURGATORY_PROGRAMS=20000 $(FASTEST) $(BIN)/pytest tests/model/test_calls.py $(ARGS)
endif

test-core: $(VENV)-wheel-test/.ready  ## test the core without any extra, as on a Python that is too new for them: 2 minutes
	$(VENV)-wheel-test/bin/pytest tests/timer tests/core tests/model tests/operations $(ARGS)

$(addprefix $(VENV)-,$(addsuffix /.ready,arq docs protocols sail servers wheel-test)): $(VENV)-%/.ready: pyproject.toml
	@echo "Setting up $(@D) ..."
	@$(PYTHON) -m venv $(@D)
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --editable . --group $*
	@touch $@

test-all: test  ## run the suite on every installed Python from 3.11 to 3.14
	@for version in $(VERSIONS); do \
	  if python$$version -c '' 2>/dev/null; then \
	    $(MAKE) test-interpreted test-compiled PYTHON=python$$version VENV=.venv-$$version BUILD=build/$$version || exit 1; \
	  else echo "Python $$version not found, not tested."; fi; \
	done

# TARGETS="test-attacks test-chaos" runs these there, and PYTHONS="3.14" on one Python. .ci/newer.sh has the rest.
test-newer:  ## run the suite on newer Pythons, Redis, Valkey and PostgreSQL, in a chroot (Debian, as root): 1.5 hours
	@.ci/newer.sh

check: $(READY)  ## run ruff, mypy --strict and basedpyright, over the Python of the pages, too, and validate the workflows
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
	$(BIN)/mypy
	$(BIN)/basedpyright
	$(BIN)/python -m tests.check_pages

types: $(READY)  ## check the types for every supported Python: 4 minutes
	@for version in $(VERSIONS); do echo "mypy for Python $$version" && $(BIN)/mypy --python-version $$version || exit 1; done

# The pages are made of text alone: they need no more than their own tools, where there is no environment yet.
DOCS := $(if $(wildcard $(READY)),$(VENV),$(VENV)-docs)
docs: $(DOCS)/.ready  ## build the documentation: open build/docs/index.html. Its pages load nothing from other sites
	@$(DOCS)/bin/zensical build --config-file .zensical.toml --clean --strict
	@$(DOCS)/bin/python docs/llms.py build/docs
	@! grep -rnoE '<(script|link|img|source|iframe)[^>]+(src|href)="?(https?:)?//[^ >]+' build/docs --include '*.html' \
	  || { echo "A page loads something from another site."; exit 1; }
	@! grep -rnoE '<p>(Args|Raises|Returns):[^<]*' build/docs/reference \
	  || { echo "A section of a docstring is not read as one."; exit 1; }

wheels: $(READY)  ## build the release files in dist/, inspect them, and test them on every installed Python: 10 minutes
	@$(BIN)/python .ci/wheels.py $(ARGS)

rehearsal: $(READY)  ## from a clean clone to all that a release needs, in build/release, and try it with each extra: 20 minutes
	@$(BIN)/python .ci/rehearse.py $(ARGS)

bench: $(READY) $(FASTEST_BENCH_READY)  ## measure all designs side by side: half an hour
	$(BIN)/python benchmarks/run.py $(FASTEST_BENCH) $(ARGS)

clean:  ## remove everything built or installed here
	rm -rf .venv .venv-* build dist .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis

# What pip does, in a few lines; all it says is in pip.log.
PROGRESS := /^(Collecting|Processing)/ && ++n % 25 == 0 {print "  found " n " packages"} \
  /^Building wheels/ {print "  installing: half of the time, most of it for PySpark"} /^failed/ {exit 1} {fflush()}
$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) must be Python 3.11 or newer; try: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	@echo "Setting up $(VENV): about 175 packages, 1 to 4 minutes ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	@{ PYTHONUNBUFFERED=1 $(BIN)/python -m pip install --disable-pip-version-check --editable . --group dev 2>&1 \
	  || echo failed; } | tee $(VENV)/pip.log | awk '$(PROGRESS)' || { cat $(VENV)/pip.log; exit 1; }
	@rm -f $(COMPILED)/.ready $(PEERS)/.ready  # they may be for another Python
	@touch $@

# Built from an sdist: a *.so left among the sources would take precedence over an edited .py.
$(COMPILED)/.ready: $(READY) pyproject.toml hatch_build.py $(shell find src -name '*.py')
	@echo "Compiling the library, after each change of it: 1 to 3 minutes ..."
	@rm -rf $(COMPILED) $(BUILD)/dist
	@{ HATCH_BUILD_HOOKS_ENABLE=1 $(BIN)/python -m build --outdir $(BUILD)/dist . 2>&1 || echo failed; } \
	  | tee $(VENV)/build.log | awk '/^  [a-z]/ {print} /^failed/ {exit 1} {fflush()}' || { cat $(VENV)/build.log; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(COMPILED) $(BUILD)/dist/*.whl
	@echo "Compiled. Which form is imported: PYTHONPATH=$(COMPILED) $(BIN)/python -c 'import aiopurgatory; print(aiopurgatory.COMPILED)'"
	@touch $@

# Competitors that are data structures are compiled, too, with the flags of hatch_build.py. Those that users write around
# asyncio are not.
PEERS_FLAGS := -fvisibility=hidden -fno-semantic-interposition -fno-plt
$(PEERS)/.ready: $(READY) $(shell find benchmarks -name '*.py')
	@echo "Compiling the competitors ..."
	@rm -rf $(PEERS) && mkdir -p $(BUILD)
	@cp -r benchmarks $(PEERS)
	@cd $(PEERS) && CFLAGS="$(PEERS_FLAGS)" MYPYC_OPT_LEVEL=3 $(abspath $(BIN))/mypyc --strict peers/old_purgatory.py \
	  > mypyc.log 2>&1 || { cat mypyc.log; exit 1; }
	@touch $@
