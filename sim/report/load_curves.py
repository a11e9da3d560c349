"""Throughput, TPOT and the ratio to the best fixed K against load, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from adaptive_spec.sim.report.comparison import (
    BEST_STATIC,
    Comparison,
    Family,
    Metric,
    Setting,
    Spread,
    of_best_static,
    throughput,
    tpot,
)
from adaptive_spec.sim.report.style import Looks, add_legend, positive_axis, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RATIO_FLOOR = 0.8
"""Ratios below it leave the picture: what matters lies within some per cent of 1."""


def draw_load_curves(
    pyplot: Any, comparison: Comparison, setting: Setting, family: Family, looks: Looks, path: Path
) -> Path:
    """Draw one setting on one family of loads."""
    panels = [("throughput [tokens/s]", throughput), ("mean TPOT [ms]", tpot)]
    if comparison.has_oracles:
        score = "throughput" if family.closed else "1/TPOT"
        panels.append((f"{score} / that of the best fixed K", of_best_static))
    figure, row = pyplot.subplots(
        1, len(panels), figsize=(4.3 * len(panels) + 1.6, 4.0), layout="constrained"
    )
    figure.suptitle(f"{setting.title}: {family.name}", x=0.01, ha="left", fontweight="bold")
    for axes, (title, metric) in zip(row, panels, strict=True):
        axes.set_title(title)
        lines = _draw(axes, comparison, setting, family, looks, metric)
        _load_axis(axes, family)
        if metric is of_best_static:
            axes.axhline(1.0, color="black", linestyle="--", linewidth=1.3, zorder=1)
            low = min((point.low for line in lines.values() for _, point in line), default=1.0)
            high = max((point.high for line in lines.values() for _, point in line), default=1.0)
            axes.set_ylim(max(low, RATIO_FLOOR) - 0.012, high + 0.012)
            if low < RATIO_FLOOR:
                note = f"what is below {RATIO_FLOOR:g} is cut off"
                axes.text(0.02, 0.02, note, transform=axes.transAxes, color="#777777", fontsize=8)
        else:
            positive_axis(axes)
    others = len(looks.others)
    add_legend(figure, row[0], f"grey: {others} other policies, see table" if others else "")
    return save(pyplot, figure, path)


def _draw(
    axes: Axes,
    comparison: Comparison,
    setting: Setting,
    family: Family,
    looks: Looks,
    metric: Metric,
) -> dict[str, list[tuple[float, Spread]]]:
    """Lines of means with the range over seeds; what was drawn, by name."""
    lines = {}
    for name in looks.drawing_order:
        if metric is of_best_static and name == BEST_STATIC:
            continue
        found = [
            (point.x, spread)
            for point in family.points
            if (spread := comparison.spread(setting, point.load, name, metric)) is not None
        ]
        if not found:
            continue
        lines[name] = found
        look = looks.of(name)
        xs = [x for x, _ in found]
        settings = look.settings
        if not family.axis:
            # Loads that have nothing in common: points, no line that would suggest a way between.
            settings |= {"linestyle": "", "marker": look.marker or "_"}
        axes.plot(xs, [spread.mean for _, spread in found], label=look.label or None, **settings)
        if look.label and any(spread.seeds > 1 for _, spread in found) and family.axis:
            lows = [spread.low for _, spread in found]
            highs = [spread.high for _, spread in found]
            axes.fill_between(xs, lows, highs, color=look.colour, alpha=0.15, linewidth=0)
    return lines


def _load_axis(axes: Axes, family: Family) -> None:
    axes.set_xlabel(family.axis or "load")
    values = [point.x for point in family.points]
    if not family.axis:
        names = [point.load.rpartition("/")[2] for point in family.points]
        axes.set_xticks(values, names, rotation=20, ha="right", fontsize=8)
        axes.set_xlim(-0.5, len(values) - 0.5)
    elif values[-1] / values[0] >= 4:
        axes.set_xscale("log", base=2)
        every = max(1, round(len(values) / 9))
        axes.set_xticks(values[::every], [f"{value:g}" for value in values[::every]])
        axes.minorticks_off()
