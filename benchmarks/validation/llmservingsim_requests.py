"""TPOT of LLMServingSim's benchmark runs: 300 requests on real vLLM 0.19, without speculation.

The requests are replayed through the engine loop, with the runs' own engine settings.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np

from adaptive_spec.errors import DataError
from adaptive_spec.sim.acceptance.hazard import constant_model, generate
from adaptive_spec.sim.engine.options import EngineOptions
from adaptive_spec.sim.hardware.catalogue import gpu_facts, model_facts
from adaptive_spec.sim.hardware.profile_file import HardwareProfile
from adaptive_spec.sim.hardware.registry import hardware_profile
from adaptive_spec.sim.hardware.roofline import EngineOverhead, roofline_profile
from adaptive_spec.sim.load.base import OpenLoad
from adaptive_spec.sim.load.request import Request
from adaptive_spec.sim.results.result import Percentiles
from adaptive_spec.step import FloatArray
from benchmarks.validation.arms import simulated
from benchmarks.validation.row import Row, compared
from benchmarks.validation.table_files import numbers, read_table


class RequestReplay(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One run of LLMServingSim's benchmark, and what the engine was."""

    table: str
    file: str
    profile: str = ""
    """A shipped profile; empty: a roofline of Qwen3-32B on two GPUs."""
    kv_tokens: int | None = None
    """Contexts of the requests in the first four seconds over `kv_cache_pct` of the run."""
    fitted_on: str = ""


VLLM_019 = EngineOverhead(
    per_step=0.5e-3,
    per_request=0.0,
    source="a second without prompts of the run of Llama-3.1-8B; scheduling overlaps the GPU",
)

# `max_num_seqs` 128 and `max_num_batched_tokens` 2048 stand in the runs' meta.json.
_MAX_RUNNING = 128
_MAX_BATCH_TOKENS = 2048


def request_rows(data_folder: Path, replays: tuple[RequestReplay, ...]) -> list[Row]:
    """Mean, median and 90th percentile of TPOT over 300 requests, replayed."""
    found = []
    for replay in replays:
        if replay.profile:
            profile = hardware_profile(replay.profile)
        else:  # operators were measured on one GPU only; meta.json says 2
            profile = roofline_profile(
                gpu_facts("rtxpro6000"),
                model_facts("qwen3-32b"),
                tensor_parallel=2,
                engine=VLLM_019,
            )
        path = data_folder / "validation" / f"llmservingsim_vllm_requests_{replay.file}.csv"
        columns = ("arrival_s", "input_tokens", "output_tokens", "first_token_s", "last_token_s")
        requests = numbers(read_table(path, columns), path, *columns)
        arrival, prompt, output, first, last = requests[np.argsort(requests[:, 0])].T
        published = 1e3 * (last - first) / (output - 1.0)
        result = _replayed(profile, replay, arrival, prompt, output)
        figures = (
            ("mean", float(published.mean()), result.mean),
            ("median", float(np.median(published)), result.p50),
            ("90th percentile", float(np.percentile(published, 90)), result.p90),
        )
        for label, measured, replayed in figures:
            if replayed is None:
                raise DataError(f"{path}: no request ended")
            found.append(
                compared(
                    table=replay.table,
                    label=f"300 requests, {label} TPOT",
                    published=measured,
                    simulated=replayed,
                    counted=not replay.fitted_on,
                    note=f"fitted on: {replay.fitted_on}" if replay.fitted_on else "",
                )
            )
    return found


def _replayed(
    profile: HardwareProfile,
    replay: RequestReplay,
    arrival: FloatArray,
    prompt: FloatArray,
    output: FloatArray,
) -> Percentiles:
    """TPOT in milliseconds, as the engine loop has it."""
    requests = (
        Request(
            id=str(number),
            arrival=float(at),
            prompt_tokens=int(length),
            output_tokens=int(emitted),
            record=0,
        )
        for number, (at, length, emitted) in enumerate(zip(arrival, prompt, output, strict=True))
    )
    nothing = generate(constant_model(0.0), depth=1, seed=0, output_tokens=np.array([1]))
    options = EngineOptions(
        max_running=_MAX_RUNNING, max_batch_tokens=_MAX_BATCH_TOKENS, kv_tokens=replay.kv_tokens
    )
    return simulated(OpenLoad(requests), nothing, profile, 0, options=options).tpot_ms
