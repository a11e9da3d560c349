"""Figures of the report: scores against load."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

import numpy as np

from adaptive_spec.errors import DataError, missing_extra
from adaptive_spec.sim.sweep.results import Row

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
    pyplot: Any, title: str, lines: dict[str, dict[str, list[Row]]], path: Path
) -> None:
    """Draw throughput or TPOT, and the score over the best fixed K's, by load.

    Args:
        pyplot: see `load_pyplot`.
        title: of the figure.
        lines: `series` of one setting, policies in order of their colours.
        path: PNG file to write.

    Raises DataError if it can't be written.
    """
    shade = colours([name for name in lines if name not in REFERENCES])
    loads = list(dict.fromkeys(load for by_load in lines.values() for load in by_load))
    rows = [row for by_load in lines.values() for same in by_load.values() for row in same]
    closed = all(row.closed for row in rows)
    figure, panels = pyplot.subplots(1, 2, figsize=(10.5, 4.0), layout="constrained")
    figure.suptitle(title, x=0.01, ha="left", fontweight="bold")
    plain = "throughput [tokens/s]" if closed else "mean TPOT [ms]"
    lowest = highest = 1.0
    for axes, ratio in zip(panels, (False, True), strict=True):
        axes.set_title("score / that of the best fixed K" if ratio else plain)
        for name, by_load in reversed(lines.items()):
            values = {
                loads.index(load): [v for row in same if (v := _value(row, closed, ratio))]
                for load, same in by_load.items()
            }
            points = sorted((x, found) for x, found in values.items() if found)
            if not points or (ratio and name == BEST_STATIC):
                continue
            xs = [x for x, _ in points]
            colour = shade.get(name, "#444444")
            label = name if name in REFERENCES or colour != OTHERS_COLOUR else None
            means = [mean(found) for _, found in points]
            style = REFERENCES.get(name, "-")
            axes.plot(xs, means, style, color=colour, marker="o", markersize=4, label=label)
            low, high = [min(f) for _, f in points], [max(f) for _, f in points]
            axes.fill_between(xs, low, high, color=colour, alpha=0.15, linewidth=0)
            if ratio and name not in REFERENCES:
                lowest, highest = min(lowest, *low), max(highest, *high)
        names = [load.rpartition("/")[2] for load in loads]
        axes.set_xticks(range(len(loads)), names, rotation=20, ha="right", fontsize=8)
    panels[1].set_ylim(max(lowest, RATIO_FLOOR) - 0.012, highest + 0.012)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="outside right upper", frameon=False)
    _save(pyplot, figure, path)


def _value(row: Row, closed: bool, ratio: bool) -> float | None:
    if ratio:
        return row.result.regret.of_best_static if row.result.regret else None
    value = row.result.throughput_tok_s if closed else row.result.tpot_ms.mean
    return value if value is not None and np.isfinite(value) else None


def _save(pyplot: Any, figure: Figure, path: Path) -> None:
    try:
        # Otherwise the file holds the version of the library that drew it.
        figure.savefig(path, dpi=DPI, metadata={"Software": None})
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror}") from error
    finally:
        pyplot.close(figure)
