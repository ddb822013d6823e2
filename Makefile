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
MADE := $(VENV)/.made
INSTALLED := $(VENV)/.installed
READY := $(VENV)/.ready
CODEC := $(VENV)/.codec
PROGRAMS := $(VENV)/.programs
CLIENTS := $(VENV)/.clients
TYPED := $(wildcard src tests bench examples scripts)

ARGS ?=
TIME_S ?= 60
ROUNDS ?= 20
# Many tests wait for processes that they start, so three at a time keep two cores busy; more would start too many.
JOBS ?= 3

.PHONY: help run test check format bench faults simulate needs programs clean

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
	say $(PYTHON) scripts/configuration_page.py --check; \
	[ -z "$$failed" ] || { echo "Failed:$$failed" >&2; exit 1; }

format: $(READY)
	$(PYTHON) scripts/sync.py
	$(PYTHON) scripts/proto.py
	$(PYTHON) scripts/verbs_page.py
	$(PYTHON) scripts/configuration_page.py
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

programs: $(CODEC) $(CLIENTS)

# The environment depends on what is declared, not on when it was made: first an empty one, then Millstream itself, which
# is all that a broker needs, then what tests and checks use.
$(MADE): scripts/environment
	@scripts/environment $(VENV) empty
	@touch $@

$(INSTALLED): $(MADE) pyproject.toml setup.py scripts/environment
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

# The foreign programs that the tests drive. Most need nothing that is installed into this environment, so `.ci/run` builds
# them while pip installs. A download may fail once in a while; the tests should not.
SOURCES := bench/kafka/pom.xml $(wildcard bench/spark/spark-connector/* tests/interop/java/* tests/interop/node/* tests/interop/go/*)

fetch = echo "Fetching and building $(1) ..."; for attempt in 1 2 3; do \
	  PYTHONPATH=.:tests:scripts $(PYTHON) -m interop.clients.fetch $(2) && break; [ $$attempt -lt 3 ] || exit 1; sleep 5; done

$(PROGRAMS): $(MADE) $(SOURCES)
	@scripts/needs test
	@$(call fetch,the clients in other languages and the other Spark,alone)
	@touch $@

$(CLIENTS): $(PROGRAMS) $(READY) $(wildcard tests/interop/grpc_go/* proto/millstream_api/v1/*)
	@$(call fetch,the client that is generated from the contract of gRPC,generated)
	@touch $@

clean:
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .ruff_cache .hypothesis
	find src -name '*.so' -delete
