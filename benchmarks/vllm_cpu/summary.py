"""All conditions that have results, together: one condition alone is too noisy to tell 2 %."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

import msgspec

from .arms import NONE, STATIC, parse_arm
from .cells import Cell, Condition
from .collection import conditions
from .engine import MIXED
from .errors import BenchmarkError
from .ratios import Row, rows

SHOWN = ("schedule", "ours", "ours-history", "ours-cold")
OVER = {"over_none": "/ none", "over_best_static": "/ best", "over_tuned_static": "/ tuned"}


class Measured(NamedTuple):
    """One condition and its rows."""

    condition: Condition
    rows: Sequence[Row]


class Mean(NamedTuple):
    """Geometric mean of ratios, one for each condition and load.

    Attributes:
        value: the mean.
        error: its standard error, as a share; 0 for a single ratio.
        lowest: of the ratios.
        count: how many.
    """

    value: float
    error: float
    lowest: float
    count: int

    @classmethod
    def of(cls, ratios: Sequence[float]) -> Mean | None:
        """None without ratios."""
        if not ratios:
            return None
        logs = [math.log(ratio) for ratio in ratios]
        error = stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else 0.0
        return cls(math.exp(mean(logs)), error, min(ratios), len(ratios))

    def __str__(self) -> str:
        if self.count == 1:
            return f"{self.value:.3f}"
        return f"{self.value:.3f} ± {self.error:.3f} (lowest {self.lowest:.2f}, of {self.count})"


def read(paths: Iterable[Path], series: str | None = None) -> list[Measured]:
    """Compute the rows of result files or collections again from their cells.

    Args:
        paths: files of ``vllm_cpu.py``, or of ``vllm_cpu_summary.py --collect``.
        series: of a collection, the series to take; None for all.

    Raises:
        BenchmarkError: for a file of another benchmark.
    """
    found = []
    for path in sorted(paths):
        try:
            content: Any = json.loads(path.read_text(encoding="utf-8"))
            measured = [
                (msgspec.convert(condition, Condition), msgspec.convert(cells, list[Cell]))
                for condition, cells in conditions(content, series)
            ]
        except (KeyError, TypeError, ValueError) as error:
            raise BenchmarkError(f"{path}: no results of vllm_cpu.py ({error})") from error
        for condition, cells in measured:
            arms = [parse_arm(name) for name in dict.fromkeys(cell.arm for cell in cells)]
            loads = sorted({cell.concurrency for cell in cells})
            found.append(Measured(condition, rows(arms, loads, cells)))
    return found


def text(measured: Sequence[Measured]) -> str:
    """A table for each group of conditions, and one of all."""
    parts = []
    for title, group in groups(measured):
        parts.append("\n".join([title, *_lines(group)]))
    return "\n\n".join(parts) + "\n"


def groups(measured: Sequence[Measured]) -> list[tuple[str, list[Measured]]]:
    """By what is mixed, the draft and how the target samples; then all, then all by load."""
    found: dict[str, list[Measured]] = {}
    for each in measured:
        condition = each.condition
        kinds = "kinds mixed" if condition.workload == MIXED else "a kind alone"
        how = f"temperature {condition.temperature:g}, {condition.draft_sampling} drafts"
        how = how if condition.temperature > 0 else "greedy"
        found.setdefault(f"{condition.drafter}, {kinds}, {how}", []).append(each)
    everything = [(f"all conditions ({len(measured)})", list(measured))]
    loads = sorted({row.concurrency for each in measured for row in each.rows})
    by_load = [
        (
            f"all conditions, {load} clients",
            [
                Measured(each.condition, [row for row in each.rows if row.concurrency == load])
                for each in measured
            ],
        )
        for load in loads
    ]
    return [*sorted(found.items()), *everything, *by_load]


def ratios(group: Sequence[Measured], arm: str, over: str) -> list[float]:
    """The median ratio of each condition and load that has one."""
    found = []
    for each in group:
        for row in each.rows:
            spread = getattr(row, over)
            if row.arm.name == arm and spread is not None:
                found.append(spread.middle)
    return found


def over_one_table(group: Sequence[Measured], arm: str) -> list[float]:
    """Over the static K that is best for all workloads together, for each draft, sampling and load.

    That is what a table of K by batch size can express where clients send one kind of prompt for a
    while and another later. Only where several workloads were measured.
    """
    together: dict[tuple[Any, ...], list[dict[str, float]]] = {}
    for each in group:
        condition = each.condition
        for load in sorted({row.concurrency for row in each.rows}):
            rates = {
                row.arm.name: row.tokens_per_second.middle
                for row in each.rows
                if row.concurrency == load and row.tokens_per_second is not None
            }
            if arm in rates and any(name in rates for name in STATIC):
                key = condition.draft, condition.temperature, condition.draft_sampling, load
                together.setdefault(key, []).append(rates)
    found = []
    for workloads in together.values():
        common = [name for name in STATIC if all(name in rates for rates in workloads)]
        if len(workloads) < 2 or not common:
            continue
        best = max(common, key=lambda name: math.prod(rates[name] for rates in workloads))
        found += [rates[arm] / rates[best] for rates in workloads]
    return found


def _lines(group: Sequence[Measured]) -> list[str]:
    present = {row.arm.name for each in group for row in each.rows} - {NONE}
    lines = []
    for arm in SHOWN:
        if arm in present:
            parts = {label: _mean(group, arm, over) for over, label in OVER.items()}
            parts["/ one K"] = Mean.of(over_one_table(group, arm))
            shown = "  ".join(f"{label} {found}" for label, found in parts.items() if found)
            lines.append(f"  {parse_arm(arm).title:28s} {shown}")
    return lines


def _mean(group: Sequence[Measured], arm: str, over: str) -> Mean | None:
    return Mean.of(ratios(group, arm, over))
