# `make up` serves on this machine, `make test` proves that it works. Both need Python 3.11
# or newer, make and a package index, and install all other requirements into .venv.

PYTHON ?= python3
VENV ?= .venv
# One more than two cores: tests with a platform wait more than they work.
TEST_WORKERS ?= 3
PYTEST_ARGS ?=
BENCH_ARGS ?=
UV ?= uv
LOCK_ARGS ?=

BIN := $(VENV)/bin
PYTEST = $(BIN)/python -m pytest -n $(TEST_WORKERS) --dist loadfile --no-loadscope-reorder \
	--max-worker-restart=0
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input

.DEFAULT_GOAL := help
.PHONY: help up cluster dev install install-dev install-locked lock lock-lines test test-all test-beyond test-stores test-nightly test-times test-clients wheel test-wheel test-convert site check format hooks bench bench-peers bench-usage bench-gateway docs models clean
.NOTPARALLEL:

# First the lines for users, marked by `##`, and then those for developers, by `#-`.
help: ## Show this list
	@echo "To use Vinery:"
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' Makefile
	@echo
	@echo "To work on it:"
	@awk 'BEGIN {FS = ":.*#- "} /^[a-z-]+:.*#- / {printf "  make %-14s %s\n", $$1, $$2}' Makefile

up: install ## Start everything and serve the reference chat model
	@exec $(BIN)/python -m vinery_platform.cli up --end-with-parent

cluster: install ## Try several hosts: three on this machine, with PostgreSQL, Redis and Ray
	$(PIP) install --quiet --editable ".[cluster]"
	@exec docker/cluster.sh $(BIN)/python

dev: install-dev #- Start everything, and restart it when code or templates change
	@exec $(BIN)/python -m vinery_platform.cli up --reload --end-with-parent

install: $(VENV)/runtime.stamp ## Install what `make up` needs

install-dev: $(VENV)/dev.stamp #- Install what `make test` and `make check` need, too

install-locked: | $(VENV)/bin/python ## Install the versions of requirements.lock, and nothing without its hash
	@test "$$(uname -s)" = Linux || { echo "vinery: requirements.lock is for Linux; use make install" >&2; exit 2; }
	$(PIP) install --require-hashes --requirement requirements.lock
	$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $(VENV)/runtime.stamp

# Needs uv (https://docs.astral.sh/uv/). LOCK_ARGS=--upgrade takes new versions.
lock: #- Write requirements.lock, with hashes from the package index
	$(UV) pip compile pyproject.toml --extra build --universal --python-version 3.11 \
		--generate-hashes --no-annotate --no-header --quiet \
		--default-index https://pypi.org/simple $(LOCK_ARGS) --output-file requirements.lock

LINES := serving/vinery_serving/models/convert/lines
lock-lines: #- Write the hashes of the exporter's packages, after a change of lines.toml; needs uv
	$(BIN)/python -c "import tomllib; t = tomllib.load(open('$(LINES).toml', 'rb')); \
	print(*sorted({*t['packages'], *(p for l in t['lines'].values() for p in l['packages'])}), sep='\n')" | \
	while read -r package; do echo "$$package" | $(UV) pip compile - --no-deps --generate-hashes \
		--python-version 3.11 --no-annotate --no-header --quiet \
		--default-index https://pypi.org/simple | tr -s ' \\\n' ' ' && echo; done | \
		sed 's/ $$//' > $(LINES).lock

# Without bytecode, every worker would compile all tests, and every started process all code.
test test-all test-beyond test-stores test-nightly test-times: export PYTHONDONTWRITEBYTECODE :=
test: install-dev #- Test all but what needs the whole platform, a browser or much of the real engine
	@$(PYTEST) -m "not (live or system) or smoke" $(PYTEST_ARGS)

test-all: install-dev #- Run the other tests, too: real models, the whole platform, browsers, attacks
	@$(PYTEST) $(PYTEST_ARGS)

test-beyond: install-dev #- Run what test-all has beyond test
	@$(PYTEST) -m "(live or system) and not smoke" $(PYTEST_ARGS)

test-stores: install-dev #- Run what can differ between stores on PostgreSQL and Redis, with two web processes
	@VINERY_TEST_SCALED=1 $(PYTEST) -m stores $(PYTEST_ARGS)

test-nightly: install-dev #- Run whole tables and products, and ten times the drawn examples; installs Ray
	$(PIP) install --quiet --editable ".[cluster]"
	@VINERY_TEST_EXAMPLES=10 $(PYTEST) --timeout=3000 -o faulthandler_timeout=3300 $(PYTEST_ARGS) \
		$$(find tests -name "nightly_*.py") $$(grep -rlE "hypothesis|tests\.examples" tests --include="test_*.py")

test-times: install-dev #- Run all tests, and show where their time goes
	@mkdir -p build
	@$(PYTEST) --junitxml=build/test-times.xml -o junit_duration_report=total $(PYTEST_ARGS) || true
	@$(BIN)/python -m tests.times build/test-times.xml

wheel: | $(VENV)/bin/python ## Build the wheel into dist
	@rm -rf dist
	$(PIP) wheel --quiet --no-deps --wheel-dir dist .

test-wheel: export PYTHONDONTWRITEBYTECODE :=
test-wheel: install-dev wheel ## Install the wheel into an empty environment, and use it as a newcomer
	@VINERY_TEST_WHEEL=$$(echo dist/*.whl) $(BIN)/python -m pytest tests/installed $(PYTEST_ARGS)

# The environment of the exporter has torch, which only conversions need. It stays in build/home.
test-convert: export PYTHONDONTWRITEBYTECODE :=
test-convert: export VINERY_HOME := $(CURDIR)/build/home
test-convert: install-dev ## Install the exporter of models, and convert small ones with it
	@mkdir -p $(VINERY_HOME)
	@$(BIN)/python -m vinery_platform.cli convert make 5.0
	@VINERY_TEST_CONVERT_ENVIRONMENT=$(VINERY_HOME)/environments/5.0 \
		$(BIN)/python -m pytest tests/models/convert/test_real_conversion.py $(PYTEST_ARGS)

# OpenAI's client for JavaScript and frameworks for agents, in build/clients.
CLIENTS := build/clients
test-clients: export PYTHONDONTWRITEBYTECODE :=
test-clients: install-dev #- Install other clients with pip and npm, and test the API with them
	@mkdir -p $(CLIENTS)
	@cp tests/clients/package.json $(CLIENTS)
	@npm install --prefix $(CLIENTS) --no-audit --no-fund --silent
	@test -x $(CLIENTS)/venv/bin/python || $(PYTHON) -m venv $(CLIENTS)/venv
	@$(CLIENTS)/venv/bin/pip install --quiet --requirement tests/clients/requirements.txt
	@VINERY_TEST_CLIENTS=$(CLIENTS) $(BIN)/python -m pytest tests/clients $(PYTEST_ARGS)

site: install-dev ## Build the documentation site into build/site
	$(BIN)/mkdocs build --strict --quiet

# Tools that load Django's settings need a home folder; this one serves nothing.
check: export VINERY_HOME := $(CURDIR)/build/home
check: install-dev #- Lint, check types, imports, migrations and deployment settings
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/python -m vinery_platform.cli prepare
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/hadolint docker/Dockerfile
	$(BIN)/python manage.py makemigrations --check --dry-run
	VINERY_PUBLIC_URL=https://vinery.example $(BIN)/python manage.py check --deploy --fail-level WARNING

format: install-dev #- Format the code and repair what the linter can
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

hooks: install-dev #- Run the quick checks before each commit
	$(BIN)/pre-commit install

bench: install-dev #- Measure, and write docs/performance.md; BENCH_ARGS go to the benchmark
	$(BIN)/python -m benchmarks --draw $(BENCH_ARGS)

bench-peers: install-dev #- Install other servers into the cache, and measure Vinery beside them; BENCH_ARGS as above
	$(BIN)/python -m benchmarks.peers --draw $(BENCH_ARGS)

bench-usage: install-dev #- Measure reports over ten million requests; BENCH_ARGS as above
	$(BIN)/python -m benchmarks.usage_reports $(BENCH_ARGS)

bench-gateway: install-dev #- Measure what keys and limits cost a request; BENCH_ARGS as above
	$(BIN)/python -m benchmarks.gateway $(BENCH_ARGS)

docs: install-dev #- Write the documents that are made from the code
	$(BIN)/python -m docs

models: #- Train the reference models anew, which takes hours
	models/reproduce.sh

clean: ## Delete what is installed and built, but not the home folder
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

# The stamps are renewed when the dependencies may have changed. pip's own output is long:
# it goes to a log, and what takes time is shown; after a failure, also the reason.
define pip_install
	@echo "vinery: installing into $(VENV); the first time takes a minute or two"
	@{ $(PIP) install --editable '$(1)' 2>&1; echo "pip ended with $$?"; } | tee $(VENV)/install.log \
		| awk '/^pip ended with /{status = $$4; next} \
			/^ *Downloading .* MB|^Installing collected/{print "  " substr($$0, 1, 100); fflush()} \
			END{exit status}' \
		|| { status=$$?; awk -f platform/install_reason.awk $(VENV)/install.log >&2; exit $$status; }
	@touch $@
endef

$(VENV)/runtime.stamp: pyproject.toml | $(VENV)/bin/python
	$(call pip_install,.)

$(VENV)/dev.stamp: pyproject.toml | $(VENV)/bin/python
	$(call pip_install,.[dev])
	@touch $(VENV)/runtime.stamp

$(VENV)/bin/python:
	@command -v $(PYTHON) >/dev/null || { \
		echo "vinery: there is no $(PYTHON). Install Python 3.11 or newer, or set PYTHON=..." >&2; \
		exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 || { \
		echo "vinery: Python 3.11 or newer is needed, this is $$($(PYTHON) -V 2>&1). Set PYTHON to another one: make PYTHON=python3.12 ..." >&2; \
		exit 2; }
	@$(PYTHON) -m venv $(VENV) >/dev/null || { \
		echo "vinery: $(PYTHON) cannot make a virtual environment. On Debian: apt-get install python3-venv" >&2; \
		rm -rf $(VENV); exit 2; }
