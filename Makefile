# `make help` lists the targets. Two of them are all that a fresh machine needs: `make demo` and `make test`.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup check test test-fast demo demo-kafka up bench bench-quick campaign lock clean

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
# Where bytecode is not kept, every process compiles every module anew: more than half of what a command costs.
unexport PYTHONDONTWRITEBYTECODE
UV_VERSION := 0.13.8

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

setup: $(READY) ## Make .venv from the locked requirements, fetch the pinned jars, build the launch profile

$(READY): requirements.txt pyproject.toml include/sluice/jars.toml include/demo/kafka/broker_jars.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; set PYTHON=")'
	@test -x .uv/bin/uv || { $(PYTHON) -m venv .uv && .uv/bin/pip install --quiet --no-deps --require-hashes --requirement requirements-uv.txt; }
	@echo "making .venv from requirements.txt (a minute or two the first time)"
	@.uv/bin/uv venv --quiet --allow-existing --python $(PYTHON) .venv
	@.uv/bin/uv pip sync --quiet --compile-bytecode --python $(BIN)/python --require-hashes requirements.txt
	@.uv/bin/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@$(BIN)/sluice jars fetch
	@PYTHONPATH=include $(BIN)/python -m demo.kafka.broker
	@echo "building the launch profile (a minute the first time)"
	@$(BIN)/sluice profile show --json | grep -q '"usable": true' || $(BIN)/sluice profile build
	@touch $@

check: setup ## Lint, check the format and the types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: setup ## Run every test, Spark and Airflow included (about 50 minutes on 2 cores)
	$(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder

test-fast: setup ## Run the tests that need no JVM and no Airflow (seconds)
	$(BIN)/python -m pytest -m "not spark and not airflow"

demo: setup ## Run the main job on real flights through Airflow, and compare it with DuckDB (3 to 5 minutes on 2 cores)
	PYTHONPATH=include $(BIN)/python -m demo

demo-kafka: setup ## Stream flights through a real Kafka into Delta, and compare it with DuckDB (2 minutes on 2 cores)
	PYTHONPATH=include $(BIN)/python -m demo.kafka

up: setup ## Start Airflow with the example DAGs, and print its URL and login (Ctrl-C ends it)
	PYTHONPATH=include $(BIN)/python -m demo.up

bench: setup ## Measure the benchmarks, as ratios side by side
	PYTHONPATH=include $(BIN)/python -m benchmarks

bench-quick: setup ## Measure what starts cost, side by side (8 minutes on 2 cores)
	PYTHONPATH=include $(BIN)/python -m benchmarks.quick

campaign: setup ## Run the long series of kills and random cases
	HYPOTHESIS_PROFILE=campaign SLUICE_KILLS=10 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder \
		tests/faults tests/unit/planning tests/unit/running tests/unit/runs $$(grep -rl 'from tests.campaign import' tests/airflow tests/kafka tests/spark)

lock: setup ## Resolve the requirements anew
	.uv/bin/uv pip compile --quiet --universal --python-version 3.11 --all-extras --generate-hashes \
		--custom-compile-command "make lock" --output-file requirements.txt pyproject.toml
	{ echo "# uv, which resolves and installs the other requirements; \`make lock\` writes this file."; \
		echo uv==$(UV_VERSION) | .uv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		--no-header --no-annotate -; } > requirements-uv.new && mv requirements-uv.new requirements-uv.txt

clean: ## Remove what the demo and `make up` left
	rm -rf var data
