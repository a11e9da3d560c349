"""What the cells say: medians, spreads and ratios, and which cells are left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean, mean, median

from demo.figures import Spread

from .arms import NONE, STATIC, Arm
from .cells import Cell

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
            Of noisy figures the highest is too high: this is below 1 for an arm that is as good.
        over_tuned_static: over the static K that is best in the other repeats, as somebody would
            choose who measured it as often; None for a single repeat.
        mean_k, accepted: drafts verified and accepted, per request and decoding step.
        rejected: repeats left out because their speed-up cannot be.
    """

    concurrency: int
    arm: Arm
    tokens_per_second: Spread | None
    over_none: Spread | None
    over_best_static: Spread | None
    over_tuned_static: Spread | None
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
            _row(arm, concurrency, of[arm.name], good, good.get(best, {}))
            for arm in arms
            if of[arm.name]
        ]
    return made


def best_static(of: Mapping[str, Cells]) -> str:
    """Name of the static arm with the highest median; empty without any."""
    rates = {
        name: median(cell.tokens_per_second for cell in of[name].values())
        for name in STATIC
        if of.get(name)
    }
    return max(rates, key=lambda name: rates[name], default="")


def tuned_static(of: Mapping[str, Cells]) -> Cells:
    """For each repeat the cell of the static K that is best on average in the other repeats."""
    arms = {name: of[name] for name in STATIC if of.get(name)}
    found = {}
    for repeat in sorted({repeat for cells in arms.values() for repeat in cells}):
        others = {
            name: mean(rates)
            for name, cells in arms.items()
            if repeat in cells
            and (rates := [cell.tokens_per_second for r, cell in cells.items() if r != repeat])
        }
        if others:
            found[repeat] = arms[max(others, key=lambda name: others[name])][repeat]
    return found


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
        for label in ("over_none", "over_best_static", "over_tuned_static"):
            ratios = [getattr(row, label) for row in mine]
            if all(ratio is not None for ratio in ratios):
                over_loads = geometric_mean([ratio.middle for ratio in ratios])
                found.setdefault(name, {})[label] = round(over_loads, 4)
    return found


def _row(
    arm: Arm, concurrency: int, mine: Cells, possible_of: Mapping[str, Cells], best: Cells
) -> Row:
    possible = possible_of[arm.name]
    request_steps = max(sum(cell.request_steps for cell in mine.values()), 1)
    return Row(
        concurrency=concurrency,
        arm=arm,
        tokens_per_second=Spread.of([cell.tokens_per_second for cell in possible.values()]),
        over_none=paired(possible, possible_of.get(NONE, {})),
        over_best_static=paired(possible, best),
        over_tuned_static=paired(possible, tuned_static(possible_of)),
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
