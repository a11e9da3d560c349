"""docs/measured.md and the table of README, from the cells."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .cells import Cell


def terminal_table(found: Sequence[Cell]) -> str:
    """A line for each cell."""
    lines = [
        f"{'section':12s} {'drafter':12s} {'device':9s} {'load':>8s} {'kind':6s} best  "
        "cold/best warm/best cold/none warm/none warm/table"
    ]
    for cell in found:
        key, arms = cell.key, cell.arms
        shown = []
        for arm, over in (
            ("goodput", ""),
            ("goodput-warm", ""),
            ("goodput", "none"),
            ("goodput-warm", "none"),
            ("goodput-warm", "table"),
        ):
            known = arm in arms and (over in arms if over else "k1" in arms)
            ratio = (cell.over(arm, over) if over else cell.over_best(arm)) if known else None
            shown.append(f"{ratio:9.3f}" if ratio else "        -")
        best = cell.best_k if "k1" in arms else "-"
        lines.append(
            f"{cell.section:12s} {key.method:12s} {cell.device:9s} {key.load:>8s} {key.kind:6s} "
            f"{best:>4s} {' '.join(shown)}"
            + (f"  DIFFERENT {cell.different}" if cell.different else "")
        )
    return "\n".join(lines)


def write_page(path: Path, found: Sequence[Cell]) -> None:
    """Write docs/measured.md."""
