"""Reads aiconfigurator's kernel tables (ai-dynamo/aiconfigurator, Apache-2.0).

Three files per GPU: matrix products over (m, n, k), decode attention over (batch, past), prompt
attention over prompts without a past. Products of other sizes are interpolated between the
measured ones in the logarithms of n, k and time. Norms, rotary embedding and activation are in no
table; they are taken from `_SMALL_OPERATORS`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from adaptive_spec.errors import ConfigError
from adaptive_spec.sim.hardware.gpus import GpuFacts
from adaptive_spec.sim.hardware.models import ModelFacts
from adaptive_spec.sim.hardware.operator_tables import OperatorTables
from adaptive_spec.sim.hardware.table_files import numbers, read_table
from adaptive_spec.step import FloatArray

if TYPE_CHECKING:
    import polars as pl

_VERSIONS = {
    "a100": "a100_sxm_vllm0.14.0",
    "h100": "h100_sxm_vllm0.24.0",
    "h200": "h200_sxm_vllm0.24.0",
    "l40s": "l40s_vllm0.24.0",
}
_TYPES = {"bf16": "bfloat16", "fp8": "fp8"}
_TOKENS = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 160, 192, 256, 512, 768, 1024, 2048, 4096, 8192)
_HEAD_TOKENS = tuple(tokens for tokens in _TOKENS if tokens <= 1024)

# Two norms, rotary embedding and activation of one layer: 10.2 us on an RTX PRO 6000 between 1
# and 64 tokens (LLMServingSim's dense table); launches, so much the same on other GPUs.
_SMALL_OPERATORS = 10.2e-6
_NO_PAST = 32
_LONGEST_PAST = 32768
_LARGEST_BATCH = 512


def read_aiconfigurator(
    data_folder: Path, gpu: GpuFacts, model: ModelFacts, tensor_parallel: int, precision: str
) -> OperatorTables:
    """Operators of this model's shard.

    Raises:
        ConfigError: no tables for this GPU, precision or head count.
        DataError: a table is missing or damaged.
    """
    version = _VERSIONS.get(gpu.name)
    if version is None:
        raise ConfigError(f"aiconfigurator tables: {', '.join(_VERSIONS)}, not {gpu.name}")
    start = data_folder / "cost"
    products = _Products(start / f"aiconfigurator_{version}_gemm.csv.gz", precision)
    heads = model.heads // tensor_parallel
    kv_heads = max(model.kv_heads // tensor_parallel, 1)
    query, key_value = heads * model.head_size, 2 * kv_heads * model.head_size
    width = model.intermediate / tensor_parallel
    tokens = np.array(_TOKENS, dtype=np.float64)
    layer = (
        products.seconds(query + key_value, model.hidden, _TOKENS)
        + products.seconds(model.hidden, query, _TOKENS)
        + products.seconds(2 * width, model.hidden, _TOKENS)
        + products.seconds(model.hidden, width, _TOKENS)
        + _SMALL_OPERATORS
    )
    plain = products if precision == "bf16" else _Products(products.path, "bf16")
    head = plain.seconds(model.vocabulary / tensor_parallel, model.hidden, _HEAD_TOKENS)
    return OperatorTables(
        source=f"aiconfigurator {version}: gemm, generation_attention, context_attention",
        tokens=tokens,
        layer_seconds=layer,
        head_tokens=np.array(_HEAD_TOKENS, dtype=np.float64),
        head_seconds=head,
        decode=_decode(start, version, heads, kv_heads, gpu.cache_bytes / (2.0 * key_value)),
        prompt=_prompt(start, version, heads, kv_heads),
    )


class _Products:
    """Times of matrix products of any size."""

    def __init__(self, path: Path, precision: str) -> None:
        import polars as pl

        self.path = path
        frame = read_table(path, ("gemm_dtype", "m", "n", "k", "latency_ms"))
        frame = frame.filter(pl.col("gemm_dtype") == _TYPES[precision])
        if frame.is_empty():
            raise ConfigError(f"{path}: no {precision} products: use another precision")
        rows = numbers(frame, path, "m", "n", "k", "latency_ms")
        self._times: dict[tuple[int, int], FloatArray] = {}
        for size in np.unique(rows[:, 1:3], axis=0):
            chosen = rows[(rows[:, 1] == size[0]) & (rows[:, 2] == size[1])]
            chosen = chosen[np.argsort(chosen[:, 0])]
            self._times[int(size[0]), int(size[1])] = chosen[:, [0, 3]]
        self._outputs = np.unique(rows[:, 1])
        self._inputs = np.unique(rows[:, 2])

    def seconds(self, outputs: float, inputs: float, tokens: tuple[int, ...]) -> FloatArray:
        """[len(tokens)] times of ``[tokens, inputs] x [inputs, outputs]``."""
        result: FloatArray = np.zeros(len(tokens))
        for (n, k), share in self._neighbours(outputs, inputs):
            measured = self._times[n, k]
            at = np.interp(tokens, measured[:, 0], measured[:, 1]) / 1e3
            result += share * np.log(at)
        return np.exp(result)

    def _neighbours(self, outputs: float, inputs: float) -> list[tuple[tuple[int, int], float]]:
        """Measured sizes around this one, with weights that interpolate in the logarithms.

        Past the largest, the last two extrapolate.
        """
        around_n = _bracket(self._outputs, outputs)
        around_k = _bracket(self._inputs, inputs)
        found = [
            ((n, k), a * b)
            for n, a in around_n
            for k, b in around_k
            if a * b and (n, k) in self._times
        ]
        total = sum(share for _, share in found)
        if abs(total - 1.0) > 1e-9:
            raise ConfigError(f"{self.path}: no products around {outputs:.0f} x {inputs:.0f}")
        return found


def _bracket(sizes: FloatArray, size: float) -> list[tuple[int, float]]:
    place = int(np.clip(np.searchsorted(sizes, size), 1, len(sizes) - 1))
    low, high = sizes[place - 1], sizes[place]
    share = float(np.log(size / low) / np.log(high / low))
    return [(int(low), 1.0 - share), (int(high), share)]


def _attention(path: Path, heads: int, kv_heads: int) -> pl.DataFrame:
    import polars as pl

    frame = read_table(
        path, ("kv_cache_dtype", "num_heads", "num_key_value_heads", "batch_size", "isl", "step")
    )
    found = frame.filter(
        (pl.col("kv_cache_dtype") == "bfloat16")
        & (pl.col("num_heads") == heads)
        & (pl.col("num_key_value_heads") == kv_heads)
    )
    if found.is_empty():
        raise ConfigError(f"{path}: no attention with {heads} query and {kv_heads} KV heads")
    return found


def _decode(
    start: Path, version: str, heads: int, kv_heads: int, cached_tokens: float
) -> FloatArray:
    """Decode rows, without those whose KV stayed in the GPU's cache while it was measured.

    The benchmark runs one layer again and again; in a model every layer reads other KV.
    """
    path = start / f"aiconfigurator_{version}_generation_attention.csv.gz"
    rows = numbers(_attention(path, heads, kv_heads), path, "batch_size", "step", "latency_ms")
    context = rows[:, 0] * (rows[:, 1] + 1.0)
    real = (rows[:, 1] < _NO_PAST) | (context > 2.0 * cached_tokens)
    rows = rows[real & (rows[:, 1] <= _LONGEST_PAST) & (rows[:, 0] <= _LARGEST_BATCH)]
    return np.stack([rows[:, 0], rows[:, 0] * (rows[:, 1] + 1.0), rows[:, 2] / 1e3], axis=1)


def _prompt(start: Path, version: str, heads: int, kv_heads: int) -> FloatArray:
    path = start / f"aiconfigurator_{version}_context_attention.csv.gz"
    rows = numbers(_attention(path, heads, kv_heads), path, "batch_size", "isl", "latency_ms")
    rows = rows[rows[:, 0] == 1.0]
    length = rows[:, 1]
    return np.stack([length, length * (length - 1.0) / 2.0, rows[:, 2] / 1e3], axis=1)
