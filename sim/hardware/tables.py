"""Step times from tables of measured operators, as public projects keep them.

Each format has a reader of its own that returns `OperatorTables`. Here they are put together:
layers times one layer's products and small operators at M tokens, the vocabulary head at N, and
attention as a plane fitted to its table, so that a step is as quick to price as from coefficients.
The tables hold kernels only: all-reduces and the engine's overhead come from where a roofline
takes them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from adaptive_spec.errors import ConfigError
from adaptive_spec.sim.hardware.aiconfigurator_tables import read_aiconfigurator
from adaptive_spec.sim.hardware.gpus import GpuFacts
from adaptive_spec.sim.hardware.llmservingsim_tables import read_llmservingsim
from adaptive_spec.sim.hardware.models import ModelFacts
from adaptive_spec.sim.hardware.nonnegative import nonnegative_fit
from adaptive_spec.sim.hardware.operator_tables import OperatorTables
from adaptive_spec.sim.hardware.profile_file import HardwareProfile
from adaptive_spec.sim.hardware.roofline import (
    GRAPH_SIZES,
    PASS_LAUNCH_SECONDS,
    VLLM,
    EngineOverhead,
    all_reduce_seconds,
    kv_pool,
)
from adaptive_spec.sim.hardware.vidur_tables import read_vidur
from adaptive_spec.step import FloatArray

Reader = Callable[[Path, GpuFacts, ModelFacts, int, str], OperatorTables]

FORMATS: dict[str, Reader] = {
    "aiconfigurator": read_aiconfigurator,
    "llmservingsim": read_llmservingsim,
    "vidur": read_vidur,
}


def table_profile(
    table_format: str,
    gpu: GpuFacts,
    model: ModelFacts,
    data_folder: Path,
    *,
    tensor_parallel: int = 1,
    precision: str = "bf16",
    engine: EngineOverhead = VLLM,
) -> HardwareProfile:
    """A hardware profile from tables of this format in the data folder.

    Raises:
        ConfigError: no such format; the format has no such GPU, model or precision.
        DataError: a table is missing or damaged.
    """
    reader = FORMATS.get(table_format)
    if reader is None:
        raise ConfigError(f"unknown table format {table_format!r}: {', '.join(FORMATS)}")
    if model.experts:
        raise ConfigError(f"{model.name}: the tables hold no experts; use roofline:")
    tables = reader(data_folder, gpu, model, tensor_parallel, precision)
    return assemble(
        tables,
        gpu,
        model,
        tensor_parallel=tensor_parallel,
        precision=precision,
        engine=engine,
        name=f"{table_format}-{gpu.name}-{model.name}",
    )


def assemble(
    tables: OperatorTables,
    gpu: GpuFacts,
    model: ModelFacts,
    *,
    tensor_parallel: int,
    precision: str,
    engine: EngineOverhead,
    name: str,
) -> HardwareProfile:
    """Put one model together from its operators."""
    memory, weights = kv_pool(gpu, model, tensor_parallel, precision)
    reduces = [all_reduce_seconds(gpu, model, tensor_parallel, int(t)) for t in tables.tokens]
    layers = model.layers * (tables.layer_seconds + np.array(reduces))
    decode_fixed, decode_request, context = decode_plane(tables.decode)
    prompt_token, pair = prompt_plane(tables.prompt, decode_fixed)
    head = _line(tables.head_tokens, tables.head_seconds)
    parallel = f"-tp{tensor_parallel}" if tensor_parallel > 1 else ""
    return HardwareProfile(
        schema=1,
        name=f"{name}{parallel}",
        source=f"{tables.source}; engine: {engine.source}",
        model=model.name,
        gpu=gpu.name,
        tensor_parallel=tensor_parallel,
        memory_bytes=memory,
        weight_bytes=weights,
        kv_bytes_per_token=model.kv_bytes_per_token(),
        layers=model.layers,
        token_buckets=list(GRAPH_SIZES),
        overhead=engine.per_step,
        fixed=head[0] + model.layers * decode_fixed,
        tokens=[int(t) for t in tables.tokens],
        seconds=np.maximum.accumulate(layers).tolist(),
        per_batch_token=head[1],
        per_request=engine.per_request + model.layers * decode_request,
        per_context_token=model.layers * context,
        per_prefill_token=model.layers * prompt_token,
        per_prefill_context_token=model.layers * pair,
        draft_pass_overhead=PASS_LAUNCH_SECONDS,
    )


def decode_plane(decode: FloatArray) -> tuple[float, float, float]:
    """Once, per request and per context token: least relative error over the rows of `decode`."""
    requests, context, seconds = decode.T
    features = np.stack([np.ones_like(requests), requests, context], axis=1)
    fixed, request, token = nonnegative_fit(features / seconds[:, None], np.ones_like(seconds))
    return float(fixed), float(request), float(token)


def prompt_plane(prompt: FloatArray, fixed: float) -> tuple[float, float]:
    """Per prompt token and per pair, beyond what attention costs anyway."""
    tokens, pairs, seconds = prompt.T
    features = np.stack([tokens, pairs], axis=1)
    beyond = np.maximum(seconds - fixed, 0.0) / seconds
    token, pair = nonnegative_fit(features / seconds[:, None], beyond)
    return float(token), float(pair)


def _line(tokens: FloatArray, seconds: FloatArray) -> tuple[float, float]:
    """Value at no token and slope, of least relative error."""
    features = np.stack([np.ones_like(tokens), tokens], axis=1)
    fixed, slope = nonnegative_fit(features / seconds[:, None], np.ones_like(seconds))
    return float(fixed), float(slope)
