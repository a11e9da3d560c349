"""What speculation adds to a step, term by term, for machines that nobody has measured speculating.

The roofline prices a pass of N tokens. A step with drafts costs more than a longer pass:

* logits of each verified token cross the memory again: the head writes them in bf16, the sampler
  copies them to float32 and reads them (vLLM, v1/sample/sampler.py and rejection_sampler.py);
* attention over the context reads KV more often where a request has several query tokens and the
  kernel does not pack the heads of a group (FlashAttention 2; FlashAttention 3 packs them);
* the engine's host works once per step with drafts and once per request of such a step.

Graph padding and mixed prompts are the engine loop's (`sim.engine.step_time`), the drafter's passes
`sim.drafters.pricing`'s.
"""

from __future__ import annotations

import msgspec

from adaptive_spec.sim.hardware.gpus import GpuFacts
from adaptive_spec.sim.hardware.models import ModelFacts

LOGIT_BYTES = 12.0
"""Memory traffic per entry of the vocabulary and verified token: 2 written in bf16, 2 read and 4
written as float32, 4 read for the argmax. Sampling by top-p sorts as well: some 20 more."""


class EngineOverhead(msgspec.Struct, frozen=True, kw_only=True):
    """Host time that an engine adds to a step, beyond what overlaps with the GPU's work.

    Attributes:
        per_step: seconds a step, scheduling and sampling.
        per_request: seconds a step and decoding request.
        per_draft_step: seconds more in a step that verifies drafts.
        per_draft_request: the same, per decoding request.
        overlapped: seconds of host work that overlap with the GPU's: no step is shorter.
        overlapped_per_request: the same, per decoding request.
        source: engine, version, and where the figures come from.
    """

    per_step: float
    per_request: float
    per_draft_step: float = 0.0
    per_draft_request: float = 0.0
    overlapped: float = 0.0
    overlapped_per_request: float = 0.0
    source: str


FACTORIAL = (
    "manojarulmurugan/SpecDecoding-Study-vLLM-SGLang d96e4fb, Llama-3.1-8B with EAGLE-3 on an A100"
)

VLLM = EngineOverhead(
    per_step=0.5e-3,
    per_request=4.6e-5,
    per_draft_step=0.0,
    per_draft_request=0.0,
    source="vLLM 0.24.0: rows of benchmarks/validation/speculation_at_load.json to fit on, of "
    + FACTORIAL,
)
VLLM_023 = EngineOverhead(
    per_step=0.54e-3,
    per_request=1.7e-5,
    source="vLLM 0.23: runs without drafts, gsm8k, in batches of 1 to 64, of "
    "pramodjella/speculative-decoding-draft-length-audit 0c0fa77, Llama-3.1-8B on an H100",
)
VLLM_SYNC = EngineOverhead(
    per_step=1.2e-3,
    per_request=4.8e-5,
    source="vLLM: TP 4 rows of Llama-3.1-70B FP8 on the H100, aiconfigurator's silicon samples",
)
TENSORRT_LLM = EngineOverhead(
    per_step=0.41e-3,
    per_request=1.1e-5,
    overlapped=2.39e-3,
    overlapped_per_request=5.9e-5,
    source="TensorRT-LLM: rows with 1,024 prompt tokens of Llama-3.1-8B on the H100, "
    "aiconfigurator's silicon samples",
)
ENGINES = {"vllm": VLLM, "vllm-0.23": VLLM_023, "vllm-sync": VLLM_SYNC, "trtllm": TENSORRT_LLM}
"""Names of an engine in ``roofline:GPU:MODEL:ENGINE``."""


def logits_seconds(gpu: GpuFacts, model: ModelFacts, tensor_parallel: int) -> float:
    """Moving the logits of one verified token through the memory of one GPU."""
    entries = model.vocabulary / tensor_parallel
    return LOGIT_BYTES * entries / (gpu.bandwidth * gpu.memory_efficiency)


def verify_context_seconds(gpu: GpuFacts, context_seconds: float) -> float:
    """Attention per token of context that a step with drafts pays beyond a step without.

    Args:
        gpu: whose kernel reads the KV more often, or not.
        context_seconds: reading the KV of one token once.
    """
    return gpu.verify_attention * context_seconds
