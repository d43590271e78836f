# make deploy: everything from nothing to a verified, measured MobileNetV2 on this machine.
# make test:   everything the tests need, the checks and the tests.
# make docs:   the pages of the documentation, in edgetlm-out/site; warnings are errors.
# make sbom:   a bill of materials of what is installed and of what boards are sent, in edgetlm-out/edgetlm.cdx.json.
# make replay: whether programs, objects and bundles are those of another commit: BASE=HEAD~1 SET=full.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# pip compiles what it installs on one core, which takes longer than installing it: all cores compile afterwards.
# Files that are no valid Python, such as templates, are left as they are, as pip leaves them. So are a third of all:
# tests of packages and what few programs import, which the first import compiles, and mypy, which is machine code.
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
SELDOM := /(tests?|testing)/|/transformers/models/|/ray/(rllib|data|serve|train|tune|llm)/|/mypyc?/
COMPILE := $(BIN)/python -m compileall -qq -j 0 -x '$(SELDOM)' $(VENV)/lib || true
# `make TORCH=cuda` where pip finds PyTorch with CUDA alone: see requirements/host.txt.
TORCH ?= cpu
OUT := edgetlm-out
MODEL := $(OUT)/models/mobilenetv2.onnx

# Stamps carry the hash of what they were made from, so that a repeated `make` does nothing and a
# changed pin installs again.
HOST_STAMP := $(VENV)/.installed-host-$(shell cat requirements/cpu.txt requirements/host.txt requirements/models.txt pyproject.toml | sha256sum | cut -c1-16)
TEST_STAMP := $(VENV)/.installed-tests-$(shell cat requirements/*.txt pyproject.toml | sha256sum | cut -c1-16)

# Environments apart from this one that tests use.
APART := tflite-runtime ncnn onnxruntime-genai

.PHONY: deploy test check docs sbom replay install clean system-packages $(APART)

deploy: $(MODEL)
	$(BIN)/sdk deploy $(MODEL) --device local --threads 1 \
		--bundle $(OUT)/mobilenetv2/bundle --report $(OUT)/mobilenetv2/report.html \
		--json $(OUT)/mobilenetv2/result.json

# Packages of the system come while pip installs: much of both is waiting. So is what pip does afterwards: meanwhile a core
# compiles the native executors, for which tests would wait, and goes on while `scripts/test` checks.
test:
	@$(MAKE) --no-print-directory -j 2 $(HOST_STAMP) system-packages $(APART)
	@$(BIN)/python -m tests.shared_cache --jobs 1 > /dev/null & executors=$$!; \
	trap 'kill $$executors 2> /dev/null || true' EXIT; \
	$(MAKE) --no-print-directory $(TEST_STAMP) && scripts/test

system-packages:
	scripts/system-packages

$(APART): | $(BIN)/python
	@$(BIN)/python scripts/make_environment.py $@ > /dev/null

check: $(TEST_STAMP)
	scripts/check

docs: $(TEST_STAMP)
	PYTHONPATH=. NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

sbom: $(TEST_STAMP)
	$(BIN)/python scripts/make_sbom.py -o $(OUT)/edgetlm.cdx.json

BASE ?= HEAD~1
SET ?= full
replay: $(TEST_STAMP)
	$(BIN)/python -m tests.replay against --base $(BASE) --set $(SET)

install: $(HOST_STAMP)

$(MODEL): $(HOST_STAMP)
	$(BIN)/python -m research.models.export mobilenetv2 -o $(dir $(MODEL)) --format onnx

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || \
		{ echo "make: $(PYTHON) is not Python 3.11; say which is: make PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
		{ echo "make: no virtual environment; install python3-venv (apt-get install python3-venv)" >&2; exit 1; }

# What is installed is what requirements/*.txt have the hash of; this project needs nothing beyond that.
$(HOST_STAMP): | $(BIN)/python
	$(if $(filter cuda,$(TORCH)),$(PIP_INSTALL) --require-hashes --no-deps -r requirements/torch-cuda.txt)
	$(PIP_INSTALL) --require-hashes -r requirements/models.txt
	$(PIP_INSTALL) --no-deps --no-build-isolation --no-index -e .
	@$(COMPILE)
	@rm -f $(VENV)/.installed-host-* && touch $@

$(TEST_STAMP): $(HOST_STAMP)
	$(PIP_INSTALL) --require-hashes -r requirements/tests.txt
	$(if $(filter x86_64,$(shell uname -m)),$(PIP_INSTALL) --require-hashes -r requirements/loadgen.txt)
	@$(COMPILE)
	@rm -f $(VENV)/.installed-tests-* && touch $@

clean:
	rm -rf $(OUT) build dist *.egg-info
