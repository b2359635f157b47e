# The front door. `make demo` and `make test` create what they need.
PYTHON ?= python3
PYTEST_ARGS ?=
FUZZ_SECONDS ?= 60
SBOM ?= build/sbom.json

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-header --no-annotate --no-emit-index-url --no-emit-find-links

.DEFAULT_GOAL := help
.PHONY: help venv demo test survive bench bench-quick check check-style check-types check-imports fuzz sbom audit fmt lock clean

help: ## show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(STAMP) ## create .venv with everything that the other targets need

# A half-made .venv of an interrupted run has no stamp and is made anew. The locked pip comes first, which is much faster
# than that of an older Python; Python compiles what is used when it is first used.
$(STAMP): pyproject.toml requirements/build.txt requirements/dev.txt
	@test -x $(BIN)/python && test -f $@ || { \
		$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
			|| { echo "Python 3.11 or newer is needed: make PYTHON=python3.12"; exit 1; }; \
		echo "creating $(VENV) (about a minute, once)"; $(PYTHON) -m venv --clear $(VENV); }
	@$(PIP) --require-hashes -r requirements/build.txt
	@$(PIP) --require-hashes --no-compile -r requirements/dev.txt
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

demo: $(STAMP) ## the whole main job on this machine: jobs finish, webhooks arrive
	@$(BIN)/webhookd demo $(DEMO_ARGS)

test: $(STAMP) ## every test that this machine can run (PYTEST_ARGS="-k name" for some)
	@$(BIN)/python -m pytest -n 3 --dist loadgroup $(PYTEST_ARGS)

survive: $(STAMP) ## faults under load with real processes, at length (needs java and mvn; PYTEST_ARGS="-k name")
	@$(BIN)/python -m pytest tests/survive -m survive $(PYTEST_ARGS)

bench: $(STAMP) ## P1 to P11 (needs nginx; about an hour; BENCH_ARGS="--only P1")
	@$(BIN)/python -m tests.bench $(BENCH_ARGS)

bench-quick: $(STAMP) ## the bench in small, under three minutes
	@$(BIN)/python -m tests.bench --quick $(BENCH_ARGS)

check: check-style check-types check-imports ## linters, types, import direction

check-style: $(STAMP)
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet .

check-types: $(STAMP)
	@$(BIN)/mypy --no-error-summary

check-imports: $(STAMP)
	@report=$$($(BIN)/lint-imports --no-logo 2>&1) || { echo "$$report"; exit 1; }

fuzz: $(STAMP) ## coverage-guided fuzzing, FUZZ_SECONDS=60 a harness
	@for name in urls answers events bodies; do \
		echo "$$name"; $(BIN)/python -m tests.fuzz $$name $(FUZZ_SECONDS) || exit 1; done

sbom: $(STAMP) ## build/sbom.json: CycloneDX, from the lock of what the image runs
	@mkdir -p $(dir $(SBOM))
	@$(BIN)/cyclonedx-py requirements requirements/image.txt --pyproject pyproject.toml --output-reproducible $(SBOM_ARGS) \
		--output-format JSON --output-file $(SBOM)

# Fails, rather than passing for lack of an answer, when the advisory service cannot be reached or skips a package.
audit: $(STAMP) ## are locked versions known to be vulnerable? (needs the network)
	@for lock in runtime image build dev; do \
		echo "requirements/$$lock.txt"; \
		$(BIN)/pip-audit --strict --require-hashes --disable-pip --requirement requirements/$$lock.txt || exit 1; done

fmt: $(STAMP) ## format, and repair what can be repaired
	@$(BIN)/ruff check --quiet --fix . || true
	@$(BIN)/ruff format --quiet .

lock: $(STAMP) ## resolve the lock files anew (LOCK_ARGS=--upgrade for newer versions)
	@$(COMPILE) $(LOCK_ARGS) requirements/build.in -o requirements/build.txt
	@$(COMPILE) $(LOCK_ARGS) pyproject.toml -o requirements/runtime.txt
	@$(COMPILE) $(LOCK_ARGS) pyproject.toml --extra otel --constraint requirements/runtime.txt -o requirements/image.txt
	@$(COMPILE) $(LOCK_ARGS) pyproject.toml --extra embedded --extra otel --extra dev \
		--constraint requirements/image.txt --constraint requirements/build.txt -o requirements/dev.txt

clean: ## remove what the targets made
	@rm -rf $(VENV) .cache .coverage .coverage.* .mypy_cache .pytest_cache .ruff_cache .import_linter_cache *.egg-info build dist
