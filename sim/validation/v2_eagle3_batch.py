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
(`rtx3090-llama-8b`, a roofline).
Fitted, for each machine, on three rows that are not counted (`FITTED_ROWS`): the hazard of
EAGLE-3, that of EAGLE, and what the engine's host spends per request in a step with drafts. Each is
the figure at which its row comes out as published.
Neither engine overlapped scheduling with the GPU while it speculated.
"""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import msgspec

from adaptive_spec.errors import DataError
from adaptive_spec.sim.hardware.profile_file import HardwareProfile
from adaptive_spec.sim.hardware.registry import hardware_profile
from adaptive_spec.sim.hardware.table_files import numbers, read_table
from adaptive_spec.sim.load.base import ClosedLoad
from adaptive_spec.sim.validation.arms import Arms, one_per_record
from adaptive_spec.sim.validation.row import Check, Row, cells_within, compared, mean_within

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


class Fitted(msgspec.Struct, frozen=True):
    """What is fitted for one machine.

    Attributes:
        host_per_request: seconds per request of a step with drafts.
        eagle3, eagle: probability that a draft is accepted, given the ones before it.
    """

    host_per_request: float
    eagle3: float
    eagle: float

    def hazard(self, method: str) -> float:
        """Of EAGLE or EAGLE-3."""
        return self.eagle3 if method == "EAGLE-3" else self.eagle


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two experiments.

    Attributes:
        name: in labels, and in the table's column ``gpu``.
        k: length of the chain.
        steady: eight conversations in each place; else all 80, once.
        fitted: see there.
    """

    name: str
    k: int
    steady: bool
    fitted: Fitted

    @property
    def profile(self) -> HardwareProfile:
        """Step times without what is fitted."""
        if self.name == "RTX3090":
            return hardware_profile("rtx3090-llama-8b")
        profile = hardware_profile("h100-llama-8b")
        pass_seconds = profile.fixed + profile.per_token
        return msgspec.structs.replace(profile, overhead=1.0 / _SGLANG_PLAIN - pass_seconds)

    def arms(self, batch: int, conversations: Sequence[int], host_per_request: float) -> Arms:
        """Both arms at this batch size."""
        lengths = tuple(conversations)
        if self.steady:
            needed = max(_FEWEST, _WAVES * batch)
            lengths = (lengths * (needed // len(lengths) + 1))[:needed]
        return Arms(
            load=lambda: ClosedLoad(one_per_record(lengths, _PROMPT_TOKENS), batch),
            lengths=lengths,
            profile=msgspec.structs.replace(self.profile, any_draft_per_request=host_per_request),
        )

    def ratio(
        self, batch: int, conversations: Sequence[int], hazard: float, host_per_request: float
    ) -> float:
        """Throughput with drafts over that without."""
        arms = self.arms(batch, conversations, host_per_request)
        length = sum(hazard**j for j in range(self.k + 1))
        speculating = arms.speculating(self.k, length).throughput_tok_s
        return speculating / _plain(self.name, batch, tuple(conversations))


MACHINES = (
    Machine(name="H100", k=3, steady=False, fitted=Fitted(0.176e-3, 0.740, 0.516)),
    Machine(name="RTX3090", k=2, steady=True, fitted=Fitted(0.049e-3, 0.645, 0.339)),
)


def rows(data_folder: Path, batches: Sequence[int] | None = None) -> list[Row]:
    """All 34 cells, or those of some batch sizes. Raises DataError."""
    conversations = answers(data_folder)
    found = []
    for machine in MACHINES:
        fitted = machine.fitted
        for method, batch, published in _cells(data_folder, machine):
            if batches is not None and batch not in batches:
                continue
            hazard = fitted.hazard(method)
            counted = (method, batch) not in FITTED_ROWS
            note = f"hazard {hazard:g}, host {1e6 * fitted.host_per_request:.0f} us per request"
            found.append(
                compared(
                    "V2",
                    f"{machine.name} {method}, batch {batch}",
                    published,
                    machine.ratio(batch, conversations, hazard, fitted.host_per_request),
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


@lru_cache(maxsize=64)
def _plain(machine: str, batch: int, conversations: tuple[int, ...]) -> float:
    """Throughput without drafts, which no fitted figure moves."""
    (found,) = (each for each in MACHINES if each.name == machine)
    return found.arms(batch, conversations, 0.0).plain().throughput_tok_s


def _cells(data_folder: Path, machine: Machine) -> list[tuple[str, int, float]]:
    """(method, batch, published ratio) in the order of the file."""
    path = data_folder / FILE
    columns = ("batch_size", "throughput_ratio_vs_nospec")
    frame = read_table(path, ("gpu", "method", *columns))
    words = frame.select("gpu", "method").rows()
    figures = numbers(frame, path, *columns).tolist()
    found = [
        (method, round(batch), ratio)
        for (gpu, method), (batch, ratio) in zip(words, figures, strict=True)
        if gpu == machine.name
    ]
    if not found:
        raise DataError(f"{path}: no rows of gpu {machine.name}")
    return found


class _Answers(msgspec.Struct):
    new_tokens: list[int]


@lru_cache(maxsize=2)
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
