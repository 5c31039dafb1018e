# Everything here sets up what it needs: a Python environment in .venv, and Delta's jars on the first start of Spark.

BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help setup demo dbt-demo test test-all test-unit test-dbt fuzz lint format bench bench-server bench-scheduler bench-dbt docs clean

help: ## show this list
	@echo "Headrace: an incremental lakehouse on Apache Spark"
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## make or update .venv (the other commands do this themselves)
	@.ci/setup $(if $(filter setup,$(MAKECMDGOALS)),--say)

demo: setup ## the tutorial, from raw events to fresh aggregates, in ./demo-lake
	@$(BIN)/headrace demo

dbt-demo: setup ## dbt against a server of its own, in ./demo-dbt-lake: examples/dbt_incremental
	@$(BIN)/python examples/dbt_incremental/run.py

test: setup ## the tests, in two processes, without those that take longest
	@$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not long"

test-all: setup ## all tests: an hour or more
	@$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

test-unit: setup ## the tests that need no Spark: seconds
	@$(BIN)/python -m pytest tests/unit packages/headrace/src/headrace

test-dbt: setup ## dbt's own suite, whole, with the counts of docs/dbt-conformance.md: make test-dbt WRITE=1 AREAS="basic hooks"
	@$(BIN)/python tests/dbt_conformance.py $(if $(WRITE),--write) $(AREAS)

fuzz: setup ## random queries and changes for long: make fuzz EXAMPLES=500 SEED=7, or one of them: SEED=7 ONLY=42
	@seed=$${SEED:-$$(date +%s)}; echo "SEED=$$seed"; HEADRACE_TEST_EXAMPLES=$${EXAMPLES:-100} HEADRACE_TEST_SEED=$$seed HEADRACE_TEST_ONLY=$(ONLY) \
	  $(BIN)/python -m pytest -s --timeout=0 tests/property

lint: setup ## style, types, the direction of imports, and whether the packages fit together
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m pip check --disable-pip-version-check

format: setup ## put all files into the one format
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

bench: setup ## refresh against recompute and a bare append, on TPC-H
	@$(BIN)/python -m benchmarks

bench-server: setup ## many clients of one server, next to Spark Connect: make bench-server SECONDS=20
	@$(BIN)/python -m benchmarks.server

bench-scheduler: setup ## 200 tables by the clock, and rows into a server: make bench-scheduler MINUTES=3 SECONDS=20
	@$(BIN)/python -m benchmarks.scheduler

bench-dbt: setup ## dbt build and run on a server, next to dbt-spark: make bench-dbt TABLES=50
	@$(BIN)/python -m benchmarks.dbt

docs: setup ## check that every link in the documents leads somewhere
	@$(BIN)/python .ci/check_docs.py

clean: ## remove .venv, caches and the demos' lakes
	@rm -rf .venv demo-lake demo-dbt-lake .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
