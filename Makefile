# Everything here works on a fresh clone: each target makes what it needs in .venv first, and is quick the second time.
#
#   make run        start a broker on this machine, data in ./millstream-data (more flags: make run ARGS="--kafka-port 9192")
#   make test       every test            make check      lint, types, layers, the table of what is done, generated code
#   make simulate   TIME_S=60             seeds of a whole broker in simulated time, as many as fit
#   make faults     ROUNDS=20 TIME_S=60   kill -9, cut connections, a full disk, fuzzed requests: longer than in the tests
#   make bench                            measured against Apache Kafka in the same run

SHELL := /bin/bash
VENV := .venv
PYTHON := $(VENV)/bin/python
INSTALLED := $(VENV)/.installed
READY := $(VENV)/.ready
CODEC := $(VENV)/.codec
CLIENTS := $(VENV)/.clients
TYPED := $(wildcard src tests bench examples scripts)

ARGS ?=
TIME_S ?= 60
ROUNDS ?= 20
# Two at a time also on bigger machines: many tests start processes of their own.
JOBS ?= 2

.PHONY: help run test check format bench faults simulate needs clean

help:
	@sed -n 's/^#  *\(make .*\)/\1/p' Makefile

run: $(INSTALLED) $(CODEC)
	@$(VENV)/bin/millstream serve --data ./millstream-data $(ARGS)

test: needs $(READY) $(CODEC) $(CLIENTS)
	$(PYTHON) -m pytest tests -n $(JOBS) --dist loadscope --max-worker-restart 0 --whole $(ARGS)

# Each check runs also when one before it failed, so that one look shows everything.
check: $(READY)
	@failed=; \
	say() { echo "+ $$*"; "$$@" || failed="$$failed $$(basename "$$1")"; }; \
	say $(VENV)/bin/ruff check .; \
	say $(VENV)/bin/ruff format --check .; \
	say $(VENV)/bin/mypy $(TYPED); \
	say $(VENV)/bin/lint-imports --no-cache; \
	say $(PYTHON) scripts/spec_coverage.py; \
	say $(PYTHON) scripts/sync.py --check; \
	say $(PYTHON) scripts/proto.py --check; \
	say $(PYTHON) scripts/wire_page.py --check; \
	say $(PYTHON) scripts/verbs_page.py --check; \
	say $(PYTHON) scripts/reference.py --check; \
	[ -z "$$failed" ] || { echo "Failed:$$failed" >&2; exit 1; }

format: $(READY)
	$(PYTHON) scripts/sync.py
	$(PYTHON) scripts/proto.py
	$(PYTHON) scripts/verbs_page.py
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

simulate: $(READY) $(CODEC)
	$(PYTHON) -m millstream.testing.simulate --seconds $(TIME_S) $(ARGS)

faults: needs $(READY) $(CODEC)
	FAULT_ROUNDS=$(ROUNDS) MILLSTREAM_FUZZ_SECONDS=$(TIME_S) \
	  $(PYTHON) -m pytest tests/faults tests/unit/broker/test_fuzz.py --timeout 0 -o faulthandler_timeout=0 $(ARGS)

bench: $(READY) $(CODEC)
	@scripts/needs bench
	$(PYTHON) -m bench $(ARGS)

needs:
	@scripts/needs test

# The environment depends on what is declared, not on when it was made: first Millstream itself, which is all that a
# broker needs, then what tests and checks use.
$(INSTALLED): pyproject.toml setup.py scripts/environment
	@scripts/needs run
	@scripts/environment $(VENV) itself
	@touch $@

$(READY): $(INSTALLED)
	@scripts/environment $(VENV) tools
	@touch $@

# A compiled codec shadows its source, so it is compiled again whenever the source changed.
$(CODEC): $(INSTALLED) setup.py $(wildcard src/millstream/records/*.py src/millstream/records/*.pxd src/millstream/sdk/producing/*.py)
	@scripts/codec $(VENV)
	@touch $@

# A download may fail once in a while; the tests should not.
$(CLIENTS): $(READY) bench/kafka/pom.xml $(wildcard bench/spark/spark-connector/* tests/interop/java/* tests/interop/node/* tests/interop/go/* tests/interop/grpc_go/* proto/millstream_api/v1/*)
	@scripts/needs test
	@echo "Fetching and building the clients that need more than this environment, which the tests drive ..."
	@for attempt in 1 2 3; do PYTHONPATH=tests:scripts $(PYTHON) -m interop.clients.fetch && break; \
	  [ $$attempt -lt 3 ] || exit 1; sleep 5; done
	@touch $@

clean:
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .ruff_cache .hypothesis
	find src -name '*.so' -delete
