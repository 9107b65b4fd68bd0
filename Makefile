# Everything starts here; `make` alone lists the targets. Needs only python3 (3.11 or newer) and make.

PYTHON ?= python3
# Processes for the tests: one more than there are cores, since some tests wait.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) + 1)')
# A file stays in one process, and files come in the order of tests/conftest.py: the longest first.
FILES := --dist loadfile --no-loadscope-reorder

BIN := .venv/bin
BENCH := .venv-bench/bin
LOWEST := .venv-lowest/bin
PIP := -m pip --disable-pip-version-check install --quiet --constraint requirements.lock

COMMA := ,
# All extras: what the tests need, and what the lock holds.
EXTRAS := test,docs,sklearn,batch,serve,cluster,redis,kafka

# The Kafka broker of the tests.
KAFKA_VERSION ?= 4.1.0
KAFKA := $(or $(PBODL_CACHE),$(XDG_CACHE_HOME),$(HOME)/.cache)/pbodl/kafka-$(KAFKA_VERSION)

# What `make fuzz` runs, and how often each.
FUZZED ?= body_json body_msgpack request events lines decoder tensors publication delta snapshot
RUNS_EACH ?= 100000

# An environment is set up again when what these files say changes, and not otherwise.
STATE := $(shell cat pyproject.toml requirements.lock | cksum | tr ' ' '-')
READY := .venv/ready-$(STATE)
RUNS := .venv/runs-$(STATE)
LOWEST_READY := .venv-lowest/ready-$(shell cat pyproject.toml requirements-lowest.lock | cksum | tr ' ' '-')
BENCH_READY := .venv-bench/ready-$(shell cat pyproject.toml requirements.lock benchmarks/requirements.txt | cksum | tr ' ' '-')

.DEFAULT_GOAL := help
.PHONY: help setup run test test-slow test-lowest test-kafka kafka fuzz check docs bench bench-peers dist lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' Makefile

setup: $(READY) ## create .venv and install the package with all that its tests need

run: $(RUNS) ## traffic, training, serving and the dashboard at http://127.0.0.1:8080; Ctrl-C stops it
	@exec $(BIN)/pbodl up

test: $(READY) ## checks, the suite, and the small tests once more as plain Python; names what it skips
	@$(MAKE) --no-print-directory --jobs=2 programs check test-plain
	$(BIN)/pytest -q -rs -n $(WORKERS) $(FILES)

.PHONY: test-plain
test-plain: $(READY)
	NUMBA_DISABLE_JIT=1 $(BIN)/pytest -q -m "nojit and not slow" $(shell grep -rl 'mark\.nojit' tests --include 'test_*.py')

test-slow: $(READY) programs ## the tests that take longer
	$(BIN)/pytest -q -m slow

test-lowest: $(LOWEST_READY) programs ## the suite with the lowest versions that pyproject.toml allows
	$(LOWEST)/pytest -q -n $(WORKERS) $(FILES)

kafka: ## fetch a Kafka broker for the tests into the cache folder; needs Java 17, Maven and a network
	@test -f $(KAFKA)/complete || { $(call install,java,default-jre-headless); $(call install,mvn,maven); rm -rf $(KAFKA); \
	mvn -q -B -f tests/streaming/kafka_pom.xml -Dkafka.version=$(KAFKA_VERSION) -DincludeScope=runtime \
		-DoutputDirectory=$(KAFKA) dependency:copy-dependencies && touch $(KAFKA)/complete; }

test-kafka: $(READY) programs kafka ## the tests with real Kafka brokers, the slow ones too
	PBODL_TEST_KAFKA=required PBODL_CHAOS_KILLS=$(or $(PBODL_CHAOS_KILLS),2) $(BIN)/pytest -q -m kafka tests

fuzz: $(READY) ## fuzz the readers of foreign bytes: guided by coverage as plain Python, then the compiled code at speed
	test -x .venv-fuzz/bin/python || { $(PYTHON) -m venv .venv-fuzz && .venv-fuzz/bin/python -m pip -q install atheris; }
	for target in $(FUZZED); do \
		mkdir -p build/fuzz/$$target; \
		NUMBA_DISABLE_JIT=1 PYTHONPATH=.:$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') \
		.venv-fuzz/bin/python -m tests.fuzz.guided $$target build/fuzz/$$target tests/fuzz/corpus/$$target \
			-runs=$(RUNS_EACH) -max_len=4000 -timeout=30 -artifact_prefix=build/fuzz/$$target- -print_final_stats=1 || exit 1; \
	done
	$(BIN)/python -m tests.fuzz.mutated --runs $(RUNS_EACH)

check: $(READY) docs ## ruff, mypy, import-linter, and the documentation
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(READY) ## build the documentation as a site in build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

bench: $(BENCH_READY) ## measure speed beside PyTorch and Vowpal Wabbit
	$(BENCH)/python -m benchmarks.speed

bench-peers: $(BENCH_READY) ## compare with today's tools on 1M rows, and write docs/lab/peers.md
	$(BENCH)/python -m benchmarks.peers

dist: $(READY) ## build the source distribution, and the wheel with the machine code of all kernels, into dist/
	rm -rf dist build/kernels
	@mkdir -p build/kernels
	PBODL_CACHE=build/kernels $(BIN)/pbodl warmup all
	@trap 'rm -rf pbodl/machine_code' EXIT && cp -r build/kernels/pbodl/machine-code pbodl/machine_code && chmod -R a+rX pbodl/machine_code && \
	$(BIN)/python -m build --no-isolation --sdist --wheel --outdir dist .

lock: ## write requirements.lock from the newest releases, and requirements-lowest.lock from the lowest allowed
	@$(PYTHON) -m venv --clear build/lock
	build/lock/bin/python -m pip --disable-pip-version-check install --quiet '.[$(EXTRAS)]'
	@echo '# The tested set of versions; refresh it with `make lock`.' > build/requirements.lock
	build/lock/bin/python -m pip --disable-pip-version-check freeze --exclude pbodl >> build/requirements.lock
	@mv build/requirements.lock requirements.lock
	@# Tools of the tests may ask for newer releases of our own dependencies: our bounds override theirs.
	build/lock/bin/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"], sep="\n")' > build/bounds
	build/lock/bin/python -m pip --disable-pip-version-check install --quiet uv
	@echo '# The lowest versions that pyproject.toml allows, on Python 3.11, as `make test-lowest` tests them; refresh it with `make lock`.' > build/lowest.lock
	build/lock/bin/uv pip compile --quiet --no-header --no-annotate --resolution lowest-direct --python-version 3.11 \
		--override build/bounds $(addprefix --extra ,$(subst $(COMMA), ,$(EXTRAS))) pyproject.toml >> build/lowest.lock
	@mv build/lowest.lock requirements-lowest.lock
	@rm -rf build/lock

clean: ## remove the environments, caches and builds
	rm -rf .venv .venv-bench .venv-lowest .venv-fuzz build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find pbodl tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): | python-version
	$(PYTHON) -m venv .venv
	$(BIN)/python $(PIP) --editable '.[serve]'
	@# Kernels are compiled while the rest is installed.
	$(BIN)/pbodl warmup all & $(BIN)/python $(PIP) --editable '.[$(EXTRAS)]' && wait $$!
	@rm -f .venv/ready-* .venv/runs-* && touch $@ $(RUNS)

# `make run` needs only a part of it, and nobody waits for the rest to see the page.
$(RUNS): | python-version
	$(PYTHON) -m venv .venv
	$(BIN)/python $(PIP) --editable '.[serve]'
	@rm -f .venv/runs-* && touch $@

# The lowest versions need not suit each other's metadata, so the lock is installed as it is.
$(LOWEST_READY): | python-version
	$(PYTHON) -m venv --clear .venv-lowest
	$(LOWEST)/python -m pip --disable-pip-version-check install --quiet --no-deps --requirement requirements-lowest.lock
	$(LOWEST)/python -m pip --disable-pip-version-check install --quiet --no-deps --editable .
	@touch $@

$(BENCH_READY): | python-version
	$(PYTHON) -m venv .venv-bench
	$(BENCH)/python $(PIP) --requirement benchmarks/requirements.txt --editable .
	@rm -f .venv-bench/ready-* && touch $@

# A browser and a broker for the tests, from Debian's packages where they are missing; elsewhere install them by hand.
PROGRAMS := chromium redis-server
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
# $(call install,PROGRAM,PACKAGE): the Debian package of a program that is missing.
install = command -v $(1) > /dev/null || ! command -v apt-get > /dev/null || { $(SUDO) apt-get update -qq && \
	DEBIAN_FRONTEND=noninteractive $(SUDO) apt-get install -y -qq --no-install-recommends $(2) > /dev/null; }
.PHONY: programs
programs:
	@set -e; $(foreach program,$(PROGRAMS),$(call install,$(program),$(program));)

.PHONY: python-version
python-version:
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit(f"PBODL needs Python 3.11 or newer, and \
	$(PYTHON) is {v.major}.{v.minor}. Name a newer one: make setup PYTHON=python3.12")'
