"""Medians, spreads and ratios out of the cells of act two."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from benchmarks.judge.arms import NONE, Arm
from benchmarks.judge.figures import Spread, paired, spread

from .act_two import Cell
from .arms import OURS


class Row(msgspec.Struct, frozen=True):
    """One arm at one concurrency.

    Attributes:
        arm, title: its name, and as in tables.
        tokens_per_second: over the repeats.
        over_no_speculation: paired by repeat; None without that arm.
        ours_over_this: paired by repeat; None for ours itself.
        mean_k, acceptance: by the engine's own counters, all repeats together.
        rejected_repeats: those left out because their speed-up cannot be.
    """

    concurrency: int
    arm: str
    title: str
    tokens_per_second: Spread | None
    over_no_speculation: Spread | None
    ours_over_this: Spread | None
    mean_k: float
    acceptance: float | None
    rejected_repeats: tuple[int, ...]


def rows(arms: Sequence[Arm], concurrencies: Sequence[int], cells: Sequence[Cell]) -> list[Row]:
    """A row per concurrency and arm."""
    return [_row(arm, c, arms, cells) for c in concurrencies for arm in arms]


def _row(arm: Arm, concurrency: int, arms: Sequence[Arm], cells: Sequence[Cell]) -> Row:
    here = [cell for cell in cells if cell.concurrency == concurrency]
    of = {a.name: {c.repeat: c for c in here if c.arm == a.name} for a in arms}
    none = of.get(NONE, {})
    rates = {
        name: {
            repeat: cell.tokens_per_second
            for repeat, cell in mine.items()
            if name == NONE or repeat not in none or not exceeds_bound(cell, none[repeat])
        }
        for name, mine in of.items()
    }
    mine, all_mine = rates[arm.name], list(of[arm.name].values())
    drafted = sum(cell.drafted for cell in all_mine)
    steps = sum(cell.request_steps for cell in all_mine)
    return Row(
        concurrency=concurrency,
        arm=arm.name,
        title=arm.title,
        tokens_per_second=spread(mine.values()),
        over_no_speculation=paired(mine, rates.get(NONE, {})) if arm.name != NONE else None,
        ours_over_this=paired(rates.get(OURS, {}), mine) if arm.name != OURS else None,
        mean_k=round(drafted / max(steps, 1), 3),
        acceptance=round(sum(c.accepted for c in all_mine) / drafted, 4) if drafted else None,
        rejected_repeats=tuple(sorted(set(of[arm.name]) - set(mine))),
    )


def exceeds_bound(cell: Cell, none: Cell) -> bool:
    """Is the speed-up above accepted drafts per step + 1?

    A step that speculates is no shorter than one that doesn't, so something else has disturbed one
    of the two.
    """
    return cell.tokens_per_second / none.tokens_per_second > cell.accepted_per_step + 1.0


def same_texts(cells: Sequence[Cell]) -> list[str]:
    """How many answers are those without speculation; no line if there is none to compare."""
    none = {(cell.concurrency, cell.repeat): cell.texts for cell in cells if cell.arm == NONE}
    same = [
        mine == without
        for cell in cells
        if cell.arm != NONE and (cell.concurrency, cell.repeat) in none
        for mine, without in zip(cell.texts, none[cell.concurrency, cell.repeat], strict=True)
    ]
    line = f"{sum(same)} of {len(same)} answers are, letter by letter, those without speculation"
    return [line] if same else []


def best_other(table: Sequence[Row], concurrency: int) -> Row | None:
    """The fastest arm that isn't ours; known only afterwards."""
    others = [row for row in table if row.concurrency == concurrency and row.arm != OURS]
    return max(others, key=_rate, default=None)


def _rate(row: Row) -> float:
    return row.tokens_per_second.middle if row.tokens_per_second else 0.0


def verdicts(table: Sequence[Row]) -> list[str]:
    """One line per concurrency: ours against the best of the others."""
    lines = []
    for concurrency in dict.fromkeys(row.concurrency for row in table):
        best = best_other(table, concurrency)
        if best is None or best.ours_over_this is None:
            continue
        ratio = best.ours_over_this
        word = "level with" if ratio.low <= 1.0 <= ratio.high else "ahead of"
        if ratio.high < 1.0:
            word = "behind"
        if ratio.count < 2:
            word = "measured once against"
        lines.append(
            f"concurrency {concurrency}: adaptive-spec is {word} the best of the others, "
            f"{best.title}: {ratio.text()}"
        )
    return lines
