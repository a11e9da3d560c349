"""The table at the end: on the terminal, as Markdown and as JSON."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich import box
from rich.table import Table

from benchmarks.judge.arms import NONE
from benchmarks.judge.figures import markdown, versions

from .act_two import TOKENS, Cell
from .arms import KMAX, OURS, model_threads
from .figures import Row, same_texts, verdicts
from .model import KINDS
from .view import percent

DISTURBED_CORES = 0.25
"""Cores that other processes may use before the caption says so."""
HEADINGS = (
    "load",
    "server",
    "tokens/s",
    "/ no spec.",
    "adaptive-spec / this",
    "mean K",
    "accepted",
)


def table_rows(table: Sequence[Row]) -> list[tuple[str, ...]]:
    """The cells of the table as text."""
    return [
        (
            str(row.concurrency),
            row.title,
            row.tokens_per_second.text(1) if row.tokens_per_second else "–",
            *(
                over.text() if over else "–"
                for over in (row.over_no_speculation, row.ours_over_this)
            ),
            f"{row.mean_k:.2f}" if row.arm != NONE else "–",
            percent(row.acceptance),
        )
        for row in table
    ]


def rich_table(table: Sequence[Row]) -> Table:
    """For the terminal; ours is bold."""
    shown = Table(
        title="act two: the same work for every server", title_justify="left", box=box.SIMPLE_HEAD
    )
    for place, heading in enumerate(HEADINGS):
        shown.add_column(heading, justify="left" if place == 1 else "right")
    concurrency = None
    for row, texts in zip(table, table_rows(table), strict=True):
        if concurrency not in (None, row.concurrency):
            shown.add_section()
        concurrency = row.concurrency
        shown.add_row(*texts, style="bold" if row.arm == OURS else "")
    return shown


def page(table: Sequence[Row], caption: str, cells: Sequence[Cell]) -> str:
    """The same for a README."""
    lines = [
        markdown(HEADINGS, table_rows(table)),
        "",
        caption,
        "",
        *(f"- {line}" for line in remarks(table, cells)),
    ]
    return "\n".join(lines) + "\n"


def remarks(table: Sequence[Row], cells: Sequence[Cell]) -> list[str]:
    """Say what the table shows, what it lacks, and whether the servers answered the same."""
    return [*verdicts(table), *rejections(table), *same_texts(cells)]


def rejections(table: Sequence[Row]) -> list[str]:
    """What was left out, and why."""
    return [
        f"concurrency {row.concurrency}, {row.title}: repeat "
        f"{', '.join(str(repeat + 1) for repeat in row.rejected_repeats)} left out: the speed-up "
        "is above accepted drafts per step + 1, so something else disturbed it or its comparison"
        for row in table
        if row.rejected_repeats
    ]


def caption(repeats: int, act_one_seconds: float, others: float) -> str:
    """How the figures were made, while other processes used so many cores."""
    disturbed = (
        f"Other processes used {others:.1f} cores meanwhile: on an idle machine these figures and "
        "what adaptive-spec learns from step times are different. "
        if others > DISTURBED_CORES
        else ""
    )
    return (
        f"{disturbed}Load: requests under way. Measured in this run on {os.cpu_count()} CPU cores: "
        f"median (minimum–maximum) of {repeats} repeat{'s' if repeats > 1 else ''}, ratios paired "
        f"by repeat. Every server got the same instructions ({', '.join(KINDS)} in turn; greedy, "
        f"at most {TOKENS} tokens), in rotated order, the other servers paused; a fixed number of "
        "requests over HTTP in a closed loop, its end included. vLLM with SmolLM2-135M-Instruct "
        f"and n-gram drafts, float32, eager, {model_threads()} of the cores for the model. "
        f"adaptive-spec (K at most {KMAX}) started without a profile and had learned from act one "
        f"({act_one_seconds:.0f} s) and one discarded round, and goes on learning; the others had "
        "a discarded round too. Mean K and accepted are the engine's own counters."
    )


def environment() -> dict[str, Any]:
    """The machine and the software."""
    return {
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "processor": _processor(),
        **versions("vllm", "torch", "adaptive-spec", "numba"),
    }


def save(
    folder: Path, table: Sequence[Row], text: str, cells: Sequence[Cell], more: dict[str, Any]
) -> list[Path]:
    """Write `table.md` and `results.json`."""
    results = {
        "environment": environment(),
        "caption": text,
        "table": table,
        "cells": cells,
        **more,
    }
    paths = [folder / "table.md", folder / "results.json"]
    paths[0].write_text(page(table, text, cells), encoding="utf-8")
    paths[1].write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n")
    return paths


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())
