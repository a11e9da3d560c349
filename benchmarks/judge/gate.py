"""The gate of other changes: `make bench-quick`.

    python -m benchmarks.judge --quick             # exit status 1: lost something
    python -m benchmarks.judge --quick --renew     # what is measured now is what counts from now on

One seed of a cell or two of each group, `goodput` alone, cold and warm. Its scores are held against
those of the last committed run: the geometric mean of no group more than .5 % below, no cell more
than 2 %. Times are modelled: code that decides the same has the same scores, to the last digit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import mean

import msgspec

from .arms import GOODPUT
from .cells import Cell
from .results import QUICK
from .rows import COLD, WARM, RowFile

GROUP_BOUND, CELL_BOUND = 0.005, 0.02
SEED = 1


class Scores(msgspec.Struct, frozen=True):
    """Scores of a cell: of the first 300 steps cold, and warm."""

    group: str
    cold: float
    warm: float


def quick_cells(cells: Iterable[Cell]) -> list[Cell]:
    """The cells of the gate."""
    return [cell for cell in cells if cell.quick]


def scores(cells: Sequence[Cell], file: RowFile) -> dict[str, Scores]:
    """Return the scores that have been run."""
    found = {}
    for cell in cells:
        cold = file.get(cell.name, GOODPUT, SEED, COLD)
        warm = file.get(cell.name, GOODPUT, SEED, WARM)
        if cold and warm:
            first = cold.cold_tokens / cold.until(cold.cold_tokens)
            found[cell.name] = Scores(
                cell.group, float(f"{first:.6g}"), float(f"{warm.score(cell.measure):.6g}")
            )
    return found


def committed() -> dict[str, Scores]:
    """The last committed run."""
    return msgspec.json.decode(QUICK.read_bytes(), type=dict[str, Scores])


def renew(found: Mapping[str, Scores]) -> None:
    """Let these scores count from now on; cells that were not run keep theirs."""
    known = committed() if QUICK.exists() else {}
    text = msgspec.json.encode({**known, **found})
    QUICK.write_bytes(msgspec.json.format(text, indent=1) + b"\n")


def verdict(found: Mapping[str, Scores], before: Mapping[str, Scores]) -> tuple[str, bool]:
    """A table of the scores over those before, and whether all stay within the bounds."""
    lines = [f"{'over the last committed run':60} {'cold':>8} {'warm':>8}"]
    good = True
    for group in dict.fromkeys(each.group for each in found.values()):
        ratios: list[tuple[float, float]] = []
        for name, now in found.items():
            if now.group != group or name not in before:
                continue
            pair = now.cold / before[name].cold, now.warm / before[name].warm
            ratios.append(pair)
            good &= _line(lines, f"{group}: {name}", pair, CELL_BOUND)
        if ratios:
            means = [math.exp(mean(map(math.log, column))) for column in zip(*ratios, strict=True)]
            good &= _line(lines, f"{group}: mean", (means[0], means[1]), GROUP_BOUND)
    return "\n".join(lines), good


def _line(lines: list[str], name: str, pair: tuple[float, float], bound: float) -> bool:
    lost = min(pair) < 1.0 - bound
    shown = " ".join(f"{ratio:8.4f}" for ratio in pair)
    lines.append(f"{name:60} {shown}{'  LOST' if lost else ''}")
    return not lost
