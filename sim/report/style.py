"""Style of figures: colours, markers and legends."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

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


def add_legend(figure: Figure, axes: Axes, note: str = "") -> None:
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
