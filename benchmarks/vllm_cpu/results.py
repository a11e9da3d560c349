"""Medians, spreads and ratios out of the cells; what is left out; text and JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import msgspec

from demo.figures import Spread, rate, times

from .arms import NONE, OURS, OURS_COLD, OURS_HISTORY, SCHEDULE, STATIC, Arm, parse_arm
from .cells import Cell, Condition

TIMING_NOISE = 0.05
"""Between two cells of the same work, as repeats of no speculation show."""

Cells = dict[int, Cell]
"""Cells of one arm at one concurrency, by repeat."""


@dataclass(frozen=True)
class Row:
    """One arm at one concurrency.

    Attributes:
        tokens_per_second: over the repeats.
        over_none: this arm over no speculation, paired by repeat; None without that arm.
        over_best_static: over the static K whose median is highest here, known only afterwards.
        mean_k, accepted: drafts verified and accepted, per request and decoding step.
        rejected: repeats left out because their speed-up cannot be.
    """

    concurrency: int
    arm: Arm
    tokens_per_second: Spread | None
    over_none: Spread | None
    over_best_static: Spread | None
    mean_k: float
    accepted: float
    rejected: tuple[int, ...]


def impossible(cell: Cell, none: Cell) -> bool:
    """Is the speed-up above accepted + 1?

    A step that speculates is no shorter than one that doesn't, so something else disturbed one
    of the two. An arm that does not speculate either may be the faster one by `TIMING_NOISE`.
    """
    noise = 0.0 if cell.drafted else TIMING_NOISE
    return cell.tokens_per_second / none.tokens_per_second > cell.tokens_per_step * (1.0 + noise)


def rows(arms: Sequence[Arm], concurrencies: Sequence[int], cells: Sequence[Cell]) -> list[Row]:
    """A row per concurrency and arm that has cells."""
    made = []
    for concurrency in concurrencies:
        of = {
            arm.name: {
                cell.repeat: cell
                for cell in cells
                if cell.arm == arm.name and cell.concurrency == concurrency
            }
            for arm in arms
        }
        none = of.get(NONE, {})
        good = {name: _possible(mine, none) for name, mine in of.items()}
        best = best_static(good)
        made += [
            _row(arm, concurrency, of[arm.name], good[arm.name], none, good.get(best, {}))
            for arm in arms
            if of[arm.name]
        ]
    return made


def best_static(of: dict[str, Cells]) -> str:
    """Name of the static arm with the highest median; empty without any."""
    rates = {
        name: median(cell.tokens_per_second for cell in of[name].values())
        for name in STATIC
        if of.get(name)
    }
    return max(rates, key=lambda name: rates[name], default="")


def paired(these: Cells, those: Cells) -> Spread | None:
    """Ratio of throughputs, paired by repeat."""
    return Spread.of(
        [
            cell.tokens_per_second / those[repeat].tokens_per_second
            for repeat, cell in these.items()
            if repeat in those
        ]
    )


def noise(table: Sequence[Row]) -> float | None:
    """Median over all rows of (maximum - minimum) / median throughput; None without repeats."""
    spreads = [row.tokens_per_second for row in table]
    shares = [(s.high - s.low) / s.middle for s in spreads if s is not None and s.count > 1]
    return median(shares) if shares else None


def means(table: Sequence[Row]) -> dict[str, dict[str, float]]:
    """Geometric means of the median ratios over the concurrencies, by arm."""
    found: dict[str, dict[str, float]] = {}
    for name in dict.fromkeys(row.arm.name for row in table if row.arm.name != NONE):
        mine = [row for row in table if row.arm.name == name]
        for label in ("over_none", "over_best_static"):
            ratios = [getattr(row, label) for row in mine]
            if all(ratio is not None for ratio in ratios):
                mean = geometric_mean([ratio.middle for ratio in ratios])
                found.setdefault(name, {})[label] = round(mean, 4)
    return found


def text(condition: Condition, table: Sequence[Row], cells: Sequence[Cell]) -> str:
    """The table and what it says, for people."""
    heading = ("load", "arm", "tokens/s", "/ none", "/ best static", "K", "accepted")
    lines = [heading]
    for row in table:
        lines.append(
            (
                str(row.concurrency),
                row.arm.title,
                rate(row.tokens_per_second),
                times(row.over_none),
                times(row.over_best_static),
                f"{row.mean_k:.2f}",
                f"{row.accepted:.2f}",
            )
        )
    widths = [max(len(line[place]) for line in lines) for place in range(len(heading))]
    shown, concurrency = [condition.title, ""], ""
    for line in lines:
        if line[0] != concurrency and line is not heading:
            shown.append("")
            concurrency = line[0]
        shown.append("  ".join(part.ljust(width) for part, width in zip(line, widths, strict=True)))
    shown = [line.rstrip() for line in shown]
    return "\n".join([*shown, "", *remarks(table, cells)]) + "\n"


def remarks(table: Sequence[Row], cells: Sequence[Cell]) -> list[str]:
    """Means, noise and what was left out, a line each."""
    lines = []
    for name, ratios in means(table).items():
        if name in (OURS, OURS_HISTORY, OURS_COLD, SCHEDULE):
            parts = [f"{value:.3f} {key.replace('_', ' ')}" for key, value in ratios.items()]
            lines.append(f"{parse_arm(name).title}, mean over the loads: {', '.join(parts)}")
    if lines:
        lines.append(
            "The best static K is chosen afterwards, out of noisy figures, which flatters it: "
            "the schedule runs such a K once more."
        )
    share = noise(table)
    if share is not None:
        lines.append(f"noise: (maximum - minimum) / median of the repeats is {share:.1%} (median)")
    faults: Counter[str] = Counter()
    for cell in cells:
        faults.update((cell.plugin or {}).get("fail_opens", {}))
    if faults:
        lines.append(f"adaptive-spec failed, and vLLM's own K was used: {dict(faults)}")
    beside = max((cell.beside for cell in cells), default=0.0)
    if beside:
        lines.append(f"measured while other processes used about {beside:g} cores throughout")
    disturbed = sum(cell.disturbed for cell in cells)
    lines.append(f"disturbed by other processes, kept: {disturbed} of {len(cells)} cells")
    left_out = [row for row in table if row.rejected]
    lines.append(
        f"left out, speed-up above accepted + 1: {sum(len(row.rejected) for row in left_out)} cells"
    )
    lines += [
        f"  load {row.concurrency}, {row.arm.title}: repeat "
        + ", ".join(str(repeat + 1) for repeat in row.rejected)
        for row in left_out
    ]
    return lines


def save(
    folder: Path,
    condition: Condition,
    table: Sequence[Row],
    cells: Sequence[Cell],
    about: dict[str, Any],
) -> list[Path]:
    """Write NAME.txt and NAME.json; `about` says where, when, how."""
    shown = text(condition, table, cells)
    results = {
        **about,
        "condition": msgspec.to_builtins(condition),
        "table": [as_json(row) for row in table],
        "means": means(table),
        "noise": noise(table),
        "cells": [msgspec.to_builtins(cell) for cell in cells],
    }
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"vllm_cpu-{condition.name}{suffix}" for suffix in (".txt", ".json")]
    paths[0].write_text(shown, encoding="utf-8")
    paths[1].write_text(one_line_per_entry(results), encoding="utf-8")
    return paths


def as_json(row: Row) -> dict[str, Any]:
    """A row, JSON-compatible."""

    def spread(value: Spread | None) -> dict[str, float] | None:
        return None if value is None else {k: round(v, 4) for k, v in vars(value).items()}

    return {
        "concurrency": row.concurrency,
        "arm": row.arm.name,
        "tokens_per_second": spread(row.tokens_per_second),
        "over_none": spread(row.over_none),
        "over_best_static": spread(row.over_best_static),
        "mean_k": round(row.mean_k, 3),
        "accepted": round(row.accepted, 3),
        "rejected_repeats": list(row.rejected),
    }


def one_line_per_entry(results: dict[str, Any]) -> str:
    """JSON with one line for each key, and for each entry of a list: it is read in diffs."""
    parts = []
    for key, value in results.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            entries = ",\n".join(f"  {json.dumps(entry)}" for entry in value)
            parts.append(f" {json.dumps(key)}: [\n{entries}\n ]")
        else:
            parts.append(f" {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _row(arm: Arm, concurrency: int, mine: Cells, possible: Cells, none: Cells, best: Cells) -> Row:
    request_steps = max(sum(cell.request_steps for cell in mine.values()), 1)
    return Row(
        concurrency=concurrency,
        arm=arm,
        tokens_per_second=Spread.of([cell.tokens_per_second for cell in possible.values()]),
        over_none=paired(possible, none),
        over_best_static=paired(possible, best),
        mean_k=sum(cell.drafted for cell in mine.values()) / request_steps,
        accepted=sum(cell.accepted for cell in mine.values()) / request_steps,
        rejected=tuple(sorted(set(mine) - set(possible))),
    )


def _possible(cells: Cells, none: Cells) -> Cells:
    return {
        repeat: cell
        for repeat, cell in cells.items()
        if cell.arm == NONE or repeat not in none or not impossible(cell, none[repeat])
    }
