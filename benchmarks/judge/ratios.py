"""Ratios of the arms of a cell, and their means over groups of equal weight."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import mean

from .arms import (
    GOODPUT,
    NONE,
    SGLANG_RULE,
    TABLE_CELL,
    TABLE_CONSTANT,
    TIERS,
    is_static,
    parse_arm,
)
from .cells import Cell
from .engines import SGLANG
from .rows import COLD, WARM, Row, RowFile


class Ratios:
    """The runs of one cell, all seeds."""

    def __init__(
        self, cell: Cell, file: RowFile, arms: Iterable[str], seeds: Sequence[int]
    ) -> None:
        self.cell = cell
        self._rows: dict[tuple[str, str], list[Row]] = {}
        for arm in arms:
            for part in ("", COLD, WARM, "restarted"):
                rows = [row for seed in seeds if (row := file.get(cell.name, arm, seed, part))]
                if rows:
                    self._rows[arm, part] = rows
        self.static = [arm for arm, part in self._rows if is_static(arm)]

    def rows(self, arm: str, part: str = "") -> list[Row]:
        """Runs of an arm, by seed."""
        return self._rows.get((arm, part), [])

    def rate(self, arm: str, part: str = "", charge: bool = False) -> float | None:
        """Mean score over the seeds; None where the arm was not run."""
        rows = self.rows(arm, part)
        return mean(row.score(self.cell.measure) for row in rows) if rows else None

    @property
    def best(self) -> str | None:
        """The static K with the best mean score."""
        return max(self.static, key=lambda arm: self.rate(arm) or 0.0) if self.static else None

    def over(self, arm: str, part: str, other: str | None) -> float | None:
        """Mean over the seeds of an arm's score over that of another, which learns nothing."""
        if other is None:
            return None
        rows, others = self.rows(arm, part), self.rows(other, "") or self.rows(other, WARM)
        if not rows or len(rows) != len(others):
            return None
        measure = self.cell.measure
        pairs = zip(rows, others, strict=True)
        return mean(row.score(measure) / base.score(measure) for row, base in pairs)

    def cold_over_best(self, arm: str) -> float | None:
        """The first steps of a cold policy: the best static K's time for as many tokens over its.

        The best K is that of these tokens.
        """
        rows = self.rows(arm, COLD)
        if not rows or not self.static:
            return None
        found = []
        for number, row in enumerate(rows):
            tokens = row.cold_tokens
            times = [
                self.rows(k)[number].until(tokens)
                for k in self.static
                if len(self.rows(k)) > number
            ]
            if not times:
                return None
            found.append(min(times) / row.until(tokens))
        return mean(found)


HEADS = ("cell", "best: over none", "/best", "/none", "cold 300", "/table", "/constant", "/tiers")


def terminal_table(
    cells: Sequence[Cell], file: RowFile, arms: Sequence[str], seeds: Sequence[int]
) -> str:
    """Rows of each learning arm by cell, and the geometric mean and the worst of each group."""
    lines: list[str] = []
    learning = [arm for arm in arms if arm not in (TABLE_CELL, TABLE_CONSTANT)]
    learning = [arm for arm in learning if parse_arm(arm).learns]
    for arm in learning or [GOODPUT]:
        lines.append(f"\n{arm}, warm, over the best static K, none, tables and tiers")
        lines.append(_line(HEADS))
        for group in dict.fromkeys(cell.group for cell in cells):
            lines.append(f"{group}:")
            columns: list[list[float]] = [[] for _ in HEADS[2:]]
            for cell in (cell for cell in cells if cell.group == group):
                ratios = Ratios(cell, file, arms, seeds)
                values = [
                    ratios.over(arm, WARM, ratios.best),
                    ratios.over(arm, WARM, NONE),
                    ratios.cold_over_best(arm),
                    ratios.over(arm, WARM, TABLE_CELL),
                    ratios.over(arm, WARM, TABLE_CONSTANT),
                    ratios.over(arm, WARM, SGLANG_RULE if cell.engine == SGLANG else TIERS),
                ]
                for column, value in zip(columns, values, strict=True):
                    if value is not None:
                        column.append(value)
                best, over = ratios.best, None
                if best:
                    over = ratios.over(best, "", NONE)
                shown = f"{best}: {over:.3f}" if best and over else best or ""
                lines.append(_line([cell.name, shown, *(_number(value) for value in values)]))
            lines.append(_line(["  mean", "", *(_number(_mean(column)) for column in columns)]))
            worst = [_number(min(column) if column else None) for column in columns]
            lines.append(_line(["  worst", "", *worst]))
    return "\n".join(lines)


def _mean(values: Sequence[float]) -> float | None:
    return math.exp(mean(map(math.log, values))) if values else None


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _line(cells: Sequence[str]) -> str:
    return f"{cells[0]:58} {cells[1]:>15} " + " ".join(f"{cell:>9}" for cell in cells[2:])
