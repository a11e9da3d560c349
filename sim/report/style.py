"""How figures look: colours, markers, and labels that stand beside their lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from adaptive_spec.errors import ConfigError, DataError
from adaptive_spec.sim.report.comparison import (
    BEST_STATIC,
    FORESIGHT,
    NO_SPECULATION,
    REFERENCES,
    Comparison,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, told apart with any kind of colour vision; yellow is too faint.
_COLOURS = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
_MARKERS = "o", "s", "^", "D", "v", "P"
OTHERS_COLOUR = "#b8b8b8"
DPI = 110


@dataclass(frozen=True)
class Look:
    """How a policy or reference is drawn; without a label it is one of many in the background."""

    label: str
    colour: str
    marker: str = ""
    line: str = "-"
    width: float = 1.8

    @property
    def settings(self) -> dict[str, Any]:
        """For matplotlib."""
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
        more: policies that stand behind them.
    """

    def __init__(self, comparison: Comparison, more: Sequence[str] = ()) -> None:
        ranked = list(dict.fromkeys((*comparison.policies, *more)))
        if comparison.default is not None:
            ranked.remove(comparison.default)
            ranked.insert(0, comparison.default)
        self.highlighted = tuple(ranked[: len(_COLOURS)])
        self.others = tuple(ranked[len(_COLOURS) :])
        self._looks = dict(_REFERENCE_LOOKS)
        for name, colour, marker in zip(self.highlighted, _COLOURS, _MARKERS, strict=False):
            self._looks[name] = Look(name, colour, marker)

    def of(self, name: str) -> Look:
        """Of a policy or reference."""
        return self._looks.get(name) or Look("", OTHERS_COLOUR, width=0.9)

    @property
    def drawing_order(self) -> tuple[str, ...]:
        """What stands in front comes last."""
        return (*self.others, *reversed(REFERENCES), *reversed(self.highlighted))


def load_pyplot() -> Any:
    """The plotting module, without a display. Raises ConfigError if it is not installed."""
    try:
        import matplotlib
    except ImportError as error:
        raise ConfigError(
            "the report needs matplotlib: pip install 'adaptive-spec[sim]'"
        ) from error
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


def save(pyplot: Any, figure: Figure, path: Path) -> Path:
    """Write a figure as PNG. Raises DataError if it can't be written."""
    try:
        figure.savefig(path, dpi=DPI, metadata={"Software": None})
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror}") from error
    finally:
        pyplot.close(figure)
    return path


def positive_axis(axes: Axes) -> None:
    """A y axis from 0, or logarithmic where the values differ by more than a factor of 5."""
    low, high = axes.dataLim.intervaly
    if low <= 0 or high / low < 5:
        axes.set_ylim(0, high * 1.08)
        return
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set_yscale("log")
    axes.set_ylim(low * 0.85, high * 1.2)
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes.yaxis.set_minor_formatter(NullFormatter())


def label_ends(axes: Axes, ends: Sequence[tuple[float, float, Look]], note: str = "") -> None:
    """Write each line's name beside its last point, moved apart where they would overlap.

    Args:
        axes: with its limits set.
        ends: x, y and look of each line's last point; data coordinates.
        note: a last line in grey, below the names.
    """
    if not ends:
        return
    to_axes = axes.transAxes.inverted()
    placed = []
    for x, y, look in ends:
        across, up = to_axes.transform(axes.transData.transform((x, y)))
        placed.append((float(np.clip(up, 0.0, 1.0)), float(across), look))
    placed.sort(key=lambda item: item[0])
    heights = apart([up for up, _, _ in placed], 0.072)
    for height, (up, across, look) in zip(heights, placed, strict=True):
        axes.annotate(
            look.label,
            xy=(across, up),
            xytext=(1.06, height),
            xycoords="axes fraction",
            textcoords="axes fraction",
            color=look.colour,
            va="center",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": look.colour, "lw": 0.6, "shrinkA": 0},
        )
    if note:
        axes.annotate(
            note, (1.06, heights[0] - 0.08), xycoords="axes fraction", color="#8a8a8a", va="center"
        )


def apart(wanted: Sequence[float], distance: float) -> list[float]:
    """Ascending positions, moved as little as needed to be at least this far apart.

    Those that collide are spread around their mean (pool adjacent violators).
    """
    groups: list[list[float]] = []
    for value in wanted:
        groups.append([value, 1.0])
        while len(groups) > 1:
            (below, n), (above, m) = groups[-2:]
            if above - below >= distance * (n + m) / 2:
                break
            groups[-2:] = [[(below * n + above * m) / (n + m), n + m]]
    return [
        centre + distance * (place - (count - 1) / 2)
        for centre, count in groups
        for place in range(int(count))
    ]
