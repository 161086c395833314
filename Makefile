# The two commands are `make demo` and `make test`; `make help` lists the rest.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
SEEDS ?= 20
KILLS ?= 10
FUZZ ?= 200
WORKERS ?= 4
BROKER_WORKERS ?= 6
PYTEST := $(BIN)/pytest -q -n $(WORKERS) --dist loadgroup
QUICK := (smoke or not (acceptance or slow))

# Tests start hundreds of Python processes: each would compile the package again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help example-postgres example-s3 example-kafka demo demo-year test test-rest test-pythons test-brokers test-exhaustive test-all setup-brokers check check-types check-style check-words check-layout check-imports check-reference check-docs reference docs soak soak-streams soak-control soak-ordering soak-pipeline soak-hostile soak-brokers soak-objects simulate-year bench-ordering bench-streams bench-patterns bench-control bench-brokers fuzz-api record-contract lock clean setup-run setup-dev

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: setup-run ## set up, then run the flights demo on January
	@$(BIN)/headrace demo

demo-year: setup-run ## run the flights demo on the whole year
	@$(BIN)/headrace demo --year

test: setup-dev check ## set up, then run the checks and the quick tests, WORKERS (4) at a time; HEADRACE_TEST_SEED=random for another seed
	@env -u TESTS_REPEAT_END $(PYTEST) -m "$(QUICK) and not exhaustive"

test-rest: setup-dev ## run the tests that `make test` omits, but those on brokers: acceptance, chaos, clusters, browsers
	@$(PYTEST) -m "not $(QUICK) and not brokers and not exhaustive"

test-pythons: setup-dev ## run the unit tests on the newest version of Python
	@env -u TESTS_REPEAT_END $(BIN)/python scripts/test_pythons.py 3.13

setup-brokers: setup-dev ## install the brokers of the tests below .brokers: Kafka, Pulsar, ElasticMQ, Apicurio, Iceberg's REST catalog and Hadoop through Maven, kfake, NATS, pstest, versitygw and fake-gcs-server through Go; moto and the fake of Service Bus through pip; Azurite through npm if Node.js is there
	@scripts/brokers/kafka.sh setup
	@scripts/brokers/kfake.sh setup
	@scripts/brokers/elasticmq.sh setup
	@scripts/brokers/apicurio.sh setup
	@scripts/brokers/iceberg-rest.sh setup
	@scripts/brokers/versitygw.sh setup
	@scripts/brokers/fake-gcs.sh setup
	@scripts/brokers/azurite.sh setup
	@scripts/brokers/hadoop.sh setup
	@scripts/brokers/postgresql.sh setup
	@scripts/brokers/moto.sh setup
	@scripts/brokers/service-bus.sh setup
	@scripts/brokers/nats.sh setup
	@scripts/brokers/pubsub.sh setup
	@scripts/brokers/pulsar.sh setup
	@scripts/brokers/rabbitmq.sh setup
	@scripts/brokers/redis.sh setup
	@scripts/brokers/mosquitto.sh setup

# The groups begin in the order of their files: by number of tests, the long ones would begin last.
test-brokers: setup-brokers ## install what is missing, then run the tests on real brokers, BROKER_WORKERS (6) at a time, because most wait
	@HEADRACE_REQUIRE_BROKERS=1 $(PYTEST) -n $(BROKER_WORKERS) --no-loadscope-reorder -m "brokers and not exhaustive"

test-exhaustive: setup-brokers ## run what `make test-all` omits: repetitions on other servers, storage and combinations, the unit tests on Python 3.12, and the contract and integration tests on 3.13
	@HEADRACE_REQUIRE_BROKERS=1 $(PYTEST) -n $(BROKER_WORKERS) -m exhaustive
	@$(BIN)/python scripts/test_pythons.py 3.12
	@$(BIN)/python scripts/test_pythons.py --whole 3.13

# Other tests wait a part of the time, in which those on other Pythons compute, and the brokers are installed. The low priority leaves the
# processors to tests that wait for processes. `test-brokers` repeats an installation that failed.
test-all: SHELL := bash
test-all: test ## run all checks and all tests, those on other Pythons beside the rest
	@set -o pipefail; run() { nice -n "$$2" $(MAKE) --no-print-directory "$$1" 2>&1 | while IFS= read -r line; do echo "$${1#test-}: $$line"; done; }; \
	(run test-pythons 10) & pythons=$$!; \
	(run setup-brokers 10) & setup=$$!; \
	run test-rest 0; rest=$$?; \
	wait $$setup; \
	run test-brokers 0; brokers=$$?; \
	wait $$pythons && exit $$((rest | brokers))

check: setup-dev ## check types, style, words, layout, import contracts, reference pages and docs, two at a time
	@$(MAKE) --no-print-directory --output-sync --jobs 2 check-types check-style check-words check-layout check-imports check-reference check-docs

check-types:
	@$(BIN)/mypy
	@$(BIN)/mypy examples/postgres-outbox/*.py
	@$(BIN)/mypy examples/s3-landing/*.py

check-style:
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .

check-words:
	@$(BIN)/python scripts/check_words.py

check-layout:
	@$(BIN)/python scripts/check_layout.py

check-imports:
	@$(BIN)/lint-imports --no-logo

check-reference:
	@$(BIN)/python scripts/build_reference.py --check

check-docs:
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

reference: setup-dev ## write the reference pages from code
	@$(BIN)/python scripts/build_reference.py

docs: setup-dev ## serve the documentation on loopback
	@$(BIN)/mkdocs serve

soak: setup-dev ## run the demo with SEEDS seeds, then KILLS times with each process killed once at a random moment
	@$(BIN)/python scripts/soak.py --seeds $(SEEDS) --kills $(KILLS)

soak-streams: setup-dev ## test shared streams with 200 kills, 100,000 events during API failures, and each scenario repeatedly; SOAK="--seed 1"
	@$(BIN)/python scripts/soak_streams.py $(SOAK)

soak-control: setup-dev ## inject kills, pauses, network cuts and clock errors into triggerers and API servers on PostgreSQL; SOAK="--seed 1 --runs 20"
	@$(BIN)/python scripts/soak_control.py $(SOAK)

soak-pipeline: setup-dev ## kill a pipeline with 1,000,000 events 20 times before, during and after its commit; SOAK="--seed 1 --events 100000"
	@$(BIN)/python scripts/soak_pipeline.py $(SOAK)

soak-hostile: setup-dev ## run malformed data, files, triggers and producers beside healthy triggers for 30 minutes; SOAK="--seed 1 --minutes 5"
	@$(BIN)/python scripts/soak_hostile.py $(SOAK)

soak-brokers: setup-brokers ## read 1,000,000 messages of each broker, and check that the triggerer does not grow; SOAK="--broker kafka --messages 100000"
	@$(BIN)/python scripts/soak_brokers.py $(SOAK)

soak-objects: setup-dev ## read 1,000,000 objects of an S3 server with a triggerer that is killed 4 times; SOAK="--objects 20000"
	@scripts/brokers/versitygw.sh setup
	@$(BIN)/python scripts/soak_objects.py $(SOAK)

simulate-year: setup-dev ## simulate days of 1 GB, 10,000 files and 864,000 task runs with retention, and check that nothing grows; YEAR="--days 30 --database postgresql"
	@$(BIN)/python scripts/simulate_year.py $(YEAR)

soak-ordering: setup-dev ## run 10,000 generated histories in each ordering store; ORDERING="--home sqlite --seed 7"
	@$(BIN)/python scripts/soak_ordering.py $(ORDERING)

record-contract: setup-dev ## record the contract of the execution API, after an intended change
	@$(BIN)/python scripts/record_contract.py

fuzz-api: setup-dev ## send FUZZ (200) valid and nearly valid requests to each call of the API
	@for database in sqlite postgresql; do \
	  FUZZ_DATABASE=$$database FUZZ_EXAMPLES=$(FUZZ) $(BIN)/pytest -q --timeout 3600 tests/integration/execution_api/test_fuzz.py || exit 1; done

bench-streams: setup-dev .venv-bench/.set-up ## compare shared streams with Airflow's, as JSON; BENCH="--long" for the long memory run
	@$(BIN)/python -m bench.streams $(BENCH)

bench-patterns: setup-dev .venv-bench/.set-up ## measure event patterns beside one test for each watch and Airflow's filters, as JSON; BENCH="--only mix --watches 100"
	@$(BIN)/python -m bench.patterns --peer $(BENCH)

bench-control: setup-dev ## measure the API under load on both databases, leases, takeovers and 20,000 idle triggers, as JSON; BENCH="--only stored"
	@$(BIN)/python -m bench.control $(BENCH)

bench-brokers: setup-dev .venv-bench/.set-up ## measure brokers to stored and advanced events beside bare clients, and Kafka beside Airflow, as JSON; BENCH="--broker kafka nats --messages 100000"
	@$(BIN)/python -m bench.brokers $(BENCH)

.venv-bench/.set-up: requirements/bench-airflow.lock | setup-dev
	@echo "· Making an environment for Airflow in .venv-bench …" >&2
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python .venv-bench
	@$(BIN)/uv pip sync --quiet --require-hashes --python .venv-bench/bin/python $<
	@touch $@

bench-ordering: setup-dev .venv-bench-prefect/.set-up ## compare causal ordering with Prefect's, as JSON; BENCH="--only core sql"
	@$(BIN)/python -m bench.ordering $(BENCH)

.venv-bench-prefect/.set-up: requirements/bench-prefect.lock | setup-dev
	@echo "· Making an environment for Prefect in .venv-bench-prefect …" >&2
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python .venv-bench-prefect
	@$(BIN)/uv pip sync --quiet --require-hashes --python .venv-bench-prefect/bin/python $<
	@touch $@

example-kafka: setup-dev ## run examples/kafka-orders on a Kafka server of its own: rows of a table from the messages of a topic
	@$(BIN)/python examples/kafka-orders/run.py

example-s3: setup-dev ## run examples/s3-landing on an S3 server of its own: rows of a table from objects of a bucket
	@$(BIN)/python examples/s3-landing/run.py

example-postgres: setup-dev ## run examples/postgres-outbox on a PostgreSQL server of its own: rows of a table from an outbox
	@$(BIN)/python examples/postgres-outbox/run.py

COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header
EXTRAS := --extra server --extra postgres --extra spark --extra delta --extra demo
DEV_EXTRAS := $(EXTRAS) --extra iceberg --extra kafka --extra kinesis --extra sqs --extra objects --extra gcs --extra azure --extra redis --extra mqtt --extra nats --extra pulsar --extra rabbitmq --extra pubsub --extra schema-registry --extra service-bus

lock: setup-dev ## resolve and pin the dependencies of pyproject.toml again
	@$(COMPILE) pyproject.toml requirements/build.in $(DEV_EXTRAS) --group dev -o requirements/dev.lock
	@$(COMPILE) pyproject.toml requirements/build.in $(EXTRAS) -c requirements/dev.lock -o requirements/run.lock
	@$(COMPILE) requirements/build.in -c requirements/dev.lock -o requirements/build.lock
	@$(COMPILE) requirements/java.in -o requirements/java.lock
	@$(COMPILE) requirements/moto.in -o requirements/moto.lock
	@$(COMPILE) requirements/service-bus.in -o requirements/service-bus.lock

clean: ## remove the output of the demo, the tests and the docs
	@rm -rf headrace-demo site .mypy_cache .ruff_cache .pytest_cache .hypothesis spark-warehouse

setup-run: ## install Headrace into .venv, without development tools
	@$(PYTHON) scripts/bootstrap.py run

setup-dev:
	@$(PYTHON) scripts/bootstrap.py dev
