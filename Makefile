# Everything here sets up what it needs: a Python environment in .venv, and Delta's jars on the first start of Spark.

BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-unit fuzz lint format bench docs clean

help: ## show this list
	@echo "Headrace: an incremental lakehouse on Apache Spark"
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## make or update .venv (the other commands do this themselves)
	@.ci/setup

demo: setup ## the tutorial, from raw events to fresh aggregates, in ./demo-lake
	@$(BIN)/headrace demo

test: setup ## all tests, in two processes
	@$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

test-unit: setup ## the tests that need no Spark: seconds
	@$(BIN)/python -m pytest tests/unit packages/headrace/src/headrace

fuzz: setup ## random queries and changes for long: make fuzz EXAMPLES=500 SEED=7
	@seed=$${SEED:-$$(date +%s)}; echo "SEED=$$seed"; HEADRACE_TEST_EXAMPLES=$${EXAMPLES:-100} HEADRACE_TEST_SEED=$$seed \
	  $(BIN)/python -m pytest -s --timeout=0 tests/property

lint: setup ## style, types and the direction of imports
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: setup ## put all files into the one format
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

bench: setup ## refresh against recompute and a bare append, on TPC-H
	@$(BIN)/python -m benchmarks

docs: setup ## check that every link in the documents leads somewhere
	@$(BIN)/python .ci/check_docs.py

clean: ## remove .venv, caches and the demo's lake
	@rm -rf .venv demo-lake .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
