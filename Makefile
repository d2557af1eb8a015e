# The same targets for people and for CI. ARGS goes to the command: make serve ARGS="--port 5000".
PYTHON ?= python3
ARGS ?=

# Hundreds of processes of the suite would compile all sources again, and pytest rewrite all of its tests.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
LITELLM := .venv-litellm/bin
VLLM := .venv-vllm/bin
NODE := tests/clients/node
# uv where it is there, since it takes a quarter of the time; pip where it is not, or where only pip knows the machine's
# own index, proxy and certificates.
UV ?= $(shell command -v uv)
install = { [ -n "$(UV)" ] && $(UV) pip install --quiet --no-deps --python $(1)/python $(2) 2>/dev/null; } || \
	$(1)/python -m pip install --quiet --disable-pip-version-check --no-deps $(2)
HASHED := --require-hashes
# A plain path to the sources, instead of an import hook that costs every start some milliseconds.
OURSELVES := --no-build-isolation --config-settings editable_mode=compat --editable .
LOCK := $(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-emit-find-links \
	--universal --python-version 3.11 --custom-compile-command 'make lock'

# Files of tests run side by side: one process for each core, and one more, since some wait for servers.
SIDE_BY_SIDE = -n $(shell expr $$(nproc 2>/dev/null || echo 2) + 1) --dist loadfile --no-loadscope-reorder

.PHONY: help serve test test-nightly test-vllm demo docs check bench priors lock lock-vllm litellm-test node-test clean

help: ## print these targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1|\2/p' Makefile | awk -F'|' '{ printf "%-18s %s\n", $$1, $$2 }'

serve: .venv/.runtime ## start the gateway with its embedded model on http://127.0.0.1:4100
	@$(BIN)/lowpass serve $(ARGS)

test: .venv/.dev .venv-litellm/.installed ## run the suite (but for `check`), and beside it LiteLLM's adapter in an environment of its own
	@log=$$(mktemp); $(LITELLM)/python -m pytest tests/adapters/test_litellm.py >$$log 2>&1 & litellm=$$!; \
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) --ignore tests/architecture $(ARGS); status=$$?; \
	wait $$litellm || { cat $$log; status=1; }; rm $$log; exit $$status

test-nightly: .venv/.dev ## run what takes long: 12,000 requests against the policy, full property runs, kill loops, benches
	LOWPASS_INVARIANT_RUNS=12000 $(BIN)/python -m pytest -m "nightly or hypothesis" --hypothesis-profile many \
		$(SIDE_BY_SIDE) --timeout 3600 $(ARGS)

test-vllm: .venv/.dev .venv-vllm/.installed ## run the tests of vLLM's wire against vLLM itself, on the CPU
	LOWPASS_VLLM_PYTHON=$(CURDIR)/$(VLLM)/python $(BIN)/python -m pytest tests/vllm --timeout 600 $(ARGS)

litellm-test: .venv-litellm/.installed ## run the tests of LiteLLM's adapter
	$(LITELLM)/python -m pytest tests/adapters/test_litellm.py $(ARGS)

node-test: .venv/.dev $(NODE)/node_modules/.installed ## run the official Node client against a gateway
	$(BIN)/python -m pytest tests/clients/test_node.py $(ARGS)

demo: .venv/.dev ## send about thirty prompts through a running gateway with the official client
	@$(BIN)/python -m bench.demo $(ARGS)

docs: .venv/.dev ## build the documentation as a site in site/, all links checked
	$(BIN)/zensical build --strict

check: .venv/.dev ## format, lint, types, imports, size limits
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest tests/architecture

bench: .venv/.dev ## measure CPU per request, side by side with other gateways
	@$(BIN)/python -m bench.gateway $(ARGS)

priors: .venv/.dev ## fit what estimates begin with anew; ARGS="--data DIR" is the folder of the public outcomes
	$(BIN)/python -m tools.priors --data $${LOWPASS_DATA:-../shared/data} $(ARGS)

lock: .venv/.lock ## resolve requirements/ anew; ARGS=--upgrade takes newer releases
	$(LOCK) $(ARGS) requirements/lock.in -o requirements/lock.txt
	$(LOCK) $(ARGS) pyproject.toml --extra model -o requirements/runtime.txt
	$(LOCK) $(ARGS) pyproject.toml --extra dev -c requirements/runtime.txt -o requirements/dev.txt
	$(LOCK) $(ARGS) pyproject.toml --extra litellm --extra model -c requirements/runtime.txt -o requirements/litellm.txt
	$(LOCK) $(ARGS) requirements/litellm-test.in -c requirements/dev.txt -c requirements/litellm.txt \
		-o requirements/litellm-test.txt

# Wheels that no model of text needs are left out: those on PyPI are not built for this torch.
lock-vllm: .venv/.lock ## resolve requirements/vllm.txt anew; UV_INDEX or UV_FIND_LINKS says where torch's CPU wheels are
	$(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-emit-find-links --python-version 3.11 \
		--python-platform x86_64-manylinux_2_28 --custom-compile-command 'make lock-vllm' --no-emit-package torchvision \
		--no-emit-package torchaudio --no-emit-package torchcodec $(ARGS) requirements/vllm.in -o requirements/vllm.txt

clean: ## remove everything that make made
	rm -rf .venv .venv-litellm .venv-vllm $(NODE)/node_modules build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Each environment is a folder; the stamp in it says that it holds what the requirements name.
.venv/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "lowpass needs Python 3.11 or newer and '$(PYTHON)' is not: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	@echo "Building .venv, once: about 200 MB to download"
	@$(PYTHON) -m venv .venv
	@touch $@

.venv/.runtime: .venv/.made requirements/runtime.txt pyproject.toml
	@$(call install,$(BIN),$(HASHED) -r requirements/runtime.txt)
	@$(call install,$(BIN),$(OURSELVES))
	@touch $@

.venv/.dev: .venv/.runtime requirements/dev.txt
	@$(call install,$(BIN),$(HASHED) -r requirements/dev.txt)
	@touch $@

.venv/.lock: .venv/.made requirements/lock.txt
	@$(call install,$(BIN),$(HASHED) -r requirements/lock.txt)
	@touch $@

$(NODE)/node_modules/.installed: $(NODE)/package-lock.json
	@command -v npm >/dev/null || { echo "The Node client's test needs node and npm: install them, or leave it out"; exit 1; }
	@cd $(NODE) && npm ci --no-audit --no-fund --silent
	@touch $@

.venv-litellm/.installed: .venv/.made requirements/litellm.txt requirements/litellm-test.txt pyproject.toml
	@$(PYTHON) -m venv .venv-litellm
	@$(call install,$(LITELLM),$(HASHED) -r requirements/litellm.txt -r requirements/litellm-test.txt)
	@$(call install,$(LITELLM),$(OURSELVES))
	@touch $@

# vLLM's pins never meet the gateway's. Its build for CPUs runs on x86-64 Linux with Python 3.11.
.venv-vllm/.installed: .venv/.made requirements/vllm.txt
	@echo "Building .venv-vllm, once: 3.4 GB when installed; docs/dependencies.md says where torch's CPU wheel comes from"
	@$(PYTHON) -m venv .venv-vllm
	@$(call install,$(VLLM),$(HASHED) -r requirements/vllm.txt)
	@touch $@
