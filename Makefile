# Everything runs from .venv, which scripts/setup creates: with the dependencies of Fiveways, and for all targets but `run`
# and `serve` with the development tools.
PYTHON ?= python3
WORKERS ?= auto
SECONDS ?= 60
INPUTS ?= 0
MINUTES ?= 60
PROTOCOL ?=
FLAGS ?=

RUNS := .venv/.runs
READY := .venv/.ready
RUN := .venv/bin/python -m
RPC := src/fiveways/protocols/mqtt_rpc/rpc
WEB := src/fiveways/web
TYPED := $(wildcard src tests chaos fuzz benchmarks examples)
COMPILE := $(RUN) uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-strip-extras --no-emit-index-url \
	--custom-compile-command 'make lock' $(LOCK_FLAGS) pyproject.toml

.DEFAULT_GOAL := help
.PHONY: help run serve test programs bare style format types unit coverage fuzz fuzz-hub chaos soak attacks chaos-net bench-codecs bench-hub bench-journal bench-mqtt bench-nq bench-pipeline bench-store docs images proto web lowest lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(RUNS) ## set up .venv, then run the demo for a minute; FLAGS='--keep' keeps the hub running
	@scripts/programs run
	.venv/bin/fiveways demo $(FLAGS)

serve: $(RUNS) ## run a hub with examples/app.py; FLAGS='--port 7600'
	.venv/bin/fiveways serve --app examples.app:app $(FLAGS)

# The tests wait for half of their time, so mypy runs beside them. Its output follows theirs.
test: programs style ## set up .venv, then run style checks, type checks and all tests
	@log=$$(mktemp); $(MAKE) --no-print-directory types >$$log 2>&1 & types=$$!; trap 'kill $$types' INT TERM; \
	$(MAKE) --no-print-directory unit; unit=$$?; \
	wait $$types; types=$$?; cat $$log; rm -f $$log; exit $$((unit | types))

programs:
	@scripts/programs test

bare: ## run `make run` and `make test` in a minimal Debian 12, as root and as a user; needs root; FLAGS='--only root-run'
	@scripts/bare $(FLAGS)

style: $(READY) ## check rules and formatting with ruff
	$(RUN) ruff check
	$(RUN) ruff format --check

format: $(READY) ## format the code, and fix what ruff can fix
	$(RUN) ruff check --fix
	$(RUN) ruff format

types: $(READY) ## check types with mypy --strict
	$(RUN) mypy --strict $(TYPED)

unit: programs $(READY) ## run all tests; WORKERS=0 runs them in one process
	$(RUN) pytest -n $(WORKERS)

coverage: programs $(READY) ## run all tests, and report uncovered lines and branches
	$(RUN) pytest -n $(WORKERS) --cov --cov-report=term

fuzz: $(READY) ## send malformed input to PROTOCOL=name, or to all in turn, for SECONDS=60 or INPUTS=n
	PYTHONPATH=src $(RUN) fuzz.fuzz_protocol --seconds $(SECONDS) --inputs $(INPUTS) $(PROTOCOL)

fuzz-hub: $(READY) ## send frames of several peers to a hub with store and restarts, for SECONDS=60 or INPUTS=n; FLAGS='--processes 2 --seed 7'
	PYTHONPATH=src $(RUN) fuzz.fuzz_hub --seconds $(if $(filter-out 0,$(INPUTS)),0,$(SECONDS)) --inputs $(INPUTS) $(FLAGS)

chaos: $(READY) ## kill the hub 100 times under load, and count requests, jobs and values; FLAGS='--kills 5 --without journal'
	PYTHONPATH=src $(RUN) chaos $(FLAGS)

chaos-net: $(READY) ## run clients over a network with loss, delay and partitions; needs root; FLAGS='--scenario loss-20 --seed 2'
	PYTHONPATH=src $(RUN) chaos.net $(FLAGS)

soak: $(READY) ## run mixed traffic for MINUTES=60, and check that memory, descriptors and threads do not grow; FLAGS='--seed 2'
	PYTHONPATH=src $(RUN) chaos.soak --minutes $(MINUTES) $(FLAGS)

attacks: $(READY) ## measure the cost of hostile peers for the hub and a healthy peer; FLAGS='--only sessions --scale 0.1'
	PYTHONPATH=src $(RUN) chaos.attacks $(FLAGS)

bench-codecs: $(READY) ## measure decoding, encoding and routing of a call in each protocol, beside msgspec
	.venv/bin/python benchmarks/bench_codecs.py

bench-hub: $(READY) ## measure the hub beside a bare relay, nats-server and Crossbar, about ten minutes; FLAGS=--quick
	$(RUN) benchmarks.hub $(FLAGS)

bench-nq: $(READY) ## measure NQ requests with and without the store, beside plain calls; FLAGS='--quick'
	$(RUN) benchmarks.nq $(FLAGS)

bench-journal: $(READY) ## measure routed calls with a journal, beside a hub without; FLAGS='--quick'
	$(RUN) benchmarks.journal $(FLAGS)

bench-mqtt: programs $(READY) ## measure calls over MQTT through each broker, beside a bare echo; FLAGS='--quick'
	$(RUN) benchmarks.mqtt $(FLAGS)

bench-pipeline: $(READY) ## measure the pipeline on 10 million frames: Spark beside DuckDB, all tables, growth, the stream; FLAGS='--quick'
	$(RUN) benchmarks.pipeline $(FLAGS)

bench-store: $(READY) ## measure the durable store beside a bare SQLite loop; FLAGS='--quick'
	$(RUN) benchmarks.store $(FLAGS)

docs: $(READY) ## write the generated pages: configuration, metrics, tables and API from the code, the matrix from a test run
	$(RUN) fiveways.settings.docs > docs/configuration.md.new && mv docs/configuration.md.new docs/configuration.md
	$(RUN) fiveways.runtime.metric_families > docs/metrics.md.new && mv docs/metrics.md.new docs/metrics.md
	$(RUN) fiveways.pipeline.tables > docs/tables.md.new && mv docs/tables.md.new docs/tables.md
	$(RUN) scripts.api_page > docs/api.md.new && mv docs/api.md.new docs/api.md
	$(RUN) tests.conformance.bridges.matrix_page > docs/matrix.md.new && mv docs/matrix.md.new docs/matrix.md

images: $(READY) ## take the pictures of the README: the dashboard during the demo, and its report
	.venv/bin/python scripts/images.py docs/images

proto: $(READY) ## generate rpc_pb2.py and rpc_pb2.pyi from rpc.proto
	$(RUN) grpc_tools.protoc --proto_path=src --descriptor_set_out=.venv/rpc.binpb --mypy_out=quiet:src \
		--plugin=protoc-gen-mypy=.venv/bin/protoc-gen-mypy $(RPC).proto
	.venv/bin/python scripts/message_classes.py < .venv/rpc.binpb > $(RPC)_pb2.py.new && mv $(RPC)_pb2.py.new $(RPC)_pb2.py

web: $(READY) ## bundle web/client into web/fiveways.js; its tables are generated from the Python modules
	PYTHONPATH=src $(RUN) scripts.javascript_tables > $(WEB)/client/tables.js.new && mv $(WEB)/client/tables.js.new $(WEB)/client/tables.js
	PYTHONPATH=src $(RUN) scripts.javascript_bundle $(WEB)/client/index.js > $(WEB)/fiveways.js.new && mv $(WEB)/fiveways.js.new $(WEB)/fiveways.js

lowest: $(READY) ## test the client and its transports with the lowest version of each requirement
	rm -rf .cache/lowest
	$(RUN) uv venv --quiet --python .venv/bin/python .cache/lowest
	$(RUN) uv pip install --quiet --python .cache/lowest/bin/python --resolution lowest-direct --editable '.[hub]'
	$(RUN) uv pip freeze --quiet --exclude-editable --python .cache/lowest/bin/python > .cache/lowest/versions.txt
	$(RUN) uv pip install --quiet --python .cache/lowest/bin/python --constraint .cache/lowest/versions.txt \
		cbor2 hypothesis paho-mqtt prometheus-client pytest pytest-xdist
	.cache/lowest/bin/python -m pytest -n $(WORKERS) tests/integration/transports tests/unit/transports \
		tests/integration/client tests/unit/client tests/integration/runtime/test_http_port.py \
		tests/unit/protocols/mqtt_rpc/test_frames.py tests/integration/packaging/test_client_install.py

lock: $(READY) ## write the lock files; LOCK_FLAGS=--upgrade takes newer versions
	$(COMPILE) --extra hub --output-file requirements.lock
	$(COMPILE) --extra hub --extra pipeline --constraint requirements.lock --output-file requirements-pipeline.lock
	$(COMPILE) --extra all --group dev --constraint requirements-pipeline.lock --output-file requirements-dev.lock

clean: ## remove caches and build products, but not .venv
	rm -rf build dist .coverage* .hypothesis .mypy_cache .pytest_cache .ruff_cache src/*.egg-info
	find src tests $(wildcard chaos fuzz benchmarks) -name __pycache__ -type d -prune -exec rm -rf {} +

$(RUNS): requirements-pipeline.lock pyproject.toml scripts/setup scripts/steps.sh
	@PYTHON='$(PYTHON)' scripts/setup run

$(READY): requirements-dev.lock pyproject.toml scripts/setup scripts/steps.sh
	@PYTHON='$(PYTHON)' scripts/setup dev
