# Every target does its own set-up: Python 3.11 or newer and make are all that must be there.
SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help demo test prove torture check format proto kafka-wire lock peers compare compare-kafka-tools compare-takeover cluster-test clean

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
LOCK := requirements-dev.lock
PROTOS := $(sort $(wildcard proto/logbroker/v1/*.proto))
# The newest Python from 3.11 on is found; PYTHON=/path/to/python names another.
PYTHON ?=
# The tests start hundreds of processes; each would compile the sources anew, which takes longer than all else it does.
unexport PYTHONDONTWRITEBYTECODE

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(READY) ## Send a month of real flights through a broker, restart it, read them back
	@$(BIN)/logbroker demo

test: $(READY) ## Run the tests that a change needs at hand, three files at a time (ARGS="-k name" for some, ARGS="-n 0 --pdb" for a debugger)
	@$(BIN)/python -m pytest -n 3 --dist loadfile $(ARGS)

prove: $(READY) ## Run all tests (ARGS=--prove=rest for those that `make test` leaves out or shortens)
	@$(BIN)/python -m pytest -n 3 --dist loadfile --prove=all $(ARGS)

cluster-test: $(READY) ## Run the tests of gateways on a real Kafka cluster of three nodes, which needs Java and Maven
	@$(BIN)/python -m pytest -n 3 --dist loadfile --prove=all tests/cluster $(ARGS)

torture: $(READY) ## Run the long tests, hours of them; goes on where it was left (SHARD=2/8 for a part)
	@$(BIN)/python -m tests.crash.torture --shard $(or $(SHARD),1/1) $(ARGS)

check: $(READY) ## Check format, lint, types, layers, and that generated code is up to date
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	@fresh=$$(mktemp -d) && trap 'rm -rf "$$fresh"' EXIT \
	&& $(BIN)/python -m grpc_tools.protoc -I proto --python_out="$$fresh" --pyi_out="$$fresh" $(PROTOS) \
	&& for file in $(notdir $(PROTOS:.proto=)); do for kind in py pyi; do \
	     cmp "$$fresh/logbroker/v1/$${file}_pb2.$$kind" "logbroker/v1/$${file}_pb2.$$kind" \
	     || { echo "generated code is out of date: run make proto and commit logbroker/v1" >&2; exit 1; }; \
	   done; done
	@PYTHONPATH=proto/kafka $(BIN)/python -m wiregen --check && echo "generated code is up to date"

format: $(READY) ## Format, and fix what the linter can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

proto: $(READY) ## Generate logbroker/v1 from proto/
	$(BIN)/python -m grpc_tools.protoc -I proto --python_out=. --pyi_out=. $(PROTOS)

kafka-wire: $(READY) ## Generate logbroker/kafka_wire from proto/kafka/
	PYTHONPATH=proto/kafka $(BIN)/python -m wiregen

lock: $(READY) ## Resolve the newest versions that pyproject.toml allows into the lock file
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-header \
	    --no-emit-index-url --no-emit-find-links --group dev pyproject.toml --output-file $(LOCK)

peers: $(READY) ## Install what make compare measures beside logbroker, but for the servers of the system's packages
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --group compare
	@mvn --quiet --batch-mode --file compare/kafka-pom.xml dependency:copy-dependencies \
	    -DincludeScope=runtime -DoutputDirectory="$(CURDIR)/build/peers/kafka"
	@echo "The other servers: apt-get install nats-server rabbitmq-server redis-server, and do not start them"

compare: $(READY) ## Run logbroker beside its peers, as docs/COMPARISON.md does (ARGS="--peers logbroker,redis")
	@$(BIN)/python -m compare $(ARGS)

compare-kafka-tools: $(READY) ## Run Kafka's own performance tools against logbroker and Kafka, as docs/COMPARISON.md does
	@$(BIN)/python -m compare.kafka_tools $(ARGS)

compare-takeover: $(READY) ## Kill one of two gateways to a Kafka cluster, and measure when its groups go on
	@$(BIN)/python -m compare.takeover $(ARGS)

clean: ## Remove the virtual environment, caches and build products
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): $(LOCK) pyproject.toml
	@python=$$(.ci/find-python $(PYTHON)) && echo "Setting up $(VENV) with $$python, once..." && $$python -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r $(LOCK)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@
