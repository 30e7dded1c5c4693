# Every command a person types. PYTHON is the Python to make the environment with: 3.11 or later.
PYTHON ?= python3
# What `make build` builds for; the same as the template's Architecture and Runtime.
ARCH ?= arm64
PYTHON_VERSION ?= 3.12

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
EXTRAS := sdk,local,dev
# The SageMaker SDK v3, which cannot be in one environment with the v2.
VENV3 := .venv-sdk3
STAMP3 := $(VENV3)/.installed

export SAM_CLI_TELEMETRY := 0

.DEFAULT_GOAL := help
.PHONY: help setup demo test torture bench docs lint build constraints clean

help:  ## Say what there is
	@sed -nE 's/^([a-z]+):[^#]*## (.*)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "%-20s %s\n", $$1, $$2}'

setup: $(STAMP) $(STAMP3)  ## Make .venv with everything, and .venv-sdk3 with the SageMaker SDK v3

demo: $(STAMP)  ## Watch four training jobs go through the queue, without an AWS account
	$(BIN)/python -m local_cloud demo

test: $(STAMP) $(STAMP3)  ## Run all tests
	$(BIN)/python -m pytest

torture: $(STAMP)  ## Simulate failures of everything [SECONDS=300 | RUNS=100000]
	$(BIN)/python -m tests.torture walks $(if $(RUNS),--runs $(RUNS),--seconds $(or $(SECONDS),300))
	$(BIN)/python -m tests.torture search --deviations 2 --seconds 900
	$(BIN)/python -m tests.torture planted

bench: $(STAMP)  ## Measure planner, load and faults on real parts, in half an hour [SEEDS=10]
	$(BIN)/python benchmarks/planner.py
	$(BIN)/python benchmarks/load.py
	$(BIN)/python benchmarks/faults.py --seeds $(or $(SEEDS),10) --hasty

docs: $(STAMP)  ## Bring docs/cli.md and docs/openapi.yaml up to date with the code
	$(BIN)/python -m sagemaker_queue.cli.reference docs/cli.md
	$(BIN)/python -m api_contract.openapi docs/openapi.yaml

lint: $(STAMP)  ## Check style, types and the template
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/sam validate --lint

build: $(STAMP)  ## Build the Lambda function into .aws-sam/build [ARCH=x86_64] [PYTHON_VERSION=3.13]
	ARCH=$(ARCH) PYTHON_VERSION=$(PYTHON_VERSION) PYTHON=$(abspath $(BIN)/python) \
	  $(BIN)/sam build --parameter-overrides Architecture=$(ARCH) Runtime=python$(PYTHON_VERSION)

constraints:  ## Take the newest versions of everything into constraints.txt
	@$(call check_python)
	$(PYTHON) -m venv --clear build/constraints
	build/constraints/bin/pip install --disable-pip-version-check -e ".[$(EXTRAS)]"
	{ sed '/^[^#]/,$$d' constraints.txt; build/constraints/bin/pip freeze --all --exclude pip --exclude setuptools --exclude-editable; } > build/constraints.txt
	mv build/constraints.txt constraints.txt
	build/constraints/bin/pip install --disable-pip-version-check --quiet --dry-run --ignore-installed --report build/sdk3.json sagemaker-train msgspec tabulate
	build/constraints/bin/python -m tests.sdk3.constraints build/sdk3.json constraints-sdk3.txt
	rm -rf build/constraints

clean:  ## Remove what the other commands made
	rm -rf $(VENV) $(VENV3) .aws-sam build *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): pyproject.toml constraints.txt
	@$(call check_python)
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[$(EXTRAS)]"
	@touch $@

$(STAMP3): constraints-sdk3.txt
	@$(call check_python)
	$(PYTHON) -m venv --clear $(VENV3)
	$(VENV3)/bin/pip install --quiet --disable-pip-version-check --no-deps -r constraints-sdk3.txt
	@touch $@

define check_python
$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
  || { echo "Python 3.11 or later is needed, and '$(PYTHON)' is not. Name one: make $(MAKECMDGOALS) PYTHON=python3.11" >&2; exit 1; }
endef
