"""vLLM 0.32, runner V1: with thinking_token_budget, greedy text depends on the number of drafts.

One greedy request, alone, with a budget of 8, whose text begins to think again after its first
section: the forced end of the second section is lost where drafts are verified
(v1/sample/thinking_budget_state.py). vllm#39573 and #54906 are about the first section, which is
right here. Seen, the first of 48 tokens that differs from no speculation: 14 with 4 drafts, 46 with
2, none with 1. The models are the small trained pair of benchmarks/bench_pair.
"""

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
            model=f"{models}/target",
            dtype="float32",
            enforce_eager=True,
            max_model_len=400,
            max_num_seqs=4,
            max_num_batched_tokens=96,
            seed=0,
            reasoning_config=ReasoningConfig(reasoning_start_str=" (", reasoning_end_str=")"),
            speculative_config=(
                speculative | {"num_speculative_tokens": drafts} if drafts else None
            ),
        )
    )
    engine.add_request(
        "r",
        PROMPT,
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
    pairs = enumerate(zip(found, wanted, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(found), len(wanted)))


wanted = text(0)
first = {drafts: parts(text(drafts), wanted) for drafts in (4, 2, 1)}
print("first token that differs, by number of drafts:", first)
assert any(place != "none" for place in first.values()), "the text no longer depends on the drafts"
