"""Step times from LLMServingSim's tables of measured operators (casys-kaist/LLMServingSim, MIT).

Three files per GPU and model, bf16 on one GPU: ``dense`` (token-wise operators of a layer over
tokens, in microseconds), ``per_sequence`` (vocabulary head and sampler over sequences) and
``attention`` (mixed batches: a prompt chunk over a past, and decoding requests of one context
length). Here they are put together: layers times one layer's products and small operators at M
tokens, the vocabulary head at N, and attention as a plane fitted to its table, so that a step is as
quick to price as from coefficients. The tables hold kernels only: the engine's overhead comes from
where a roofline takes it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from adaptive_spec.errors import ConfigError, DataError
from adaptive_spec.sim.hardware.gpus import GpuFacts
from adaptive_spec.sim.hardware.models import ModelFacts
from adaptive_spec.sim.hardware.nonnegative import nonnegative_fit
from adaptive_spec.sim.hardware.profile_file import HardwareProfile
from adaptive_spec.sim.hardware.roofline import (
    GRAPH_SIZES,
    PASS_LAUNCH_SECONDS,
    VLLM,
    EngineOverhead,
    kv_pool,
)
from adaptive_spec.sim.hardware.table_files import numbers, read_table
from adaptive_spec.step import FloatArray

if TYPE_CHECKING:
    import polars as pl

_NAMES = {
    ("rtx4090", "llama-3.1-8b"): "RTX4090_Llama-3.1-8B",
    ("rtxpro6000", "llama-3.1-8b"): "RTXPRO6000_Llama-3.1-8B",
    ("rtxpro6000", "qwen3-32b"): "RTXPRO6000_Qwen3-32B",
}
_ONCE_PER_STEP = {"embedding", "final_layernorm"}
_TWICE_PER_LAYER = {"layernorm"}
_TOKENS = (
    *(1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 256, 320, 384, 512, 768, 1024, 1536),
    2048,
)
_SEQUENCES = (1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256)


def table_profile(
    gpu: GpuFacts, model: ModelFacts, data_folder: Path, *, engine: EngineOverhead = VLLM
) -> HardwareProfile:
    """A hardware profile of this model on one of these GPUs.

    Raises:
        ConfigError: no tables for this pair.
        DataError: a table is missing or damaged.
    """
    name = _NAMES.get((gpu.name, model.name))
    if name is None:
        pairs = ", ".join(":".join(pair) for pair in _NAMES)
        raise ConfigError(f"LLMServingSim tables: {pairs}, not {gpu.name}:{model.name}")
    start = f"llmservingsim_{name}_bf16_tp1"
    folder = data_folder / "cost"
    layer = layer_seconds(folder / f"{start}_dense.csv.gz", model.layers)
    head = _line(np.array(_SEQUENCES), _head_seconds(folder / f"{start}_per_sequence.csv.gz"))
    decode, prompt = _attention(folder / f"{start}_attention.csv.gz")
    decode_fixed, decode_request, context = decode_plane(decode)
    prompt_token, pair = prompt_plane(prompt, decode_fixed)
    memory, weights = kv_pool(gpu, model, 1, "bf16")
    return HardwareProfile(
        schema=1,
        name=f"llmservingsim-{gpu.name}-{model.name}",
        source=f"LLMServingSim {name}: dense, per_sequence, attention; engine: {engine.source}",
        model=model.name,
        gpu=gpu.name,
        memory_bytes=memory,
        weight_bytes=weights,
        kv_bytes_per_token=model.kv_bytes_per_token(),
        layers=model.layers,
        token_buckets=list(GRAPH_SIZES),
        overhead=engine.per_step,
        fixed=head[0] + model.layers * decode_fixed,
        tokens=list(_TOKENS),
        seconds=np.maximum.accumulate(model.layers * layer).tolist(),
        per_batch_token=head[1],
        per_request=engine.per_request + model.layers * decode_request,
        per_context_token=model.layers * context,
        per_prefill_token=model.layers * prompt_token,
        per_prefill_context_token=model.layers * pair,
        draft_pass_overhead=PASS_LAUNCH_SECONDS,
    )


def layer_seconds(path: Path, layers: int) -> FloatArray:
    """[`_TOKENS`] everything of one layer but attention over the context."""
    dense = read_table(path, ("layer", "tokens", "time_us"))
    total = np.zeros(len(_TOKENS))
    for operator in sorted(set(dense["layer"].to_list())):
        seconds = _operator(dense, path, operator, "tokens", _TOKENS)
        if operator in _ONCE_PER_STEP:
            seconds = seconds / layers
        elif operator in _TWICE_PER_LAYER:
            seconds = 2.0 * seconds
        total += seconds
    return total


def _head_seconds(path: Path) -> FloatArray:
    """[`_SEQUENCES`] vocabulary head and sampler."""
    sequence = read_table(path, ("layer", "sequences", "time_us"))
    total = np.zeros(len(_SEQUENCES))
    for operator in ("lm_head", "sampler"):
        total += _operator(sequence, path, operator, "sequences", _SEQUENCES)
    return total


def _operator(
    frame: pl.DataFrame, path: Path, operator: str, column: str, at: tuple[int, ...]
) -> FloatArray:
    """Seconds of one operator at these sizes."""
    import polars as pl

    rows = numbers(frame.filter(pl.col("layer") == operator), path, column, "time_us")
    if not len(rows):
        raise DataError(f"{path}: no operator {operator!r}")
    rows = rows[np.argsort(rows[:, 0])]
    result: FloatArray = np.interp(at, rows[:, 0], rows[:, 1]) / 1e6
    return result


def _attention(path: Path) -> tuple[FloatArray, FloatArray]:
    """Seconds of one layer's attention, of decoding alone and of prompts alone.

    [D, 3] requests, context tokens of all of them, seconds; [P, 3] prompt tokens, pairs with tokens
    before, seconds.
    """
    columns = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode", "time_us")
    rows = numbers(read_table(path, columns), path, *columns)
    chunk, past, requests, context, microseconds = rows.T
    alone = (chunk == 0) & (requests > 0)
    decode = np.stack([requests, requests * context, microseconds / 1e6], axis=1)[alone]
    prompts = (chunk > 0) & (requests == 0)
    pairs = chunk * past + chunk * (chunk - 1.0) / 2.0
    prompt = np.stack([chunk, pairs, microseconds / 1e6], axis=1)[prompts]
    if not len(decode) or not len(prompt):
        raise DataError(f"{path}: needs rows of decoding alone and of prompts alone")
    return decode, prompt


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
    features = np.stack([np.ones(len(tokens)), tokens], axis=1)
    fixed, slope = nonnegative_fit(features / seconds[:, None], np.ones_like(seconds))
    return float(fixed), float(slope)
