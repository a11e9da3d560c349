"""V3: fixed K by batch size, vLLM, H100, Llama-3.1-8B with EAGLE-3, gsm8k.

From pramodjella/speculative-decoding-draft-length-audit. Its script submits a batch of questions,
64 tokens of output each, waits for all, and submits the next. It has warmed up with the same
questions, and vLLM keeps prefixes, so that only the last KV block of a prompt is computed.
Its scatter is about 10 % (two settings measured twice).

Stated: accepted lengths, of each K and batch, in the table itself; step times (`h100-llama-8b`).
Fitted: `DRAFT_PASS`, on the five rows at batch 1, which are not counted. The profile's own EAGLE
pass, .71 ms, is of an earlier vLLM and a full vocabulary head; SGLang's pull request 4247 gives
.43 ms for EAGLE-3 on an H100 (a step is 1.30 ms longer at 8 passes than at 5).
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from adaptive_spec.sim.hardware.profile_file import MeasuredDraft
from adaptive_spec.sim.hardware.registry import hardware_profile
from benchmarks.validation.arms import Arms, Batches, one_per_record
from benchmarks.validation.row import Check, Row, cells_within, compared
from benchmarks.validation.table_files import read_table

TITLE = "vLLM, H100, Llama-3.1-8B, EAGLE-3, gsm8k: speed-up by K and batch"
FILE = "unlicensed/validation_pramodjella_h100_llama8b_eagle3_k_x_batch.csv"
BOUND = 0.15
BEST_K_BOUND = 0.03
DRAFT_PASS = 0.365e-3
"""Seconds of a pass of the drafter: least squared relative error over the rows at batch 1."""

_WORKLOAD = "gsm8k"
_BATCHES = (8, 32, 64)
_DEEPEST = 4
_FITTED_BATCH = 1
_OUTPUT_TOKENS = 64
_PROMPT_TOKENS = 16
_REQUESTS = 320
_REQUESTS_ALONE = 40

Cell = tuple[int, int, float, float]
"""K, batch, published speed-up, published accepted length."""


def rows(data_folder: Path) -> list[Row]:
    """Speed-up by K and batch; batch 1, where the drafter was fitted, and 16 do not count."""
    found = []
    for batch in (_FITTED_BATCH, *sorted({*_BATCHES, 16})):
        arms = _arms(batch, DRAFT_PASS)
        plain = arms.plain().throughput_tok_s
        for k, _, published, accepted_length in _cells(data_folder, batch):
            note = f"accepted length {accepted_length:.2f} (stated)"
            if batch == _FITTED_BATCH:
                note = f"fitted on batch 1: {1e3 * DRAFT_PASS:.2f} ms per drafter pass; {note}"
            elif batch not in _BATCHES or k > _DEEPEST:
                note = f"for information, not in the table to reproduce; {note}"
            found.append(
                compared(
                    "V3",
                    f"batch {batch}, K = {k}",
                    published,
                    arms.speculating(k, accepted_length).throughput_tok_s / plain,
                    counted=batch in _BATCHES and k <= _DEEPEST,
                    bound=BOUND,
                    note=note,
                )
            )
    return found


def checks(rows: list[Row]) -> list[Check]:
    """Every cell, and the best K of every batch."""
    return [cells_within(rows), *(_best_k(rows, batch) for batch in _BATCHES)]


def _best_k(rows: list[Row], batch: int) -> Check:
    of_batch = [row for row in rows if row.counted and row.label.startswith(f"batch {batch},")]
    chosen = max(of_batch, key=lambda row: row.simulated)
    best = max(of_batch, key=lambda row: row.published)
    loss = 1.0 - chosen.published / best.published
    return Check(
        demand=f"batch {batch}: best K right, or within {BEST_K_BOUND:.0%} of the best",
        found=f"simulated best {chosen.label.split(', ')[1]}, {loss:.1%} below the published best",
        passed=loss <= BEST_K_BOUND,
    )


def _cells(data_folder: Path, batch: int) -> list[Cell]:
    import polars as pl

    columns = ("workload", "K", "batch", "net_speedup", "accept_len")
    frame = read_table(data_folder / FILE, columns)
    chosen = frame.filter((pl.col("workload") == _WORKLOAD) & (pl.col("batch") == batch))
    return [
        (int(k), batch, float(speed_up), float(length))
        for k, speed_up, length in chosen.sort("K").select("K", "net_speedup", "accept_len").rows()
    ]


def _arms(batch: int, draft_pass: float) -> Arms:
    requests = _REQUESTS if batch > 1 else _REQUESTS_ALONE
    lengths = (_OUTPUT_TOKENS,) * requests
    profile = hardware_profile("h100-llama-8b")
    eagle = msgspec.structs.replace(
        profile.drafts["eagle"], proposal=0.0, pass_=draft_pass, source="fitted: V3, batch 1"
    )
    drafts: dict[str, MeasuredDraft] = {**profile.drafts, "eagle": eagle}
    return Arms(
        load=lambda: Batches(one_per_record(lengths, _PROMPT_TOKENS), batch),
        lengths=lengths,
        profile=msgspec.structs.replace(profile, drafts=drafts),
    )
