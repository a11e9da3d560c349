"""vLLM 0.32: method `ngram` gives up asynchronous scheduling on runner V2, `ngram_gpu` does not.

Model runner V2 makes n-gram drafts on the device and starts the same drafter for both methods
(`init_speculator` of v1/worker/gpu/spec_decode/__init__.py). The configuration turns asynchronous
scheduling off by the name `ngram` (config/vllm.py, __post_init__), whichever runner runs, so that
the device waits for the scheduler in each step. 0.33.0 has the same lines.
"""

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
    architectures=["LlamaForCausalLM"],
    vocab_size=256,
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=1,
    num_key_value_heads=1,
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
        model=folder,
        skip_tokenizer_init=True,
        max_model_len=128,
        speculative_config={
            "method": method,
            "num_speculative_tokens": 3,
            "prompt_lookup_max": 3,
        },
    ).create_engine_config()
    off = any(WARNING in line for line in said)
    found[method] = (drafter(config.speculative_config), off)
assert found == {"ngram": ("NgramGPUSpeculator", True), "ngram_gpu": ("NgramGPUSpeculator", False)}
