# Every command a person types. PYTHON is the Python to make the environment with: 3.11 or later.
PYTHON ?= python3
# What `make build` builds for; the same as the template's Architecture and Runtime.
ARCH ?= arm64
PYTHON_VERSION ?= 3.12

# How many tests run at a time: more than there are cores, since many wait for what other processes do.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 2)

VENV := .venv
BIN := $(VENV)/bin
# What the demo needs, and all that development needs besides.
EXTRAS := sdk,local
ALL_EXTRAS := $(EXTRAS),tune,ui,dev
DEMO_STAMP := $(VENV)/.installed-demo
STAMP := $(VENV)/.installed
# Packages are installed by uv, which pip installs. Empty (make demo UV=): by pip alone.
export UV ?= uv
INSTALL := tools/install.py
# The SageMaker SDK v3, which cannot be in one environment with the v2.
VENV3 := .venv-sdk3
STAMP3 := $(VENV3)/.installed
# checkov, whose own pins fit to nobody else's (it brings another detect-secrets, too), and pip-audit.
VENV_AUDIT := .venv-audit
STAMP_AUDIT := $(VENV_AUDIT)/.installed
# MkDocs and its theme, in the versions of constraints-site.txt.
VENV_SITE := .venv-site
STAMP_SITE := $(VENV_SITE)/.installed
AUDITORS := checkov==3.3.30 pip-audit==2.10.1

# Build and check the wheel and the source distribution.
VENV_DIST := .venv-dist
STAMP_DIST := $(VENV_DIST)/.installed
DIST_TOOLS := build==1.5.1 check-wheel-contents==0.6.3 twine==6.2.0

# The quota of the local cloud's account that `make acceptance PROBE=1` fills.
PROBED_QUOTA := ml.m5.large for training job usage=2

PYTEST := $(BIN)/python -m pytest -n $(WORKERS)

export SAM_CLI_TELEMETRY := 0
# What is imported is kept compiled: otherwise each process of a test or of the demo compiles the SDK for itself.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup demo check test test-all acceptance contract matrix clients sdk-tests torture bench docs outputs site lint audit build dist release-notes constraints clean

help:  ## Say what there is
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "%-20s %s\n", $$1, $$2}'

setup: $(STAMP) $(STAMP3)  ## Make .venv with everything, and .venv-sdk3 with the SageMaker SDK v3

demo: $(DEMO_STAMP)  ## Watch four training jobs go through the queue, without an AWS account
	$(BIN)/python -m local_cloud demo

check: $(STAMP)  ## Check style and types, and run the tests of the queue itself, in a minute
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(PYTEST) tests/unit tests/contract -m 'not slow'

test: $(STAMP) $(STAMP3)  ## Run the tests, without the thorough ones [WORKERS=2]
	$(PYTEST) -m 'not thorough'

test-all: $(STAMP) $(STAMP3) $(STAMP_SITE)  ## Run all tests: also walks, planted bugs, other programs, whole documents [WORKERS=2 ARGS="--part=0/4"]
	$(PYTEST) $(ARGS)

acceptance: $(STAMP) $(STAMP3)  ## Run the acceptance suite on a local cloud, or in an account [STACK=... PRICE=0.12 PROBE=1 ARGS="--yes"]
	$(if $(STACK),,$(BIN)/python -m local_cloud exec --slots 2 $(if $(PROBE),--quota '$(PROBED_QUOTA)') --) \
	  $(BIN)/python -m tests.acceptance \
	  $(if $(STACK),--stack $(STACK)) $(if $(PRICE),--price $(PRICE)) $(if $(PROBE),--probe) $(ARGS)

contract: $(STAMP)  ## Run the store's contract on AWS's DynamoDB Local (Java and Maven), or a DynamoDB [URL=...]
	$(if $(URL),,$(BIN)/python tools/dynamodb_local.py) \
	  $(BIN)/python -m pytest tests/contract --dynamodb-url $(or $(URL),{url})

matrix: $(STAMP)  ## Test the client with the oldest and newest libraries, on each Python [ENVIRONMENTS="3.9:oldest"]
	$(BIN)/python -m tools.matrix $(ENVIRONMENTS)

clients: $(STAMP)  ## Run programs that train on SageMaker through the queue, unchanged [CLIENTS="boto3 airflow"]
	$(BIN)/python -m tools.clients --write $(CLIENTS)

sdk-tests: $(STAMP)  ## Run the SageMaker SDK's own unit tests with our session in place of its own [SOURCE=its repository]
	$(BIN)/python -m tools.sdk_tests $(SOURCE)

torture: $(STAMP)  ## Simulate failures of everything [SECONDS=300 | RUNS=100000]
	$(BIN)/python -m tests.torture walks $(if $(RUNS),--runs $(RUNS),--seconds $(or $(SECONDS),300))
	$(BIN)/python -m tests.torture walks --shared $(if $(RUNS),--runs $(RUNS),--seconds $(or $(SECONDS),300))
	$(BIN)/python -m tests.torture walks --regions $(if $(RUNS),--runs $(RUNS),--seconds $(or $(SECONDS),300))
	$(BIN)/python -m tests.torture search --deviations 2 --seconds 900
	$(BIN)/python -m tests.torture planted

bench: $(STAMP)  ## Measure planner, load and faults on real parts, in half an hour [SEEDS=10]
	$(BIN)/python benchmarks/planner.py
	$(BIN)/python benchmarks/warm_pools.py
	$(BIN)/python benchmarks/watching.py
	$(BIN)/python benchmarks/hooks.py
	$(BIN)/python benchmarks/sweep.py
	$(BIN)/python benchmarks/load.py
	$(BIN)/python benchmarks/faults.py --seeds $(or $(SEEDS),10) --hasty
	$(BIN)/python benchmarks/sharing.py
	$(BIN)/python benchmarks/shared_faults.py --seeds $(or $(SEEDS),10)

docs: $(STAMP)  ## Bring the generated parts of the pages in docs/ up to date with the code
	$(BIN)/python -m sagemaker_queue.cli.reference docs/reference/cli
	$(BIN)/python -m tools.python_reference docs/reference/python.md
	$(BIN)/python -m tools.configuration_reference docs/reference/configuration.md
	$(BIN)/python -m tools.openapi docs/openapi.yaml
	$(BIN)/python -m tools.http_reference docs/reference/http-api.md
	$(BIN)/python -m tools.module_list docs/developers/modules.md
	$(BIN)/python -m tools.policy_reference docs/reference/policy.md
	$(BIN)/python -m tools.history_reference docs/reference/history.md
	$(BIN)/python -m tools.failure_matrix
	$(BIN)/python -m tools.stack_reference docs/reference/stack.md
	$(BIN)/python -m tools.limits_reference docs/reference/limits.md

outputs: $(STAMP)  ## Type the tutorials on local clouds, and write what is printed into them [PAGES=docs/start/two-teams.md]
	$(BIN)/python -m tools.tutorials $(PAGES)

site: $(STAMP) $(STAMP_SITE)  ## Build the site of the documentation into build/site, in .venv-site
	$(BIN)/python -m tools.site

lint: $(STAMP)  ## Check style, types and the templates, by cfn-lint
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/sam validate --lint
	$(BIN)/sam validate --lint --template-file satellite.yaml
	$(BIN)/cfn-lint --include-checks I -- template.yaml satellite.yaml examples/step_functions/template.yaml

audit: $(STAMP) $(STAMP_AUDIT)  ## Check the templates, the files for secrets, and the libraries for known holes, in .venv-audit
	$(VENV_AUDIT)/bin/checkov --framework cloudformation --file template.yaml satellite.yaml examples/step_functions/template.yaml --compact --quiet --skip-download
	mkdir -p build && cp .secrets.baseline build/secrets.baseline
	$(BIN)/detect-secrets-hook --cores $(WORKERS) --baseline build/secrets.baseline $$(git ls-files ':!.secrets.baseline') \
	  || test $$? -eq 3  # something known stands in another line
	$(VENV_AUDIT)/bin/python tools/audit.py constraints.txt constraints-sdk3.txt

build: $(STAMP)  ## Build the Lambda function into .aws-sam/build [ARCH=x86_64] [PYTHON_VERSION=3.13]
	ARCH=$(ARCH) PYTHON_VERSION=$(PYTHON_VERSION) PYTHON=$(abspath $(BIN)/python) \
	  $(BIN)/sam build --parameter-overrides Architecture=$(ARCH) Runtime=python$(PYTHON_VERSION)

dist: $(STAMP) $(STAMP_DIST)  ## Build the wheel and the source distribution into dist, check them, and try the wheel
	rm -rf dist build/lib build/bdist.*
	$(VENV_DIST)/bin/python -m build --quiet --installer pip --outdir dist .
	$(VENV_DIST)/bin/twine check --strict dist/*
	$(VENV_DIST)/bin/check-wheel-contents dist/*.whl
	$(BIN)/python -m tools.wheel_trial dist

release-notes: $(STAMP)  ## Check the tag of a release, and write its changes into build/release-notes.md [TAG=v1.0.0]
	$(BIN)/python -m tools.release_notes "$(TAG)" build/release-notes.md

constraints:  ## Take the newest versions of everything into constraints.txt
	@$(call check_python)
	$(PYTHON) -m venv --clear build/constraints
	build/constraints/bin/pip install --disable-pip-version-check -e ".[$(ALL_EXTRAS)]" uv
	{ sed '/^[^#]/,$$d' constraints.txt; build/constraints/bin/pip freeze --all --exclude pip --exclude setuptools --exclude-editable; } > build/constraints.txt
	mv build/constraints.txt constraints.txt
	build/constraints/bin/pip install --disable-pip-version-check --quiet --dry-run --ignore-installed --report build/sdk3.json sagemaker-train .
	build/constraints/bin/python -m tests.sdk3.constraints build/sdk3.json constraints-sdk3.txt
	rm -rf build/constraints

clean:  ## Remove what the other commands made
	rm -rf $(VENV) $(VENV3) $(VENV_AUDIT) $(VENV_SITE) $(VENV_DIST) .aws-sam build dist *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(DEMO_STAMP): pyproject.toml constraints.txt
	@$(call make_environment,$(VENV))
	@$(BIN)/python $(INSTALL) "the SageMaker SDK v2 and the local cloud" -c constraints.txt -e ".[$(EXTRAS)]"
	@$(call use_checkout,$(BIN))
	@touch $@

$(STAMP): $(DEMO_STAMP)
	@$(BIN)/python $(INSTALL) "the tools for development" -c constraints.txt -e ".[$(ALL_EXTRAS)]"
	@touch $@

$(STAMP3): constraints-sdk3.txt pyproject.toml
	@$(call make_environment,$(VENV3))
	@$(VENV3)/bin/python $(INSTALL) "the SageMaker SDK v3" --no-deps -r constraints-sdk3.txt -e .
	@touch $@

$(STAMP_AUDIT):
	@$(call make_environment,$(VENV_AUDIT))
	@$(VENV_AUDIT)/bin/python $(INSTALL) "the auditors" $(AUDITORS)
	@touch $@

$(STAMP_SITE): constraints-site.txt
	@$(call make_environment,$(VENV_SITE))
	@$(VENV_SITE)/bin/python $(INSTALL) "the tools for the site" --no-deps -r constraints-site.txt
	@touch $@

$(STAMP_DIST):
	@$(call make_environment,$(VENV_DIST))
	@$(VENV_DIST)/bin/python $(INSTALL) "the tools for distributions" $(DIST_TOOLS)
	@touch $@

define make_environment
$(check_python)
echo "Making the environment $(1) ..."
$(PYTHON) -m venv --clear $(1)
endef

# The queue and the local cloud are no part of the package; the environment finds them here, wherever it is used.
define use_checkout
echo '$(CURDIR)' > "$$($(1)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/sagemaker-queue-checkout.pth"
endef

define check_python
$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
  || { echo "Python 3.11 or later is needed, and '$(PYTHON)' is not. Name one: make $(MAKECMDGOALS) PYTHON=python3.11" >&2; exit 1; }
endef
