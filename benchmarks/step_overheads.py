"""Seconds of steps with and without an adapter, as medians, ratios and their intervals."""

from __future__ import annotations

import statistics
from typing import Any, NamedTuple

import numpy as np

_RESAMPLES = 300


class Spent(NamedTuple):
    """Seconds of one step."""

    critical: float
    total: float


def summary(spent: dict[str, list[Spent]]) -> dict[str, dict[str, Any]]:
    """Microseconds, and ratios to the first arm, by arm."""
    base = np.array(next(iter(spent.values())))
    found: dict[str, dict[str, Any]] = {}
    for name, steps in spent.items():
        here = np.array(steps)
        found[name] = {
            part: {
                "us": round(1e6 * float(np.median(here[:, column])), 1),
                "ratio": _ratio(here[:, column], base[:, column]),
                "interval": _interval(here[:, column], base[:, column]),
                "means": round(statistics.fmean(here[:, column]) / base[:, column].mean() - 1, 3),
            }
            for column, part in enumerate(Spent._fields)
        }
    return found


def _ratio(here: Any, base: Any) -> float:
    return round(float(np.median(here) / np.median(base)) - 1, 3)


def _interval(here: Any, base: Any) -> list[float]:
    draw = np.random.default_rng(0)
    rows = draw.integers(0, len(base), (_RESAMPLES, len(base)))
    ratios = np.median(here[rows], axis=1) / np.median(base[rows], axis=1) - 1
    return [round(float(value), 3) for value in np.quantile(ratios, [0.025, 0.975])]


def print_cell(title: str, arms: dict[str, dict[str, Any]]) -> None:
    """Print a line per arm."""
    print(title, flush=True)
    for name, parts in arms.items():
        shown = (
            f"{part} {of['us']:7.0f} us {of['ratio']:+.3f} {of['interval']} mean {of['means']:+.3f}"
            for part, of in parts.items()
        )
        print(f"  {name:20} {'; '.join(shown)}", flush=True)
