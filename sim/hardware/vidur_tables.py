"""Reads Vidur's operator tables (microsoft/vidur, MIT), bf16.

``mlp`` files hold a layer's token-wise operators per degree of tensor parallelism. Attention was
measured on an A100 for a 70B model's shard at TP 2 only; for other models and GPUs its times are
scaled by the KV bytes of a token, the operations of a prompt, and the GPUs' peaks. The vocabulary
head is in no table and comes from the roofline.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from adaptive_spec.errors import ConfigError, DataError
from adaptive_spec.sim.hardware.gpus import GpuFacts, gpu_facts
from adaptive_spec.sim.hardware.models import ModelFacts
from adaptive_spec.sim.hardware.operator_tables import OperatorTables
from adaptive_spec.sim.hardware.roofline import head_seconds
from adaptive_spec.sim.hardware.table_files import numbers, read_table
from adaptive_spec.step import FloatArray

if TYPE_CHECKING:
    import polars as pl

_NAMES = {
    ("a100", "llama-3.1-8b"): "a100_Meta-Llama-3-8B",
    ("a100", "llama-3.1-70b"): "a100_Meta-Llama-3-70B",
    ("a100", "llama-2-7b"): "a100_Llama-2-7b-hf",
    ("a100", "llama-2-70b"): "a100_Llama-2-70b-hf",
    ("h100", "llama-2-7b"): "h100_Llama-2-7b-hf",
    ("h100", "llama-2-70b"): "h100_Llama-2-70b-hf",
    # Llama-3-70B differs from Llama-2-70B in its vocabulary only, which is not in the tables.
    ("h100", "llama-3.1-70b"): "h100_Llama-2-70b-hf",
}
_LAYER = (
    "input_layernorm_ms",
    "attn_pre_proj_ms",
    "attn_rope_ms",
    "attn_post_proj_ms",
    "post_attention_layernorm_ms",
    "mlp_up_proj_ms",
    "mlp_act_ms",
    "mlp_down_proj_ms",
)
_ADDITIONS = "add_ms"
_ADDITIONS_PER_LAYER = 2.0
_ATTENTION = "vidur_attention_a100_oldcommit.csv.gz"
_MEASURED_HEADS, _MEASURED_KV_HEADS = 32, 4  # a 70B model's at TP 2
_TOKENS = (
    *(1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 256, 320, 384, 512, 768, 1024, 2048),
    4096,
)


def read_vidur(
    data_folder: Path, gpu: GpuFacts, model: ModelFacts, tensor_parallel: int, precision: str
) -> OperatorTables:
    """Operators of this model's shard.

    Raises:
        ConfigError: no tables for this pair, parallelism or precision.
        DataError: a table is missing or damaged.
    """
    name = _NAMES.get((gpu.name, model.name))
    if name is None:
        pairs = ", ".join(":".join(pair) for pair in _NAMES)
        raise ConfigError(f"Vidur tables: {pairs}, not {gpu.name}:{model.name}")
    if precision != "bf16":
        raise ConfigError("Vidur tables are bf16")
    head_once, head_token = head_seconds(gpu, model, tensor_parallel)
    head_tokens = np.array([1.0, 1024.0])
    decode, prompt = _attention(data_folder / "cost" / _ATTENTION, gpu, model, tensor_parallel)
    return OperatorTables(
        source=f"Vidur {name}: mlp; attention of a 70B shard on an A100, scaled",
        tokens=np.array(_TOKENS, dtype=np.float64),
        layer_seconds=_layer(data_folder / "cost" / f"vidur_mlp_{name}.csv.gz", tensor_parallel),
        head_tokens=head_tokens,
        head_seconds=head_once + head_token * head_tokens,
        decode=decode,
        prompt=prompt,
    )


def _layer(path: Path, tensor_parallel: int) -> FloatArray:
    import polars as pl

    workers = "num_tensor_parallel_workers"
    frame = read_table(path, (workers, "num_tokens", _ADDITIONS, *_LAYER))
    chosen = frame.filter(pl.col(workers) == tensor_parallel)
    if chosen.is_empty():
        known = sorted(set(frame[workers].to_list()))
        raise ConfigError(f"{path}: TP {', '.join(map(str, known))}, not {tensor_parallel}")
    rows = numbers(chosen.sort("num_tokens"), path, "num_tokens", _ADDITIONS, *_LAYER)
    seconds = (rows[:, 2:].sum(axis=1) + _ADDITIONS_PER_LAYER * rows[:, 1]) / 1e3
    result: FloatArray = np.interp(_TOKENS, rows[:, 0], seconds)
    return result


def _attention(
    path: Path, gpu: GpuFacts, model: ModelFacts, tensor_parallel: int
) -> tuple[FloatArray, FloatArray]:
    """Decode and prompt rows, as if measured on this shard."""
    columns = ("batch_size", "prefill_chunk_size", "kv_cache_size", "is_prefill")
    frame = read_table(path, (*columns, "attn_decode_ms", "attn_prefill_ms"))
    measured_on = gpu_facts("a100")
    kv_heads = max(model.kv_heads / tensor_parallel, 1.0)
    memory = (kv_heads / _MEASURED_KV_HEADS) * (measured_on.bandwidth / gpu.bandwidth)
    compute = (model.heads / tensor_parallel / _MEASURED_HEADS) * (
        measured_on.bf16_flops / gpu.bf16_flops
    )
    decoding = numbers(
        _kind(frame, path, prompt=False), path, "batch_size", "kv_cache_size", "attn_decode_ms"
    )
    requests, past, milliseconds = decoding.T
    # The context is scaled, not the time: what a kernel costs at no context stays.
    decode = np.stack([requests, requests * past / memory, milliseconds / 1e3], axis=1)
    prompts = numbers(
        _kind(frame, path, prompt=True),
        path,
        "prefill_chunk_size",
        "kv_cache_size",
        "attn_prefill_ms",
    )
    chunk, past, milliseconds = prompts.T
    pairs = (chunk * past + chunk * (chunk - 1.0) / 2.0) / compute
    return decode, np.stack([chunk / compute, pairs, milliseconds / 1e3], axis=1)


def _kind(frame: pl.DataFrame, path: Path, *, prompt: bool) -> pl.DataFrame:
    import polars as pl

    column = "attn_prefill_ms" if prompt else "attn_decode_ms"
    is_prompt = pl.col("is_prefill").cast(pl.String).str.to_lowercase() == str(prompt).lower()
    chosen = frame.filter(is_prompt & (pl.col(column).cast(pl.Float64, strict=False) > 0))
    if chosen.is_empty():
        raise DataError(f"{path}: no rows with {column!r}")
    return chosen
