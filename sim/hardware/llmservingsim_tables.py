"""Reads LLMServingSim's operator tables (casys-kaist/LLMServingSim, MIT), bf16 on one GPU.

Three files per GPU and model: ``dense`` (token-wise operators of a layer over tokens, in
microseconds), ``per_sequence`` (vocabulary head and sampler over sequences) and ``attention``
(mixed batches: a prompt chunk over a past, and decoding requests of one context length).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from adaptive_spec.errors import ConfigError, DataError
from adaptive_spec.sim.hardware.gpus import GpuFacts
from adaptive_spec.sim.hardware.models import ModelFacts
from adaptive_spec.sim.hardware.operator_tables import OperatorTables
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


def read_llmservingsim(
    data_folder: Path, gpu: GpuFacts, model: ModelFacts, tensor_parallel: int, precision: str
) -> OperatorTables:
    """Operators of this model.

    Raises:
        ConfigError: no tables for this pair, or not in this precision or parallelism.
        DataError: a table is missing or damaged.
    """
    name = _NAMES.get((gpu.name, model.name))
    if name is None:
        pairs = ", ".join(":".join(pair) for pair in _NAMES)
        raise ConfigError(f"LLMServingSim tables: {pairs}, not {gpu.name}:{model.name}")
    if tensor_parallel != 1 or precision != "bf16":
        raise ConfigError("LLMServingSim tables are bf16 on one GPU")
    start = f"llmservingsim_{name}_bf16_tp1"
    folder = data_folder / "cost"
    dense_path = folder / f"{start}_dense.csv.gz"
    dense = read_table(dense_path, ("layer", "tokens", "time_us"))
    sequence_path = folder / f"{start}_per_sequence.csv.gz"
    sequence = read_table(sequence_path, ("layer", "sequences", "time_us"))
    layer = np.zeros(len(_TOKENS))
    for operator in sorted(set(dense["layer"].to_list())):
        seconds = _operator(dense, dense_path, operator, "tokens", _TOKENS)
        if operator in _ONCE_PER_STEP:
            seconds = seconds / model.layers
        elif operator in _TWICE_PER_LAYER:
            seconds = 2.0 * seconds
        layer += seconds
    head = sum(
        (
            _operator(sequence, sequence_path, operator, "sequences", _SEQUENCES)
            for operator in ("lm_head", "sampler")
        ),
        np.zeros(len(_SEQUENCES)),
    )
    decode, prompt = _attention(folder / f"{start}_attention.csv.gz")
    return OperatorTables(
        source=f"LLMServingSim {name}: dense, per_sequence, attention",
        tokens=np.array(_TOKENS, dtype=np.float64),
        layer_seconds=layer,
        head_tokens=np.array(_SEQUENCES, dtype=np.float64),
        head_seconds=head,
        decode=decode,
        prompt=prompt,
    )


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
    """Decode rows without a prompt, and what a prompt adds in rows with one."""
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
