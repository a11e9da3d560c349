"""Repeats of a quantity on a real clock, ratios paired by repeat, versions, Markdown tables."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import distributions
from statistics import median

import msgspec


class Spread(msgspec.Struct, frozen=True):
    """Median, minimum and maximum of repeats."""

    middle: float
    low: float
    high: float
    count: int = 1

    def text(self, digits: int = 2) -> str:
        """Median (minimum–maximum)."""
        return f"{self.middle:.{digits}f} ({self.low:.{digits}f}–{self.high:.{digits}f})"


def spread(values: Iterable[float]) -> Spread | None:
    """Return the spread of some values; None of none."""
    some = [round(value, 4) for value in values]
    return Spread(round(median(some), 4), min(some), max(some), len(some)) if some else None


def paired(these: Mapping[int, float], those: Mapping[int, float]) -> Spread | None:
    """Ratios of two arms in the same repeats; keys are repeats."""
    return spread(these[repeat] / those[repeat] for repeat in these if repeat in those)


def versions(*names: str) -> dict[str, str]:
    """Versions of Python and of those packages that are installed."""
    installed = {each.name: each.version for each in distributions()}
    found = {name: installed[name] for name in names if name in installed}
    return {"python": platform.python_version(), **found}


def markdown(heads: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """Return a table, without a line's end behind it."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)
