"""Table and JSON file of one condition."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from demo.figures import Spread, rate, times

from .arms import OURS, OURS_COLD, OURS_HISTORY, SCHEDULE, parse_arm
from .cells import Cell, Condition
from .ratios import Row, means, noise


def text(condition: Condition, table: Sequence[Row], cells: Sequence[Cell]) -> str:
    """The table and what it says, for people."""
    over = ("/ none", "/ best static", "/ tuned static")
    heading = ("load", "arm", "tokens/s", *over, "K", "accepted")
    lines = [heading]
    for row in table:
        lines.append(
            (
                str(row.concurrency),
                row.arm.title,
                rate(row.tokens_per_second),
                times(row.over_none),
                times(row.over_best_static),
                times(row.over_tuned_static),
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
            "The best static K is chosen afterwards, out of noisy figures, which flatters it; the "
            "tuned one is, for each repeat, the best of the other repeats."
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
) -> Path:
    """Write the JSON file of a condition; `about` says where, when and how it was measured."""
    results = {
        **about,
        "condition": msgspec.to_builtins(condition),
        "table": [as_json(row) for row in table],
        "means": means(table),
        "noise": noise(table),
        "cells": [msgspec.to_builtins(cell) for cell in cells],
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"vllm_cpu-{condition.name}.json"
    path.write_text(one_line_per_entry(results), encoding="utf-8")
    return path


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
        "over_tuned_static": spread(row.over_tuned_static),
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
