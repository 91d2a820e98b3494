# `make help` lists the targets. Each does only what is not done yet: what is installed is remembered in .venv/stamps.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/bash
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
MODEL := models/SmolLM2-135M-Instruct.Q4_1.gguf
SITE := build/site
TVM := build/tvm-venv
PEERS := build/peers

BIN := .venv/bin
STAMPS := .venv/stamps
DEBIAN := packaging/setup/debian.sh
# The script and not `python -m pytest`: the folder packaging/ must not come first on Python's path.
PYTEST := $(BIN)/pytest
PYTHON_SOURCES := $(shell find compiler packaging -name '*.py' -o -name '*.jinja' 2>/dev/null)
PAGE_SOURCES := $(wildcard web/*.js web/*.html web/*.css web/*.svg web/*.webmanifest packaging/vm/*.cpp packaging/vm/*.h)

.PHONY: help setup demo test test-fast test-firefox lint format bench bench-relax bench-wasm clean test-setup vm \
        system-build system-vulkan system-test system-firefox

help: ## Show this list
	@echo "webrelax: a language model as a static site. Targets:"
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' Makefile

setup: $(STAMPS)/native vm web/vendor/jinja.js ## Make .venv/bin/webrelax ready, with the page's libraries and vm.wasm
	@echo "setup: done; $(BIN)/webrelax --help says what it can do"

demo: setup $(SITE)/models.json ## Build the site of a small model and serve it on localhost (PORT=N: there)
	@echo "demo: serving $(SITE); open the address below in a browser with WebGPU"
	@$(BIN)/webrelax serve $(SITE) $(if $(PORT),--port $(PORT))

test: test-setup ## Set up what the tests need and run them all (Firefox: test-firefox)
	@echo "test: everything but Firefox"
	@$(PYTEST) -m "not firefox" tests e2e

test-fast: setup $(STAMPS)/test ## Run the tests that take seconds and no browser
	@echo "test-fast: without slow tests and browsers"
	@$(PYTEST) -m "not slow and not e2e and not firefox" tests

test-firefox: test-setup system-firefox ## Run the tests in Firefox
	@echo "test-firefox: over WebDriver BiDi, with WebGPU in software"
	@$(PYTEST) -m firefox tests e2e

lint: $(STAMPS)/test web/vendor/jinja.js | build/types/webrelax ## Check style and types of the Python and the JavaScript
	@echo "lint: ruff, mypy, tsc"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy -p webrelax.compiler -p webrelax.packaging
	@$(BIN)/mypy conftest.py $(wildcard tests e2e bench examples)
	@npx --no-install tsc -p web

format: $(STAMPS)/test ## Format the Python and mend what ruff can mend
	@echo "format: ruff"
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

bench: test-setup $(SITE)/models.json ## Measure the page in Chromium
	@echo "bench: the page in Chromium, rendering in software unless a GPU is there"
	@$(BIN)/python bench/browser.py $(SITE)

bench-relax: $(STAMPS)/native system-vulkan $(TVM)/installed ## Measure the compiler against Apache TVM's Relax
	@echo "bench-relax: one model through both compilers (some minutes)"
	@$(BIN)/python bench/versus_relax.py --tvm $(TVM)/bin/python

bench-wasm: test-setup $(SITE)/models.json $(PEERS)/onnx/exported $(PEERS)/native ## Measure the CPU target against its peers
	@echo "bench-wasm: the model in webrelax, wllama and onnxruntime-web, in turns (a quarter of an hour)"
	@$(BIN)/python bench/versus_wasm_peers.py --site $(SITE)

clean: ## Remove what was built; .venv, node_modules and models stay
	@echo "clean: removing build/, web/vendor/, web/vm.wasm and caches"
	@rm -rf build web/vendor web/vm.wasm .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@find compiler packaging web tests e2e bench -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

# --- what the targets above share -----------------------------------------------------------------------------------

test-setup: setup system-test $(MODEL)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "setup: Python 3.11 or newer is needed; name one with: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || $(DEBIAN) python3-venv
	@echo "setup: making .venv"
	@$(PYTHON) -m venv .venv

$(STAMPS)/native: pyproject.toml | $(BIN)/python
	@echo "setup: installing webrelax into .venv"
	@$(BIN)/pip install --quiet --editable '.[native]'
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/test: pyproject.toml $(STAMPS)/native
	@echo "setup: installing what the tests need into .venv (PyTorch is large: some minutes)"
	@$(BIN)/pip install --quiet --editable '.[native,test,lint]'
	@touch $@

# mypy needs the link: see pyproject.toml.
build/types/webrelax:
	@mkdir -p build/types && ln -sfn ../.. $@

node_modules/.package-lock.json: package.json package-lock.json
	@node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' 2>/dev/null || \
		{ echo "setup: Node.js 20 or newer is needed (found: $$(node --version 2>/dev/null || echo none))" >&2; exit 1; }
	@echo "setup: installing the page's libraries and TypeScript into node_modules"
	@npm ci --silent --no-audit --no-fund
	@touch $@

# Self-contained ES modules; named .js because some static hosts serve .mjs with a type that browsers refuse.
web/vendor/jinja.js: node_modules/.package-lock.json
	@echo "setup: copying the page's libraries into web/vendor"
	@mkdir -p web/vendor
	@for library in tokenizers:dist/tokenizers.min.mjs jinja:dist/index.js; do \
		name=$${library%%:*} && from=node_modules/@huggingface/$$name && \
		cp $$from/LICENSE web/vendor/$$name.LICENSE.txt && \
		echo "export * from \"@huggingface/$$name\";" > web/vendor/$$name.d.ts && \
		cp $$from/$${library#*:} web/vendor/$$name.js && touch web/vendor/$$name.js || exit 1; \
	done

vm: system-build $(STAMPS)/native
	@[ -e web/vm.wasm ] || echo "setup: compiling the virtual machine to web/vm.wasm"
	@$(BIN)/python -P -m webrelax.packaging.vm

$(MODEL): | $(STAMPS)/native
	@echo "setup: fetching $(MODEL) (93 MB)"
	@$(BIN)/python -P -m webrelax.packaging.models smollm2 -o models
	@touch $@

$(SITE)/models.json: $(MODEL) $(PYTHON_SOURCES) $(PAGE_SOURCES) web/vendor/jinja.js | setup
	@echo "demo: compiling $(MODEL) into $(SITE)"
	@$(BIN)/webrelax build $(MODEL) -o $(SITE) --force
	@touch $@

# The requirements of one of pyproject.toml's extras; where an environment's packages lie.
requirements = $$($(BIN)/python -c 'import sys, tomllib; \
	print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"][sys.argv[1]])' $(1))
site_packages = $(1)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'

# TVM has an environment of its own: neither webrelax nor its tests need it.
$(TVM)/installed: pyproject.toml | $(BIN)/python
	@echo "bench-relax: installing Apache TVM into $(TVM)"
	@$(PYTHON) -m venv $(TVM)
	@$(TVM)/bin/pip install --quiet $(call requirements,relax)
	@touch $@

# So have the peers of the CPU target; it finds PyTorch, which is large, in the project's.
$(PEERS)/installed: pyproject.toml bench/wasm_peers/package.json bench/wasm_peers/package-lock.json | $(STAMPS)/test
	@echo "bench-wasm: installing wllama, onnxruntime-web and what exports a model for it into $(PEERS)"
	@mkdir -p $(PEERS) && cp bench/wasm_peers/package*.json $(PEERS)
	@cd $(PEERS) && npm ci --silent --no-audit --no-fund --ignore-scripts
	@$(BIN)/python -m venv $(PEERS)/venv
	@$(call site_packages,$(BIN)) >"$$($(call site_packages,$(PEERS)/venv/bin))/webrelax_torch.pth"
	@$(PEERS)/venv/bin/pip install --quiet $(call requirements,wasm-peers)
	@touch $@

$(PEERS)/onnx/exported: bench/wasm_peers/export_onnx.py $(MODEL) | $(PEERS)/installed
	@echo "bench-wasm: exporting $(MODEL) for onnxruntime-web (a minute)"
	@$(PEERS)/venv/bin/python bench/wasm_peers/export_onnx.py $(MODEL) $(@D) >$(PEERS)/export.log 2>&1 || \
		{ tail -n 20 $(PEERS)/export.log >&2; exit 1; }
	@touch $@

# For AVX2, whatever else this processor has. The comparison goes on without it where there is no C++ compiler.
$(PEERS)/native: pyproject.toml | $(PEERS)/installed
	@echo "bench-wasm: compiling llama.cpp (ten minutes)"
	@if CMAKE_ARGS=-DGGML_NATIVE=OFF nice $(PEERS)/venv/bin/pip install --quiet --no-cache-dir \
		$(call requirements,wasm-peers-native); then touch $@; \
		else echo "bench-wasm: llama.cpp could not be compiled" >&2; fi

system-build: $(STAMPS)/relaxed
	@$(DEBIAN) emcc=emscripten

# Relaxed SIMD, for Debian's emcc is too old for it. Tried once: where there are no such packages, sites go without.
$(STAMPS)/relaxed: | $(BIN)/python
	@$(DEBIAN) emcc=emscripten
	@$(DEBIAN) --optional clang-22=clang-22 wasm-ld-22=lld-22
	@mkdir -p $(STAMPS) && touch $@

# A software driver, for where there is no GPU (Chromium brings its own).
system-vulkan:
	@$(DEBIAN) mesa-vulkan-drivers

# Ubuntu's Chromium and Firefox are snaps, which cannot be driven: there Playwright fetches the one, and WEBRELAX_FIREFOX
# names the other.
system-test: system-vulkan $(STAMPS)/test
	@if [ -n "$$WEBRELAX_CHROMIUM" ] || [ -e $(STAMPS)/chromium ]; then :; \
	elif grep -qs '^ID=ubuntu' /etc/os-release && ! command -v google-chrome >/dev/null; then \
		echo "setup: installing Playwright's Chromium" && \
		$(BIN)/playwright install --with-deps chromium && touch $(STAMPS)/chromium; \
	else $(DEBIAN) google-chrome=chromium; fi

system-firefox:
	@[ -n "$$WEBRELAX_FIREFOX" ] || $(DEBIAN) firefox-esr=firefox-esr
