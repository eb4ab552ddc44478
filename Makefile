# The two commands: `make run` shows the twin at work, `make test` runs everything that must hold.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

PROMETHEUS := $(VENV)/.prometheus

DOCS := $(VENV)/.docs

.PHONY: run test nightly lint fmt bench docs kubebench kernels clean

run: $(STAMP)
	$(BIN)/tidegate simulate

# `make test SEED=7` draws the examples of properties that seed 7 gives.
test: lint kubebench kernels $(PROMETHEUS)
	$(BIN)/pytest -n auto --dist worksteal $(if $(SEED),--hypothesis-seed=$(SEED))

nightly: kernels
	$(BIN)/python tests/nightly.py --decisions 1000000

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tests/lengths.py

# The documentation site, in build/site. A warning, such as a link that leads nowhere, is an error.
docs: $(DOCS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# A Kubernetes control plane for the tests: built from source once (minutes), and then there for good.
kubebench: $(STAMP)
	PYTHONPATH=tests $(BIN)/python -m kubebench

# Kernels are compiled once, so that no test waits for the compiler.
kernels: $(STAMP)
	$(BIN)/python -m tidegate.deploy.precompile

fmt: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP)
	$(BIN)/python bench/openb.py --data ../shared/traces/openb --all
	$(BIN)/python bench/muri.py --data ../shared/traces/muri_philly --all
	$(BIN)/python bench/scale.py --nodes 10000 --jobs 1000000

$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable '.[all]' --group dev
	touch $@

$(DOCS): $(STAMP)
	$(BIN)/python -m pip install --quiet --group docs
	touch $@

# A real Prometheus for the tests: Debian's package, unpacked and not installed, so that no service is started.
# Where it cannot be had, its tests are skipped and say so.
$(PROMETHEUS): $(STAMP)
	{ command -v prometheus && command -v promtool || tests/fetch_prometheus.sh $(VENV)/prometheus; } > /dev/null \
	  && touch $@ || echo "prometheus is not there: its tests are skipped; apt-get install prometheus"

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
