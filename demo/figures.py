"""Medians, spreads and ratios out of the cells of act two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from .act_two import Cell
from .arms import NONE, OURS, Arm


@dataclass(frozen=True)
class Spread:
    """Repeats of one quantity."""

    middle: float
    low: float
    high: float
    count: int = 1

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread | None:
        """Median, minimum and maximum; None without values."""
        return cls(median(values), min(values), max(values), len(values)) if values else None


@dataclass(frozen=True)
class Row:
    """One arm at one concurrency.

    Attributes:
        rate: tokens per second over the repeats.
        over_none: this arm over no speculation, paired by repeat; None without that arm.
        ours_over: ours over this arm, paired by repeat; None for ours itself.
        mean_k, acceptance: by the engine's own counters, all repeats together.
        rejected: repeats left out because their speed-up cannot be.
    """

    concurrency: int
    arm: Arm
    rate: Spread | None
    over_none: Spread | None
    ours_over: Spread | None
    mean_k: float
    acceptance: float | None
    rejected: tuple[int, ...]


def rows(arms: Sequence[Arm], concurrencies: Sequence[int], cells: Sequence[Cell]) -> list[Row]:
    """A row per concurrency and arm."""
    return [_row(arm, c, arms, cells) for c in concurrencies for arm in arms]


def _row(arm: Arm, concurrency: int, arms: Sequence[Arm], cells: Sequence[Cell]) -> Row:
    here = [cell for cell in cells if cell.concurrency == concurrency]
    of = {a.name: {c.repeat: c for c in here if c.arm == a.name} for a in arms}
    good = {a.name: _plausible(of[a.name], of.get(NONE, {})) for a in arms}
    mine, all_mine = good[arm.name], list(of[arm.name].values())
    drafted = sum(cell.drafted for cell in all_mine)
    steps = sum(cell.request_steps for cell in all_mine)
    ours, none = good.get(OURS, {}), good.get(NONE, {})
    return Row(
        concurrency=concurrency,
        arm=arm,
        rate=Spread.of([cell.tokens_per_second for cell in mine.values()]),
        over_none=_paired(mine, none) if arm.name != NONE else None,
        ours_over=_paired(ours, mine) if arm.name != OURS else None,
        mean_k=drafted / max(steps, 1),
        acceptance=sum(c.accepted for c in all_mine) / drafted if drafted else None,
        rejected=tuple(sorted(set(of[arm.name]) - set(mine))),
    )


def _plausible(cells: dict[int, Cell], none: dict[int, Cell]) -> dict[int, Cell]:
    """Without repeats that are faster, against no speculation, than tokens per step allow.

    A step that speculates is no shorter than one that doesn't, so a larger speed-up means that
    something else has disturbed one of the two.
    """
    return {
        repeat: cell
        for repeat, cell in cells.items()
        if repeat not in none or cell.arm == NONE or not exceeds_bound(cell, none[repeat])
    }


def exceeds_bound(cell: Cell, none: Cell) -> bool:
    """Is the speed-up above accepted drafts per step + 1?"""
    return cell.tokens_per_second / none.tokens_per_second > cell.accepted_per_step + 1.0


def _paired(these: dict[int, Cell], those: dict[int, Cell]) -> Spread | None:
    return Spread.of(
        [
            cell.tokens_per_second / those[repeat].tokens_per_second
            for repeat, cell in these.items()
            if repeat in those
        ]
    )


def best_other(table: Sequence[Row], concurrency: int) -> Row | None:
    """The fastest arm that isn't ours; known only afterwards."""
    others = [row for row in table if row.concurrency == concurrency and row.arm.name != OURS]
    return max(others, key=lambda row: row.rate.middle if row.rate else 0.0, default=None)


def verdicts(table: Sequence[Row]) -> list[str]:
    """One line per concurrency: ours against the best of the others."""
    lines = []
    for concurrency in dict.fromkeys(row.concurrency for row in table):
        best = best_other(table, concurrency)
        if best is None or best.ours_over is None:
            continue
        ratio = best.ours_over
        word = "level with" if ratio.low <= 1.0 <= ratio.high else "ahead of"
        if ratio.high < 1.0:
            word = "behind"
        if ratio.count < 2:
            word = "measured once against"
        lines.append(
            f"concurrency {concurrency}: adaptive-spec is {word} the best of the others, "
            f"{best.arm.title}: {times(ratio)}"
        )
    return lines


def times(spread: Spread | None) -> str:
    """A ratio with its spread, for people."""
    if spread is None:
        return "–"
    return f"{spread.middle:.2f} ({spread.low:.2f}–{spread.high:.2f})"


def rate(spread: Spread | None) -> str:
    """Tokens per second with their spread, for people."""
    if spread is None:
        return "–"
    return f"{spread.middle:.1f} ({spread.low:.1f}–{spread.high:.1f})"


def as_json(row: Row) -> dict[str, Any]:
    """A row, JSON-compatible."""

    def spread(value: Spread | None) -> dict[str, float] | None:
        return None if value is None else {k: round(v, 4) for k, v in vars(value).items()}

    return {
        "concurrency": row.concurrency,
        "arm": row.arm.name,
        "tokens_per_second": spread(row.rate),
        "over_no_speculation": spread(row.over_none),
        "ours_over_this": spread(row.ours_over),
        "mean_k": round(row.mean_k, 3),
        "acceptance": None if row.acceptance is None else round(row.acceptance, 4),
        "rejected_repeats": list(row.rejected),
    }
