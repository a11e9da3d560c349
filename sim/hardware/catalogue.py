"""GPUs and models by name, from ``gpus.json`` and ``models.json``, where each has its source.

Of a GPU: the peaks of its maker's data sheet, and how much of them kernels reach. Of a model: the
shape in the configuration file that its maker publishes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from adaptive_spec.errors import ConfigError

Facts = TypeVar("Facts")


class GpuFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU.

    Attributes:
        name: short name, as in ``roofline:h100:llama-3.1-8b``.
        source: data sheet of the peaks.
        bandwidth: memory, bytes per second.
        bf16_flops: dense bf16 peak with fp32 accumulation, operations per second.
        fp8_flops: the same for fp8; 0 where there is none.
        memory_bytes: device memory.
        link_bandwidth: to the other GPUs, bytes per second in one direction.
        link_seconds: latency of an all-reduce of a few kilobytes.
        link_efficiency: share of `link_bandwidth` that a large all-reduce reaches.
        memory_efficiency: share of `bandwidth` that reading weights reaches.
        compute_efficiency: share of the bf16 peak that large matrix products reach.
        fp8_compute_efficiency: share of the fp8 peak that they reach.
        attention_efficiency: share of `bandwidth` that reading KV reaches.
        prefill_efficiency: share of the bf16 peak that prompt attention reaches.
        layer_seconds: kernels of a layer that neither size nor tokens explain.
        tile_rows: tokens by which matrix products grow where the last tile is computed in full;
            1 where that does not show.
        verify_attention: how much more often attention reads the KV of a request that verifies
            drafts, beyond once.
        efficiency_source: where the efficiencies, `link_seconds` and `layer_seconds` come from.
    """

    name: str
    source: str
    bandwidth: float
    bf16_flops: float
    fp8_flops: float = 0.0
    memory_bytes: float
    link_bandwidth: float
    link_seconds: float = 12e-6
    link_efficiency: float = 0.5
    memory_efficiency: float = 0.8
    compute_efficiency: float = 0.8
    fp8_compute_efficiency: float = 0.5
    attention_efficiency: float = 0.8
    prefill_efficiency: float = 0.5
    layer_seconds: float = 25e-6
    tile_rows: int = 1
    verify_attention: float = 0.0
    efficiency_source: str = "typical; not measured"


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Shape of a decoder-only transformer with grouped-query attention and gated MLPs.

    Attributes:
        name: short name, as in ``roofline:h100:llama-3.1-8b``.
        source: where the shape is published.
        layers: transformer layers.
        hidden: width of the residual stream.
        intermediate: width of the MLP, of one expert if there are experts.
        heads: query heads.
        kv_heads: key and value heads.
        head_size: size of a head.
        vocabulary: entries of the vocabulary.
        experts: experts per layer; 0 if the MLP is dense.
        experts_per_token: of which each token takes this many.
        tied_embedding: input and output embedding share their weights.
    """

    name: str
    source: str
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_size: int = 128
    vocabulary: int
    experts: int = 0
    experts_per_token: int = 0
    tied_embedding: bool = False

    @property
    def attention_weights(self) -> int:
        """Weights of one layer's attention projections."""
        return self.hidden * self.head_size * (2 * self.heads + 2 * self.kv_heads)

    @property
    def mlp_weights(self) -> int:
        """Weights of one layer's MLP, or of one expert."""
        return 3 * self.hidden * self.intermediate

    @property
    def head_weights(self) -> int:
        """Weights of the vocabulary head."""
        return self.hidden * self.vocabulary

    @property
    def weights(self) -> int:
        """All weights, norms neglected."""
        mlp = self.mlp_weights * max(self.experts, 1) + self.hidden * self.experts
        embeddings = self.head_weights * (1 if self.tied_embedding else 2)
        return self.layers * (self.attention_weights + mlp) + embeddings

    def kv_bytes_per_token(self, bytes_per_value: float = 2.0) -> float:
        """Keys and values of one token, all layers."""
        return 2.0 * self.layers * self.kv_heads * self.head_size * bytes_per_value


_FOLDER = Path(__file__).parent
_gpus = msgspec.json.decode((_FOLDER / "gpus.json").read_bytes(), type=list[GpuFacts])
_models = msgspec.json.decode((_FOLDER / "models.json").read_bytes(), type=list[ModelFacts])
GPUS = {gpu.name: gpu for gpu in _gpus}
MODELS = {model.name: model for model in _models}


def gpu_facts(name: str) -> GpuFacts:
    """Return a GPU by its short name. Raises ConfigError listing the names."""
    return _named("GPU", name, GPUS)


def model_facts(name: str) -> ModelFacts:
    """Return a model by its short name. Raises ConfigError listing the names."""
    return _named("model", name, MODELS)


def _named(kind: str, name: str, known: Mapping[str, Facts]) -> Facts:
    found = known.get(name.lower())
    if found is None:
        raise ConfigError(f"unknown {kind} {name!r}; known: {', '.join(sorted(known))}")
    return found
