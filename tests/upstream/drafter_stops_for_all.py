"""vLLM 0.32, runner V1: one request at its limit stops the drafter for all, which stay the worse.

Where a request is within Kmax tokens of max_model_len, the drafter runs for nobody
(v1/worker/gpu_model_runner.py, _input_fits_in_drafter), by design. The drafter never reads the
tokens of these steps afterwards, so that its KV cache has holes and the others are accepted badly
to their end. Here the draft model is the target itself: alone, a greedy request emits 9 tokens a
step. Seen beside a request that has 8 tokens left, in two runs:

    1 2 1 1 1 1 4 1 1 9 2 1 3 1 1 1 1 1 1 1 1 5 1 3 3 3 3 1 4 2 1 4 2 1 4
    1 2 1 1 1 1 1 2 1 9 5 4 3 2 3 3 3 3 9 3 9 6
"""

import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM
from vllm import EngineArgs, LLMEngine, SamplingParams

KMAX, LIMIT, TOKENS = 8, 128, 73
folder = sys.argv[1]
torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=256,
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=1,
    num_key_value_heads=1,
    max_position_embeddings=LIMIT,
)
LlamaForCausalLM(config).save_pretrained(folder)
speculative = {"method": "draft_model", "model": folder, "num_speculative_tokens": KMAX}
engine = LLMEngine.from_engine_args(
    EngineArgs(
        model=folder,
        skip_tokenizer_init=True,
        dtype="float32",
        enforce_eager=True,
        max_model_len=LIMIT,
        max_num_seqs=4,
        speculative_config=speculative,
    )
)


def emitted(*requests):
    """Tokens that the request "short" emits, step by step."""
    found, seen = [], 0
    for name, prompt, tokens, temperature in requests:
        engine.add_request(
            name,
            {"prompt_token_ids": [7 + place % 90 for place in range(prompt)]},
            SamplingParams(
                temperature=temperature,
                seed=3,
                max_tokens=tokens,
                ignore_eos=True,
                detokenize=False,
            ),
        )
    while engine.has_unfinished_requests():
        for output in engine.step():
            if output.request_id == "short":
                found.append(len(output.outputs[0].token_ids) - seen)
                seen += found[-1]
    return found


short = ("short", 10, TOKENS, 0.0)
alone = emitted(short)
beside = emitted(short, ("long", LIMIT - KMAX, KMAX, 2.0))
print("alone: ", *alone)
print("beside:", *beside)
full = [1] + [KMAX + 1] * (TOKENS // (KMAX + 1))
assert alone == full, "alone, not all drafts are accepted any more"
first, after = beside[1 : KMAX - 1], beside[KMAX + 2 : -1]  # by then the other one has ended
assert sum(first) < 3 * len(first), "the drafter goes on beside a request at its limit"
assert any(count <= KMAX for count in after), "all its drafts are right again afterwards"
