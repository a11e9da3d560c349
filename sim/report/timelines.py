"""K over time of the policies that change it, under the batch size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from adaptive_spec.sim.policy_choice import parse_policy
from adaptive_spec.sim.report.comparison import BEST_STATIC, Comparison, Setting
from adaptive_spec.sim.report.style import Looks, add_legend, save
from adaptive_spec.sim.results.result import Timeline
from adaptive_spec.step import FloatArray

MOST_LINES = 5
FIXED = "off", "static"
"""Policies whose K never changes, but where a request has few tokens left."""


def eventful_cells(comparison: Comparison, most: int) -> list[tuple[Setting, str]]:
    """Settings and loads where the batch size changes most, at most one per load.

    Where nothing changes, as in a closed loop, the one in the middle shows most of K.
    """
    found: dict[str, tuple[float, Setting]] = {}
    for setting in comparison.settings:
        for family in comparison.families(setting):
            middle = family.points[len(family.points) // 2].load
            for point in family.points:
                lines = _timelines(comparison, setting, point.load)
                if not lines:
                    continue
                batch = np.array(next(iter(lines.values())).batch_size)
                change = float(batch.std() / max(batch.mean(), 1e-9))
                # A closed loop fills and empties a little at its ends; that is no event.
                liveliness = 0.0 if family.closed and change < 0.2 else 1.0 + change
                liveliness += 0.5 * (point.load == middle)
                if liveliness > found.get(point.load, (0.0, setting))[0]:
                    found[point.load] = liveliness, setting
    ranked = sorted(found, key=lambda load: -found[load][0])
    return [(found[load][1], load) for load in ranked[:most]]


def draw_timeline(
    pyplot: Any, comparison: Comparison, setting: Setting, load: str, looks: Looks, path: Path
) -> Path:
    """Draw one cell, of the first seed."""
    lines = _timelines(comparison, setting, load)
    known = tuple(name for name in looks.highlighted if name in lines)
    shown = (_moving(comparison, known) or list(known))[:MOST_LINES]
    figure, (top, bottom) = pyplot.subplots(
        2,
        sharex=True,
        figsize=(11.5, 5.0),
        gridspec_kw={"height_ratios": [1, 2]},
        layout="constrained",
    )
    figure.suptitle(f"{setting.title}: {load}", x=0.01, ha="left", fontweight="bold")
    first = lines[shown[0]] if shown else next(iter(lines.values()))
    top.fill_between(first.now, first.batch_size, color="#cfd8dc", linewidth=0)
    top.set_ylabel("batch size\n[requests]")
    top.set_ylim(bottom=0)
    for name in (*reversed(shown), BEST_STATIC):
        line = lines.get(name)
        if line is None:
            continue
        look = looks.of(name)
        settings = look.settings | {"marker": "", "linewidth": 1.4}
        bottom.plot(line.now, _k(line), label=look.label, **settings)
    bottom.set_ylabel("verified drafts K per request\nand step, mean [tokens]")
    bottom.set_xlabel("simulated time [s]")
    bottom.set_ylim(bottom=-0.1)
    drawn = [lines[name] for name in (*shown, BEST_STATIC) if name in lines]
    # The warm-up is not in a timeline.
    bottom.set_xlim(min(line.now[0] for line in drawn), max(line.now[-1] for line in drawn))
    add_legend(figure, bottom)
    return save(pyplot, figure, path)


def _timelines(comparison: Comparison, setting: Setting, load: str) -> dict[str, Timeline]:
    """Return the timelines that were kept, by policy and for the best fixed K."""
    found: dict[str, Timeline] = {}
    for name in (*comparison.policies, BEST_STATIC):
        for row in comparison.rows(setting, load, name):
            if row.result.timeline.now:
                found.setdefault(name, row.result.timeline)
    return found


def _moving(comparison: Comparison, names: tuple[str, ...]) -> list[str]:
    """Policies that can change K."""
    texts = {e.label: e.policy for e in comparison.results.config.policy_entries()}
    return [name for name in names if parse_policy(texts[name]).name not in FIXED]


def _k(timeline: Timeline) -> FloatArray:
    """K, nan where nothing was decoding."""
    return np.where(np.array(timeline.batch_size) > 0, np.array(timeline.k), np.nan)
