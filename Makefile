# make help        this list
# make check       lint, types, documentation site, decisions, tests of core and policies
# make test        all but the long tests, with a real vLLM and a real SGLang on CPU; sets itself up
# make test-trtllm the TensorRT-LLM that TRTLLM_PYTHON has, GPU or not: doctor, then its own loop
# make test-long   tests of more than two minutes each
# make demo-quick  a real model's chats on this CPU, K following the load; four minutes once set up
# make bench       real schedulers on recorded traffic, docs/measured.md; 22 minutes of CPU time
# make bench-quick the gate of a change: 9 cells against the last committed run; a minute
# make gpu         measure on a GPU, 11 minutes; makes an environment with vLLM from PyPI
# make lock        resolve requirements/*.in anew
# make docs        rewrite the tables in docs/ that come from the code
# make site        serve the documentation on localhost:8000
# make clean       remove what the others made, the virtual environments included
#
# Needs CPython 3.11, a C++ compiler and PyPI. Virtual environments are kept under
# ADAPTIVE_SPEC_VENVS and rebuilt only when their lock changes.

export ADAPTIVE_SPEC_VENVS ?= .venv
PYTHON ?= $(shell command -v python3.11 || command -v python3)
TRTLLM_PYTHON ?= $(PYTHON)

.PHONY: help check test test-trtllm test-long demo-quick bench bench-quick gpu lock docs site clean

help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' Makefile

check:
	@$(PYTHON) scripts/checks.py quick

test:
	@$(PYTHON) scripts/checks.py all

test-trtllm:
	@PYTHONPATH=tests/tensorrt_llm $(TRTLLM_PYTHON) -m harness

test-long:
	@$(PYTHON) scripts/checks.py long

demo-quick:
	@$(PYTHON) scripts/environments.py vllm
	@$(ADAPTIVE_SPEC_VENVS)/vllm/bin/adaptive-spec demo

bench:
	@$(PYTHON) scripts/environments.py dev vllm sglang
	@$(ADAPTIVE_SPEC_VENVS)/vllm/bin/python -m benchmarks.judge --processes 2 \
		--results benchmarks/results/judge.json
	@$(ADAPTIVE_SPEC_VENVS)/vllm/bin/python -m benchmarks.judge --processes 2 \
		--groups later --arms none,k1,k2,k3,k5,k7,table-constant,sglang-tiers,goodput --results benchmarks/results/judge.json
	@$(ADAPTIVE_SPEC_VENVS)/sglang/bin/python -m benchmarks.judge --processes 2 \
		--groups "later: SGLang" --results benchmarks/results/judge.json
	@$(ADAPTIVE_SPEC_VENVS)/dev/bin/python scripts/generated_docs.py
	@$(ADAPTIVE_SPEC_VENVS)/dev/bin/python scripts/site_pictures.py

bench-quick:
	@$(PYTHON) scripts/environments.py vllm
	@$(ADAPTIVE_SPEC_VENVS)/vllm/bin/python -m benchmarks.judge --quick --processes 2

gpu:
	@$(PYTHON) -m venv $(ADAPTIVE_SPEC_VENVS)/gpu
	@$(ADAPTIVE_SPEC_VENVS)/gpu/bin/pip install --quiet "vllm==0.32.0" --editable .
	@PYTHON=$(ADAPTIVE_SPEC_VENVS)/gpu/bin/python sh benchmarks/judge/first_call.sh first
	@PYTHON=$(ADAPTIVE_SPEC_VENVS)/gpu/bin/python sh benchmarks/judge/first_call.sh second
	@$(ADAPTIVE_SPEC_VENVS)/gpu/bin/python -m benchmarks.judge.gpu.page out/gpu --simulate \
		--traces out/gpu-scratch/traces

lock:
	@$(PYTHON) scripts/environments.py --lock

docs:
	@$(PYTHON) scripts/environments.py dev
	@$(ADAPTIVE_SPEC_VENVS)/dev/bin/python scripts/generated_docs.py
	@$(ADAPTIVE_SPEC_VENVS)/dev/bin/python scripts/site_pictures.py

site:
	@$(PYTHON) scripts/environments.py dev
	@$(ADAPTIVE_SPEC_VENVS)/dev/bin/mkdocs serve

clean:
	rm -rf $(addprefix $(ADAPTIVE_SPEC_VENVS)/,dev dev.* gpu sglang sglang.* vllm vllm.* project.lock)
	rmdir $(ADAPTIVE_SPEC_VENVS) 2>/dev/null || true
	rm -rf build dist *.egg-info out
	rm -rf .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
