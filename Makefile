PYTHON ?= python3
BIN := .venv/bin
# Two workers with one thread each use a small machine fully and keep float sums in one order.
WORKERS ?= 2
export OMP_NUM_THREADS ?= 1

.PHONY: help demo test test-timm test-triton test-baseline test-faults check bench bench-gpu-counts docs browser paper evidence
.PHONY: evidence-features tokens wheel

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 16

demo: .venv/installed-report,train ## the whole paper on scikit-learn's digits: grid, studies and report (a few minutes, no download)
	$(BIN)/tpkd demo

test: .venv/installed-dev ## run every test, including the examples in the documentation
	$(BIN)/python -m pytest -n $(WORKERS) --doctest-modules src tests
	@$(MAKE) --no-print-directory test-timm test-triton

test-timm: .venv-timm/installed ## the paper's vision models and the timm task, in a separate environment because timm brings torchvision
	.venv-timm/bin/python -m pytest tests/models_timm tests/integrations_timm

test-triton: .venv-triton/installed ## the GPU kernel in Triton's interpreter and compiled for GPUs that need not be there, in a separate environment
	TRITON_INTERPRET=1 .venv-triton/bin/python -m pytest tests/objectives/kernels/test_conformance.py tests/objectives/kernels/test_gpu.py
	.venv-triton/bin/python -m pytest tests/objectives/kernels/test_gpu_rows.py

test-baseline: .venv/installed-dev ## the numerical tests as on a processor without AVX2 or AVX-512, where sums round differently
	ATEN_CPU_CAPABILITY=default MKL_ENABLE_INSTRUCTIONS=SSE4_2 ONEDNN_MAX_CPU_ISA=SSE41 \
		$(BIN)/python -m pytest -n $(WORKERS) tests/geometry tests/theory tests/parameter_space tests/objectives tests/paper

test-faults: .venv/installed-dev ## all fault tests: more kills, corruptions, hostile files and batches than `make test`
	TPKD_FAULTS=full $(BIN)/python -m pytest -n $(WORKERS) tests/faults

check: .venv/installed-dev ## formatting, lints and strict types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench-gpu-counts: .venv-triton/installed ## count bytes and registers of the GPU kernel into benchmarks/gpu-counts.json (no GPU needed)
	TRITON_INTERPRET=1 .venv-triton/bin/python -m benchmarks.gpu_counts
	.venv-triton/bin/python -m benchmarks.gpu_counts

bench: .venv/installed-dev bench-gpu-counts ## measure speed and memory and write benchmarks/RESULTS.md (alone on the machine, all cores)
	env -u OMP_NUM_THREADS $(BIN)/python -m benchmarks.run

docs: .venv/installed-docs ## build the documentation into site/, every warning an error; open site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

browser: ## install Chromium for the page tests (Debian and Ubuntu)
	@command -v chromium >/dev/null || { \
		sudo=$$([ "$$(id -u)" = 0 ] || echo sudo); \
		$$sudo apt-get update -qq && $$sudo apt-get install -y -qq --no-install-recommends chromium; }

tokens: .venv/installed-dev ## rewrite the tables of docs/tokens.md from results/tokens/
	$(BIN)/python tools/tokens_page.py

evidence: .venv/installed-dev ## rewrite the tables, figures and answers of docs/evidence.md, README.md and others from results/
	$(BIN)/python -m tools.evidence_page

# The seeds of configs/evidence-features-*.yaml. Another output than theirs, where the committed records are.
FEATURE_SEEDS := 52,53,54,55,56,57,58,59,60,61,62,63,64,65,66,67,68,69,70,71,72,73,74,75,76,77,78,79,80,81
PART ?= hwu-a

evidence-features: .venv/installed-dev ## run one of four parts of the frozen features again: PART=hwu-a, hwu-c, clinc-a or clinc-c (under an hour on two cores)
	$(BIN)/python tools/evidence_features.py $(if $(findstring hwu,$(PART)),hwu64,clinc150)
	$(BIN)/tpkd compare configs/evidence-features-$(PART).yaml 'output=runs/features-$(PART)/{objective}-{seed}' --seeds $(FEATURE_SEEDS)
	$(BIN)/tpkd report runs/features-$(PART)

paper: .venv/installed-dev ## rewrite PAPER.md from docstrings and tests
	$(BIN)/python tools/paper_index.py

wheel: .venv/installed-dev ## build the release into dist/, audit the wheel's stable ABI, and try it where there is no compiler
	rm -rf build dist
	TPKD_REQUIRE_KERNEL=1 PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/python -m build
	$(BIN)/abi3audit --strict --verbose dist/*.whl
	$(BIN)/python -m venv build/empty
	cd build && PATH=$(CURDIR)/build/empty/bin CC=/bin/false empty/bin/python -m pip install --quiet --only-binary :all: \
		--disable-pip-version-check -c ../constraints.txt ../dist/*.whl
	PATH=$(CURDIR)/build/empty/bin build/empty/bin/tpkd --version | grep "with its kernel"
	build/empty/bin/python -I -c 'import torch, tpkd; logits = torch.randn(8, 5, requires_grad=True); \
		tpkd.tpkd_loss(logits, torch.randn(8, 5), torch.randint(5, (8,))).backward(); print(tpkd.__file__, logits.grad.norm())'
	rm -rf build

.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.exit("tpkd needs Python 3.11 or newer, found " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv

INSTALLED_FROM := pyproject.toml setup.py constraints.txt src/tpkd/objectives/kernels/_cpu.c src/tpkd/diagnosis/_rows.c src/tpkd/vectorised.h

.venv-timm/installed: .venv/bin/python $(INSTALLED_FROM)
	$(BIN)/python -m venv .venv-timm
	.venv-timm/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[vision,train,export]" pytest
	@touch $@

.venv-triton/installed: .venv/bin/python $(INSTALLED_FROM)
	$(BIN)/python -m venv .venv-triton
	.venv-triton/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e . triton beartype hypothesis pytest scipy
	@touch $@

.venv/installed-%: .venv/bin/python $(INSTALLED_FROM)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[$*]"
	@touch $@
