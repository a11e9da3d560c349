"""Figures of the report: metrics against load, and K over time, in one style."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from adaptive_spec.errors import DataError, missing_extra
from adaptive_spec.sim.policy_choice import parse_policy
from adaptive_spec.sim.report.comparison import (
    BEST_STATIC,
    FORESIGHT,
    NO_SPECULATION,
    REFERENCES,
    Comparison,
    Family,
    Metric,
    Setting,
    Spread,
    of_best_static,
    throughput,
    tpot,
)
from adaptive_spec.sim.results.result import Timeline
from adaptive_spec.step import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, told apart with any kind of colour vision; yellow is too faint.
_COLOURS = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
_MARKERS = "o", "s", "^", "D", "v", "P"
OTHERS_COLOUR = "#b8b8b8"
DPI = 110
RATIO_FLOOR = 0.8
"""Ratios below it leave the picture: what matters lies within some per cent of 1."""
MOST_LINES = 5
FIXED = "off", "static"
"""Policies whose K never changes, but where a request has few tokens left."""


@dataclass(frozen=True)
class Look:
    """Style of a policy or reference; one without a label is drawn in the background."""

    label: str
    colour: str
    marker: str = ""
    line: str = "-"
    width: float = 1.8

    @property
    def settings(self) -> dict[str, Any]:
        """Keyword arguments of matplotlib's `plot`."""
        return {
            "color": self.colour,
            "marker": self.marker,
            "linestyle": self.line,
            "linewidth": self.width,
            "markersize": 4.5,
            "zorder": 2.5 if self.label else 1.5,
        }


_REFERENCE_LOOKS = {
    BEST_STATIC: Look(BEST_STATIC, "#000000", line="--", width=1.3),
    NO_SPECULATION: Look(NO_SPECULATION, "#555555", line=":", width=1.5),
    FORESIGHT: Look(FORESIGHT, "#777777", line="-.", width=1.0),
}


class Looks:
    """The look of every policy, the same in all figures.

    The default policy and the best ones have a colour; with more policies than colours the rest
    is grey.

    Args:
        comparison: whose policies are ranked.
    """

    def __init__(self, comparison: Comparison) -> None:
        ranked = list(comparison.policies)
        if comparison.default is not None:
            ranked.remove(comparison.default)
            ranked.insert(0, comparison.default)
        self.highlighted = tuple(ranked[: len(_COLOURS)])
        self.others = tuple(ranked[len(_COLOURS) :])
        self._looks = dict(_REFERENCE_LOOKS)
        for name, colour, marker in zip(self.highlighted, _COLOURS, _MARKERS, strict=False):
            self._looks[name] = Look(name, colour, marker)

    def of(self, name: str) -> Look:
        """Return the look of a policy or reference."""
        return self._looks.get(name) or Look("", OTHERS_COLOUR, width=0.9)

    @property
    def drawing_order(self) -> tuple[str, ...]:
        """Names in drawing order; the front one comes last."""
        return (*self.others, *reversed(REFERENCES), *reversed(self.highlighted))


def load_pyplot() -> Any:
    """The plotting module, without a display. Raises ConfigError if it is not installed."""
    try:
        import matplotlib
    except ImportError as error:
        raise missing_extra("the report needs matplotlib", "sim") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    matplotlib.rcParams.update(
        {
            "font.size": 9.5,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "grid.color": "#e6e6e6",
            "grid.linewidth": 0.7,
            "axes.axisbelow": True,
            "axes.titlesize": 10.5,
            "axes.titlelocation": "left",
            "figure.facecolor": "white",
            # Otherwise the file holds the version of the library that drew it.
            "svg.hashsalt": "adaptive-spec",
        }
    )
    return pyplot


def _save(pyplot: Any, figure: Figure, path: Path) -> None:
    """Write a figure as PNG. Raises DataError if it can't be written."""
    try:
        figure.savefig(path, dpi=DPI, metadata={"Software": None})
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror}") from error
    finally:
        pyplot.close(figure)


def draw_load_curves(
    pyplot: Any, comparison: Comparison, setting: Setting, family: Family, looks: Looks, path: Path
) -> None:
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
            _positive_axis(axes)
    others = len(looks.others)
    _add_legend(figure, row[0], f"grey: {others} other policies, see table" if others else "")
    _save(pyplot, figure, path)


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
) -> None:
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
    _add_legend(figure, bottom)
    _save(pyplot, figure, path)


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


def _positive_axis(axes: Axes) -> None:
    """A y axis from 0, or logarithmic where the values differ by more than a factor of 5."""
    low, high = axes.dataLim.intervaly
    if high < low:  # nothing was drawn
        return
    if low <= 0 or high / low < 5:
        axes.set_ylim(0, high * 1.08)
        return
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set_yscale("log")
    axes.set_ylim(low * 0.85, high * 1.2)
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes.yaxis.set_minor_formatter(NullFormatter())


def _add_legend(figure: Figure, axes: Axes, note: str = "") -> None:
    """Name the lines of these axes beside the figure, the front one first.

    Args:
        figure: with a constrained layout.
        axes: whose lines have labels.
        note: a line in grey below the figure.
    """
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="outside right upper", frameon=False)
    if note:
        figure.supxlabel(note, x=0.01, ha="left", color="#666666", fontsize=8.5)
