"""V2: EAGLE and EAGLE-3 by batch size (arXiv 2503.01840, tables 3 and 5), four lines.

Llama-3.1-8B on MT-Bench, throughput over that without drafts: SGLang 0.4.4 on an H100 with chains
of 3, vLLM on an RTX 3090 with chains of 2. Both lines of a machine share every cost and differ in
how many drafts are accepted.

A request is one conversation of two turns; with prefixes kept, the second turn's own prompt is
a few tokens, which are left out.

* SGLang: its script (benchmark/mtbench/bench_sglang_eagle.py) sends the 80 conversations from as
  many threads as the batch, and divides by the time until the last has ended. With 64 threads 24
  requests decode in the mean, which is why the published lines are flat from batch 32 on.
* vLLM: the paper does not say how the batch was kept full. Here eight conversations follow each
  other in each place of the batch, at least 80 in all.

Stated: lengths of the answers to MT-Bench (measured for Vicuna-7B: Spec-Bench, file
`ANSWERS`), 76 prompt tokens (vLLM pull request 16035), step times on the H100 (`h100-llama-8b`)
less vLLM's overhead and plus SGLang's, which is what 158.34 tok/s of its documentation leave
(docs, speculative decoding, EAGLE-3), step times, memory and KV pool on the RTX 3090
(a roofline).
Fitted, for each machine, on three rows that are not counted (`FITTED_ROWS`): the hazard of
EAGLE-3, that of EAGLE, and what the engine's host spends per request in a step with drafts. Each is
the figure at which its row comes out as published.
Neither engine overlapped scheduling with the GPU while it speculated.
"""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path

import msgspec

from adaptive_spec.errors import DataError
from adaptive_spec.sim.hardware.catalogue import gpu_facts, model_facts
from adaptive_spec.sim.hardware.profile_file import HardwareProfile
from adaptive_spec.sim.hardware.registry import hardware_profile
from adaptive_spec.sim.hardware.roofline import VLLM_SYNC, roofline_profile
from adaptive_spec.sim.load.base import ClosedLoad
from benchmarks.profiles import published_profile
from benchmarks.validation.arms import Arms, one_per_record
from benchmarks.validation.row import Check, Row, cells_within, compared, mean_within
from benchmarks.validation.table_files import numbers, read_table

TITLE = "EAGLE-3 paper, Llama-3.1-8B, MT-Bench: throughput ratio by batch size"
FILE = "validation/eagle3_paper_table3_table5_speedup_vs_batch.csv"
ANSWERS = "acceptance/specbench_vicuna7b_vanilla_yukiki.jsonl.gz"
BOUND = 0.15
MEAN_BOUND = 0.07
FITTED_ROWS = (("EAGLE-3", 4), ("EAGLE-3", 24), ("EAGLE", 32))
"""Method and batch, on both machines: EAGLE-3's hazard, the host's time, EAGLE's hazard."""

_PROMPT_TOKENS = 76
_WAVES = 8
_FEWEST = 80
_SGLANG_PLAIN = 158.34
"""Tokens per second of one request: SGLang's documentation of EAGLE-3, one H100."""


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two experiments.

    Attributes:
        name: in labels, and in the table's column ``gpu``.
        profile: step times without the fitted figures.
        k: length of the chain.
        steady: eight conversations in each place of the batch; otherwise all 80, once.
        host_per_request: seconds per request of a step with drafts, fitted.
        hazards: probability that a draft is accepted, given the ones before it; by method, fitted.
    """

    name: str
    profile: HardwareProfile
    k: int
    steady: bool
    host_per_request: float
    hazards: dict[str, float]

    def arms(self, batch: int, conversations: tuple[int, ...]) -> Arms:
        """Return both arms at this batch size."""
        lengths = conversations
        if self.steady:
            needed = max(_FEWEST, _WAVES * batch)
            lengths = (lengths * (needed // len(lengths) + 1))[:needed]
        return Arms(
            load=lambda: ClosedLoad(one_per_record(lengths, _PROMPT_TOKENS), batch),
            lengths=lengths,
            profile=msgspec.structs.replace(
                self.profile, any_draft_per_request=self.host_per_request
            ),
        )


def machines() -> tuple[Machine, ...]:
    """Return the two experiments."""
    vllm_h100 = hardware_profile(published_profile("h100-llama-8b"))
    overhead = 1.0 / _SGLANG_PLAIN - (vllm_h100.fixed + vllm_h100.per_token)
    return (
        Machine(
            name="H100",
            profile=msgspec.structs.replace(vllm_h100, overhead=overhead),
            k=3,
            steady=False,
            host_per_request=0.176e-3,
            hazards={"EAGLE-3": 0.740, "EAGLE": 0.516},
        ),
        Machine(
            name="RTX3090",
            # What attention costs more there with drafts is part of the fitted host time.
            profile=msgspec.structs.replace(
                roofline_profile(
                    gpu_facts("rtx3090"), model_facts("llama-3.1-8b"), engine=VLLM_SYNC
                ),
                verify_per_context_token=0.0,
            ),
            k=2,
            steady=True,
            host_per_request=0.0,
            hazards={"EAGLE-3": 0.645, "EAGLE": 0.339},
        ),
    )


def rows(data_folder: Path, batches: Sequence[int] | None = None) -> list[Row]:
    """All 34 cells, or those of some batch sizes. Raises DataError."""
    conversations = answers(data_folder)
    found = []
    for machine in machines():
        plain: dict[int, float] = {}
        for method, batch, published in _cells(data_folder, machine.name):
            if batches is not None and batch not in batches:
                continue
            arms = machine.arms(batch, conversations)
            if batch not in plain:
                plain[batch] = arms.plain().throughput_tok_s
            hazard = machine.hazards[method]
            length = sum(hazard**j for j in range(machine.k + 1))
            counted = (method, batch) not in FITTED_ROWS
            note = f"hazard {hazard:g}, host {1e6 * machine.host_per_request:.0f} us per request"
            found.append(
                compared(
                    "V2",
                    f"{machine.name} {method}, batch {batch}",
                    published,
                    arms.speculating(machine.k, length).throughput_tok_s / plain[batch],
                    counted=counted,
                    bound=BOUND,
                    note=note if counted else f"one of three rows fitted on: {note}",
                )
            )
    return found


def checks(rows: list[Row]) -> list[Check]:
    """Every cell; then, line by line, the mean error and the side of 1 that each cell is on."""
    lines = list(dict.fromkeys(row.label.split(",")[0] for row in rows))
    found = [cells_within(rows)]
    for line in lines:
        of_line = [row for row in rows if row.label.startswith(f"{line},")]
        found += [mean_within(of_line, MEAN_BOUND, line), _crossover(of_line, line)]
    return found


def _crossover(rows: list[Row], line: str) -> Check:
    """Fitted rows included: the crossover is a property of the line."""
    wrong = [row for row in rows if (row.published < 1.0) != (row.simulated < 1.0)]
    below = [row.label.split(", ")[1] for row in rows if row.simulated < 1.0]
    found = f"first below 1 at {below[0]}" if below else "never below 1"
    if wrong:
        found += f"; on the wrong side: {', '.join(row.label for row in wrong)}"
    return Check(
        demand=f"{line}: every cell on the published side of 1", found=found, passed=not wrong
    )


def _cells(data_folder: Path, gpu: str) -> list[tuple[str, int, float]]:
    """(method, batch, published ratio) in the order of the file."""
    path = data_folder / FILE
    columns = ("batch_size", "throughput_ratio_vs_nospec")
    frame = read_table(path, ("gpu", "method", *columns))
    chosen = frame.filter(frame["gpu"] == gpu)
    if chosen.is_empty():
        raise DataError(f"{path}: no rows of gpu {gpu}")
    figures = numbers(chosen, path, *columns).tolist()
    return [
        (method, round(batch), ratio)
        for method, (batch, ratio) in zip(chosen["method"].to_list(), figures, strict=True)
    ]


class _Answers(msgspec.Struct):
    new_tokens: list[int]


def answers(data_folder: Path) -> tuple[int, ...]:
    """Output tokens of each MT-Bench conversation, both turns. Raises DataError."""
    path = data_folder / ANSWERS
    try:
        with gzip.open(path) as file:
            records = [msgspec.json.decode(line, type=_Answers) for line in file]
    except (OSError, EOFError, msgspec.DecodeError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from error
    found = tuple(sum(each.new_tokens) for each in records if len(each.new_tokens) == 2)
    if not found:
        raise DataError(f"{path}: no conversations of two turns")
    return found
