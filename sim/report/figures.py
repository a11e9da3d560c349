"""Figures of the report: scores against load."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from adaptive_spec.errors import DataError, missing_extra
from adaptive_spec.sim.sweep.results import Row, SweepResults

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours, told apart with any kind of colour vision; yellow is too faint.
_COLOURS = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
OTHERS_COLOUR = "#b8b8b8"
NO_SPECULATION, BEST_STATIC, FORESIGHT = "no speculation", "best fixed K", "foresight"
REFERENCES = {BEST_STATIC: "--", NO_SPECULATION: ":", FORESIGHT: "-."}
"""Line styles of what policies are held against."""
DPI = 110
RATIO_FLOOR = 0.8
"""Ratios below it leave the picture: what matters lies within some per cent of 1."""


class Family(NamedTuple):
    """Loads that differ in one number, or that have nothing in common (`axis` is empty).

    Attributes:
        name: for people.
        axis: what the number is, with its unit.
        points: loads and their numbers, ascending.
    """

    name: str
    axis: str
    points: list[tuple[str, float]]


def colours(policies: Sequence[str]) -> dict[str, str]:
    """A colour for each of the first policies; grey for the others."""
    found = dict.fromkeys(policies, OTHERS_COLOUR)
    return found | dict(zip(policies, _COLOURS, strict=False))


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
            "axes.axisbelow": True,
            "axes.titlelocation": "left",
        }
    )
    return pyplot


def families(results: SweepResults, rows: Iterable[Row]) -> list[Family]:
    """Arrange the loads of some rows by what they have in common."""
    entries = results.config.load_entries()
    twice = {text for text, count in Counter(e.load for e in entries).items() if count > 1}
    # Of loads with the same text, only the plain one is a point among others like it.
    texts = {e.label: e.label if e.name and e.load in twice else e.load for e in entries}
    found: dict[tuple[str, str], list[tuple[str, float]]] = {}
    for load in dict.fromkeys(row.cell.load for row in rows):
        family, axis, x = place_of(texts.get(load, load))
        found.setdefault((family, axis), []).append((load, x))
    several = {key: points for key, points in found.items() if len(points) > 1}
    made = [Family(*key, sorted(points, key=lambda p: p[1])) for key, points in several.items()]
    alone = [points[0][0] for key, points in found.items() if key not in several]
    if alone:
        numbered = [(load, float(place)) for place, load in enumerate(alone)]
        made.append(Family("single loads", "", numbered))
    return made


def place_of(text: str) -> tuple[str, str, float]:
    """Family, axis and place on it of a load, from its text."""
    number = r"([0-9.]+(?:e[+-]?\d+)?)"
    if match := re.fullmatch(rf"closed:{number}", text):
        return "closed loop", "concurrent requests", float(match[1])
    if match := re.fullmatch(rf"(.+)@closed={number}", text):
        return f"closed loop, {_file(match[1])}", "concurrent requests", float(match[2])
    if match := re.fullmatch(rf"poisson:{number}", text):
        return "Poisson arrivals", "requests per second", float(match[1])
    if match := re.fullmatch(rf"gamma:{number}:{number}", text):
        return f"Gamma arrivals, CV {match[2]}", "requests per second", float(match[1])
    if match := re.fullmatch(rf"(.+)@((?:.*,)?)rate={number}((?:,.*)?)", text):
        rest = ",".join(part for part in (match[2] + match[4]).split(",") if part)
        return f"{_file(match[1])} {rest}".rstrip(), "rate, times the recorded", float(match[3])
    return text, "", 0.0


def series(rows: Iterable[Row]) -> dict[str, dict[str, list[Row]]]:
    """Rows by policy or reference, and by load."""
    found: dict[str, dict[str, list[Row]]] = {}
    for row in rows:
        for name in _names(row):
            found.setdefault(name, {}).setdefault(row.cell.load, []).append(row)
    return found


def _names(row: Row) -> list[str]:
    result = row.result
    if row.kind != "static":
        return [result.policy if row.kind == "policy" else FORESIGHT]
    best = result.regret.best_static_k if result.regret else None
    names = {"static:k=0": NO_SPECULATION}.get(result.policy)
    return [*([names] if names else []), *([BEST_STATIC] * (result.policy == f"static:k={best}"))]


def draw_curves(
    pyplot: Any, title: str, family: Family, lines: dict[str, dict[str, list[Row]]], path: Path
) -> None:
    """Draw throughput or TPOT, and the score over the best fixed K's, against load.

    Args:
        pyplot: see `load_pyplot`.
        title: of the figure.
        family: the loads.
        lines: `series` of one setting, policies in order of their colours.
        path: PNG file to write.

    Raises DataError if it can't be written.
    """
    shade = colours([name for name in lines if name not in REFERENCES])
    figure, panels = pyplot.subplots(1, 2, figsize=(10.5, 4.0), layout="constrained")
    figure.suptitle(f"{title}: {family.name}", x=0.01, ha="left", fontweight="bold")
    closed = all(
        row.closed for by_load in lines.values() for same in by_load.values() for row in same
    )
    plain = "throughput [tokens/s]" if closed else "mean TPOT [ms]"
    lowest = highest = 1.0
    for axes, ratio in zip(panels, (False, True), strict=True):
        axes.set_title("score / that of the best fixed K" if ratio else plain)
        for name, by_load in reversed(lines.items()):
            points = [
                (x, found)
                for load, x in family.points
                if (
                    found := [
                        v for row in by_load.get(load, ()) if (v := _value(row, closed, ratio))
                    ]
                )
            ]
            if not points or (ratio and name == BEST_STATIC):
                continue
            xs = [x for x, _ in points]
            style = REFERENCES.get(name, "-") if family.axis else ""
            colour = shade.get(name, "#444444")
            label = name if name in REFERENCES or colour != OTHERS_COLOUR else None
            axes.plot(
                *(xs, [mean(found) for _, found in points], style),
                color=colour,
                marker="o",
                markersize=4,
                label=label,
            )
            if family.axis:
                low, high = [min(f) for _, f in points], [max(f) for _, f in points]
                axes.fill_between(xs, low, high, color=colour, alpha=0.15, linewidth=0)
            if ratio and name not in REFERENCES:
                every = [value for _, found in points for value in found]
                lowest, highest = min(lowest, *every), max(highest, *every)
        _load_axis(axes, family)
    panels[1].set_ylim(max(lowest, RATIO_FLOOR) - 0.012, highest + 0.012)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="outside right upper", frameon=False)
    _save(pyplot, figure, path)


def _value(row: Row, closed: bool, ratio: bool) -> float | None:
    if ratio:
        return row.result.regret.of_best_static if row.result.regret else None
    value = row.result.throughput_tok_s if closed else row.result.tpot_ms.mean
    return value if value is not None and np.isfinite(value) else None


def _load_axis(axes: Any, family: Family) -> None:
    axes.set_xlabel(family.axis or "load")
    values = [x for _, x in family.points]
    if not family.axis:
        names = [load.rpartition("/")[2] for load, _ in family.points]
        axes.set_xticks(values, names, rotation=20, ha="right", fontsize=8)
    elif values[-1] / values[0] >= 4:
        axes.set_xscale("log", base=2)
        axes.set_xticks(values, [f"{value:g}" for value in values])
        axes.minorticks_off()


def _save(pyplot: Any, figure: Figure, path: Path) -> None:
    try:
        # Otherwise the file holds the version of the library that drew it.
        figure.savefig(path, dpi=DPI, metadata={"Software": None})
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror}") from error
    finally:
        pyplot.close(figure)


def _file(text: str) -> str:
    return text.rpartition("/")[2]
