"""V8: time per output token without speculation: silicon samples in aiconfigurator.

They are from InferenceX and others; which of them, stands in ``aiconfigurator_silicon.json``.

Each is the mean of a closed loop. In steady state a step decodes B requests, and while one of them
emits its O output tokens, each of the B - 1 others brings its prompt once:

    TPOT = T(B) + (B - 1) / O * chunks * (T(B with a chunk of a prompt) - T(B))

B is the concurrency, or what the KV pool holds if that is less. T is the roofline's; figures that
were fitted for it were fitted on rows that are named here and not counted.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path

import msgspec

from adaptive_spec.errors import DataError
from adaptive_spec.sim.hardware.base import Hardware
from adaptive_spec.sim.hardware.catalogue import gpu_facts, model_facts
from adaptive_spec.sim.hardware.roofline import TENSORRT_LLM, VLLM_SYNC, roofline_profile
from benchmarks.validation.row import Check, Row, compared, counted_of
from benchmarks.validation.table_files import read_table

_SILICON = "aiconfigurator_silicon_agg_ttft_tpot.csv.gz"
PAIRS = Path(__file__).with_suffix(".json")
TITLE = "Time per output token without speculation"
_PAIRS_WANTED, _MEDIAN_BOUND = 3, 0.10
_CHUNK = 8192
_USABLE = 0.9


class SiliconPair(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One set of silicon rows: which they are, how they are simulated, what was fitted on them.

    Rows in fp8 have that precision in the file, rows in bf16 none.
    """

    table: str
    model_path: str
    gpu: str
    model: str
    weights: str = "bf16"
    kv: str = "bf16"
    """fp8 on B200: InferenceX's recipe of that time, benchmarks/70b_fp8_b200_docker.sh."""
    backend: str = "vllm"
    lengths: float = 1.0
    """Mean over nominal lengths: InferenceX draws them uniformly between 0.8 and 1."""
    fitted: dict[str, float] = {}
    """Columns and values of the rows fitted on; none if empty."""
    fitted_on: str = ""


def rows(data_folder: Path) -> list[Row]:
    """The silicon samples of dense models whose shape is known here."""
    import polars as pl

    pairs = msgspec.json.decode(PAIRS.read_bytes(), type=list[SiliconPair])
    columns = ("backend", "model_path", "system", "precision", "isl", "osl", "tp_size")
    path = data_folder / "cost" / _SILICON
    frame = read_table(path, (*columns, "concurrency", "silicon_ttft_ms", "silicon_tpot_ms"))
    found: list[Row] = []
    for pair in pairs:
        precision = pl.col("precision")
        chosen = frame.filter(
            (pl.col("backend") == pair.backend)
            & (pl.col("model_path") == pair.model_path)
            & (pl.col("system") == f"{pair.gpu}_sxm")
            & (precision == "fp8" if pair.weights == "fp8" else precision.is_null())
            & pl.col("concurrency").is_not_null()
        ).sort("tp_size", "isl", "osl", "concurrency")
        if chosen.is_empty():
            raise DataError(f"{path}: no rows of {pair.model_path} on {pair.gpu}")
        found.extend(_silicon_pair(pair, chosen.rows(named=True)))
    return found


def steady_tpot(
    hardware: Hardware, concurrency: float, prompt_tokens: float, output_tokens: float
) -> float:
    """Seconds per output token of a closed loop in steady state, without speculation."""
    pool = _USABLE * hardware.memory_bytes - hardware.weight_bytes
    mean_context = prompt_tokens + output_tokens / 2.0
    held = pool / hardware.kv_bytes_per_token / mean_context
    batch = max(1, round(min(concurrency, held)))
    context = round(batch * mean_context)
    decode = hardware.verify_seconds(batch, batch, context, 0, 0)
    chunks = max(1.0, prompt_tokens / _CHUNK)
    pairs = prompt_tokens * prompt_tokens / 2.0
    mixed = hardware.verify_seconds(
        batch, batch, context, round(prompt_tokens / chunks), round(pairs / chunks)
    )
    return decode + (batch - 1) / output_tokens * chunks * (mixed - decode)


def _silicon_pair(pair: SiliconPair, samples: list[dict[str, float]]) -> Iterator[Row]:
    gpu, model = gpu_facts(pair.gpu), model_facts(pair.model)
    machines: dict[int, Hardware] = {}
    peak, reached = gpu.bf16_flops, gpu.compute_efficiency
    if pair.weights == "fp8":
        peak, reached = gpu.fp8_flops, gpu.fp8_compute_efficiency
    share = max(_share_of_peak(sample, 2.0 * model.weights, pair, peak) for sample in samples)
    impossible = ""
    if share > reached:
        impossible = (
            f"computing all prompts would take up to {share:.0%} of the GPU's peak in this "
            f"series, and large products reach {reached:.0%}: prompts were cached, or computed "
            "elsewhere"
        )
    for sample in samples:
        parallel = int(sample["tp_size"])
        if parallel not in machines:
            machines[parallel] = Hardware(
                roofline_profile(
                    gpu,
                    model,
                    tensor_parallel=parallel,
                    precision=pair.weights,
                    kv_precision=pair.kv,
                    engine=TENSORRT_LLM if pair.backend == "trtllm" else VLLM_SYNC,
                )
            )
        concurrency = sample["concurrency"]
        prompt, output = sample["isl"] * pair.lengths, sample["osl"] * pair.lengths
        fitted = pair.fitted and all(sample[name] == at for name, at in pair.fitted.items())
        note = f"fitted on: {pair.fitted_on}" if fitted else impossible
        yield compared(
            table=pair.table,
            label=f"TP {parallel}, {sample['isl']}/{sample['osl']} tokens, {concurrency} requests",
            published=sample["silicon_tpot_ms"],
            simulated=1e3 * steady_tpot(machines[parallel], concurrency, prompt, output),
            counted=not note,
            note=note,
        )


def _share_of_peak(
    sample: dict[str, float], operations_per_token: float, pair: SiliconPair, peak: float
) -> float:
    """Share of the GPUs' peak, were every token of every request computed."""
    output = sample["osl"] * pair.lengths
    tokens = sample["isl"] * pair.lengths + output
    seconds = (sample["silicon_ttft_ms"] + output * sample["silicon_tpot_ms"]) / 1e3
    rate = sample["concurrency"] / seconds
    return operations_per_token * rate * tokens / (peak * sample["tp_size"])


def checks(rows: list[Row]) -> list[Check]:
    """At least three pairs of GPU and model, each with its median error within the bound."""
    by_pair: dict[str, list[float]] = {}
    for row in counted_of(rows):
        by_pair.setdefault(row.table, []).append(abs(row.error))
    medians = {pair: statistics.median(errors) for pair, errors in by_pair.items()}
    missed = {pair: median for pair, median in medians.items() if median > _MEDIAN_BOUND}
    found = [
        Check(
            demand=f"median error at most {_MEDIAN_BOUND:.0%} on at least {_PAIRS_WANTED} pairs of "
            "GPU and model",
            found=f"on {len(medians) - len(missed)} of {len(medians)}",
            passed=len(medians) - len(missed) >= _PAIRS_WANTED,
        )
    ]
    for pair, median in medians.items():
        found.append(
            Check(
                demand=f"{pair}: median error of {len(by_pair[pair])} rows at most "
                f"{_MEDIAN_BOUND:.0%}",
                found=f"{median:.1%}",
                passed=median <= _MEDIAN_BOUND,
            )
        )
    return found
