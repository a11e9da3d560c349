"""Step times from first principles: bytes that must be read, operations that must be done.

Per layer, with M tokens in the pass:

* each weight matrix takes ``(memory^3 + compute^3)^(1/3)`` plus a kernel's fixed time: the larger
  of the two far from the ridge, about a quarter more at it, as measured matrix products do;
* of E experts, M tokens that take k each touch E (1 - (1 - k/E)^M), were routing uniform; only
  these are read;
* attention reads the KV of all context tokens; prompt attention does 4 heads head_size
  operations per pair of tokens;
* tensor parallelism adds two all-reduces of M hidden values.

The vocabulary head runs once, for the verified tokens. The result is a `HardwareProfile`, so that
a step costs no more to price than one from coefficients.

A step with drafts costs more than a longer pass:

* logits of each verified token cross the memory again: the head writes them in bf16, the sampler
  copies them to float32 and reads them (vLLM, v1/sample/sampler.py and rejection_sampler.py);
* attention over the context reads KV more often where a request has several query tokens and the
  kernel does not pack the heads of a group (FlashAttention 2; FlashAttention 3 packs them);
* the engine's host works once per step with drafts and once per request of such a step.

Graph padding and mixed prompts are priced in `sim.engine.step_time`, the drafter's passes in
`sim.drafters.pricing`.
"""

from __future__ import annotations

import msgspec

from adaptive_spec.errors import ConfigError
from adaptive_spec.sim.hardware.catalogue import GpuFacts, ModelFacts
from adaptive_spec.sim.hardware.profile_file import HardwareProfile

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


VLLM = EngineOverhead(
    per_step=0.5e-3,
    per_request=4.8e-5,
    source="vLLM with asynchronous scheduling: seconds a request as of `vllm-sync`, seconds a step "
    "a round figure of this project",
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
ENGINES = {
    "vllm": VLLM,
    "vllm-sync": VLLM_SYNC,
    "tensorrt-llm": TENSORRT_LLM,
}
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


KNOTS = (
    *(1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 256, 320, 384, 512, 768),
    *(1024, 2048, 4096, 8192, 16384),
)

GRAPH_SIZES = (1, 2, 4, *range(8, 257, 8), *range(272, 513, 16))
"""Batch sizes vLLM captures by default (its `cudagraph_capture_sizes`)."""

_SHARPNESS = 3.0
_TILED = 1024  # tokens up to which the staircase of tiles is drawn
_KERNEL_SECONDS = 4e-6
_PASS_LAUNCHES = 1.6e-4  # seconds of some 40 kernels of a drafter's pass, sampling too: assumed
_MEMORY_SHARE = 0.9  # vLLM's default of `gpu_memory_utilization`
_ACTIVATION_BYTES = 2e9  # of each GPU, graphs included
_ACTIVATION_VALUES = 10  # hidden-sized values read or written per token between the products
_EXPERT_COMPUTE = 0.6  # grouped products against plain ones
_PRECISIONS = {"bf16": 2.0, "fp8": 1.0}


def roofline_profile(
    gpu: GpuFacts,
    model: ModelFacts,
    *,
    tensor_parallel: int = 1,
    precision: str = "bf16",
    kv_precision: str = "bf16",
    engine: EngineOverhead = VLLM,
    name: str = "",
) -> HardwareProfile:
    """A hardware profile of this model on this many of these GPUs.

    Args:
        gpu: the GPU.
        model: the model.
        tensor_parallel: GPUs that share every layer.
        precision: ``bf16`` or ``fp8``, of the layers' weights and products; the head is bf16.
        kv_precision: ``bf16`` or ``fp8``, of the KV cache.
        engine: its overhead.
        name: of the profile; by default made of the parts.

    Raises:
        ConfigError: the weights do not fit, or the GPU lacks the precision.
    """
    for given in (precision, kv_precision):
        if given not in _PRECISIONS:
            raise ConfigError(f"unknown precision {given!r}: bf16 or fp8")
    if tensor_parallel < 1:
        raise ConfigError(f"tensor parallelism must be >= 1, got {tensor_parallel}")
    if precision == "fp8" and not gpu.fp8_flops:
        raise ConfigError(f"{gpu.name} has no fp8: use bf16")
    memory, weight_bytes = kv_pool(gpu, model, tensor_parallel, precision)
    machine = _Machine(gpu, model, tensor_parallel, precision)
    kv_bytes = model.kv_bytes_per_token(_PRECISIONS[kv_precision])
    head_fixed, head_token = head_seconds(gpu, model, tensor_parallel)
    context = machine.context_seconds(kv_bytes)
    steps = range(gpu.tile_rows, KNOTS[-1], gpu.tile_rows) if gpu.tile_rows > 1 else ()
    knots = sorted({*KNOTS, *(step + more for step in steps if step <= _TILED for more in (0, 1))})
    parallel = f"-tp{tensor_parallel}" if tensor_parallel > 1 else ""
    return HardwareProfile(
        schema=1,
        name=name or f"roofline-{gpu.name}-{model.name}{parallel}-{precision}",
        source=f"roofline; GPU: {gpu.source}; model: {model.source}; efficiencies: "
        f"{gpu.efficiency_source}; engine: {engine.source}",
        model=model.name,
        gpu=gpu.name,
        tensor_parallel=tensor_parallel,
        memory_bytes=memory,
        weight_bytes=weight_bytes,
        kv_bytes_per_token=kv_bytes,
        layers=model.layers,
        token_buckets=list(GRAPH_SIZES),
        overhead=engine.per_step,
        fixed=head_fixed + model.layers * gpu.layer_seconds,
        tokens=knots,
        seconds=[machine.layers_seconds(tokens) for tokens in knots],
        per_batch_token=head_token + logits_seconds(gpu, model, tensor_parallel),
        per_request=engine.per_request,
        host=engine.overlapped,
        host_per_request=engine.overlapped_per_request,
        per_context_token=context,
        verify_per_context_token=verify_context_seconds(gpu, context),
        per_prefill_context_token=prompt_pair_seconds(gpu, model, tensor_parallel),
        any_draft=engine.per_draft_step,
        any_draft_per_request=engine.per_draft_request,
        draft_pass_overhead=_PASS_LAUNCHES,
    )


def kv_pool(
    gpu: GpuFacts, model: ModelFacts, tensor_parallel: int, precision: str
) -> tuple[float, float]:
    """Memory of all GPUs less activations and graphs, and the bytes of the weights.

    Of that memory an engine uses the share it is told to (`adaptive_spec.sim.engine.kv_pool`).
    Raises ConfigError if the weights do not fit.
    """
    embeddings = model.head_weights * (1 if model.tied_embedding else 2)
    weights = (model.weights - embeddings) * _PRECISIONS[precision] + 2.0 * embeddings
    memory = tensor_parallel * (gpu.memory_bytes - _ACTIVATION_BYTES / _MEMORY_SHARE)
    if weights >= _MEMORY_SHARE * memory:
        raise ConfigError(
            f"{model.name} in {precision} needs {weights / 1e9:.0f} GB, {tensor_parallel} x "
            f"{gpu.name} leave {_MEMORY_SHARE * memory / 1e9:.0f} GB: use more GPUs"
        )
    return memory, weights


def head_seconds(gpu: GpuFacts, model: ModelFacts, tensor_parallel: int) -> tuple[float, float]:
    """The vocabulary head: once, and per verified token."""
    weights = model.head_weights / tensor_parallel
    once = 2.0 * weights / (gpu.bandwidth * gpu.memory_efficiency) + _KERNEL_SECONDS
    return once, 2.0 * weights / (gpu.bf16_flops * gpu.compute_efficiency)


def all_reduce_seconds(
    gpu: GpuFacts, model: ModelFacts, tensor_parallel: int, tokens: int
) -> float:
    """The two all-reduces of a layer with this many tokens."""
    if tensor_parallel == 1:
        return 0.0
    share = 2.0 * (tensor_parallel - 1) / tensor_parallel
    size = 2.0 * tokens * model.hidden
    return 2.0 * (gpu.link_seconds + share * size / (gpu.link_bandwidth * gpu.link_efficiency))


def prompt_pair_seconds(gpu: GpuFacts, model: ModelFacts, tensor_parallel: int) -> float:
    """Prompt attention between one token and one before it, all layers."""
    operations = 4.0 * model.layers * model.heads * model.head_size / tensor_parallel
    return operations / (gpu.bf16_flops * gpu.prefill_efficiency)


class _Machine:
    """One shard of a model on one GPU."""

    def __init__(self, gpu: GpuFacts, model: ModelFacts, parallel: int, precision: str) -> None:
        self._gpu = gpu
        self._model = model
        self._parallel = parallel
        self._weight_size = _PRECISIONS[precision]
        self._flops = gpu.bf16_flops * gpu.compute_efficiency
        if precision == "fp8":
            self._flops = gpu.fp8_flops * gpu.fp8_compute_efficiency
        self._bandwidth = gpu.bandwidth * gpu.memory_efficiency

    def context_seconds(self, kv_bytes_per_token: float) -> float:
        """Reading the KV of one token."""
        rate = self._gpu.bandwidth * self._gpu.attention_efficiency * self._kv_shards
        return kv_bytes_per_token / rate

    @property
    def _kv_shards(self) -> int:
        return min(self._parallel, self._model.kv_heads)  # beyond that, KV heads are copied

    def layers_seconds(self, tokens: int) -> float:
        """All layers with this many tokens, without attention over the context."""
        model, parallel = self._model, self._parallel
        query = model.heads * model.head_size / parallel
        key_value = 2 * model.kv_heads * model.head_size / self._kv_shards
        seconds = self._product(model.hidden, query + key_value, tokens)
        seconds += self._product(query, model.hidden, tokens)
        if model.experts:
            seconds += self._experts(tokens)
        else:
            width = model.intermediate / parallel
            seconds += self._product(model.hidden, 2 * width, tokens)
            seconds += self._product(width, model.hidden, tokens)
        seconds += tokens * model.hidden * 2.0 * _ACTIVATION_VALUES / self._bandwidth
        seconds += all_reduce_seconds(self._gpu, model, parallel, tokens)
        return model.layers * seconds

    def _product(self, inputs: float, outputs: float, tokens: int) -> float:
        size = inputs * outputs * self._weight_size + 2.0 * tokens * (inputs + outputs)
        tile = self._gpu.tile_rows
        rows = -(-tokens // tile) * tile if tokens > tile else tokens
        return _both(size / self._bandwidth, 2.0 * rows * inputs * outputs / self._flops)

    def _experts(self, tokens: int) -> float:
        model = self._model
        touched = model.experts * (1.0 - (1.0 - model.experts_per_token / model.experts) ** tokens)
        weights = model.mlp_weights / self._parallel
        memory = touched * weights * self._weight_size / self._bandwidth
        operations = 2.0 * tokens * model.experts_per_token * weights
        # Routing, sorting by expert, the two grouped products, and the weighted sum.
        kernels = 4 * _KERNEL_SECONDS
        return _both(memory, operations / (self._flops * _EXPERT_COMPUTE)) + kernels


def _both(memory: float, compute: float) -> float:
    combined: float = (memory**_SHARPNESS + compute**_SHARPNESS) ** (1.0 / _SHARPNESS)
    return combined + _KERNEL_SECONDS
