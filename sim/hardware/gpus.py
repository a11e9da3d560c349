"""GPUs: peaks from their makers' data sheets, and how much of them kernels reach.

The figures stand in ``gpus.json``, each with its source.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from adaptive_spec.errors import ConfigError


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


GPUS: dict[str, GpuFacts] = {
    gpu.name: gpu
    for gpu in msgspec.json.decode(
        Path(__file__).with_suffix(".json").read_bytes(), type=tuple[GpuFacts, ...]
    )
}


def gpu_facts(name: str) -> GpuFacts:
    """A GPU by its short name. Raises ConfigError listing the names."""
    found = GPUS.get(name.lower())
    if found is None:
        raise ConfigError(f"unknown GPU {name!r}; known: {', '.join(sorted(GPUS))}")
    return found
