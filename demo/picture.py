"""K over time against load, as a PNG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from adaptive_spec.operation.trace import read_trace

from .arms import KMAX
from .errors import DemoError
from .traffic import kind_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .act_one import Phase

Step = Mapping[str, Any]
BIN_SECONDS = 1.0
KIND_COLOURS = {
    "chat": "#1b7837",
    "edit": "#b35806",
    "story": "#762a83",
    "summary": "#4393c3",
}
KIND_WINDOW_SECONDS = 4.0


def load_matplotlib() -> Any:
    """The plotting module, without a display.

    Raises DemoError if it is not installed.
    """
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError as error:
        raise DemoError(
            f"the picture needs matplotlib, `pip install matplotlib`: {error}"
        ) from error
    return pyplot


def read_steps(directory: Path, phases: Sequence[Phase]) -> list[Step]:
    """The steps of a trace that ended in these phases, in order of time."""
    began, ended = phases[0].began, phases[-1].ended
    steps = [step for step in read_trace(directory) if began <= step["now"] <= ended]
    return sorted(steps, key=lambda step: step["now"])


def draw(steps: Sequence[Step], phases: Sequence[Phase], path: Path) -> None:
    """Draw act one."""
    if not steps:
        raise DemoError("the step trace has no step of act one, there is nothing to draw")
    pyplot = load_matplotlib()
    start = phases[0].began
    figure, (load, drafts, kinds) = pyplot.subplots(
        3,
        sharex=True,
        figsize=(11, 8),
        gridspec_kw={"height_ratios": [1, 1.6, 1.3]},
        layout="constrained",
    )
    figure.suptitle("Draft tokens K follow the load: one vLLM server with adaptive-spec, act one")
    _draw_load(load, steps, phases, start)
    image = _draw_drafts(drafts, steps, start)
    _draw_kinds(kinds, steps, start)
    figure.colorbar(image, ax=drafts, label="share of requests", pad=0.01, aspect=12)
    kinds.set_xlabel("time since the first request [s]")
    kinds.set_xlim(0, max(step["now"] for step in steps) - start)
    for axes in (load, drafts, kinds):
        for phase in phases[1:]:
            axes.axvline(phase.began - start, color="0.75", linewidth=0.8, zorder=1)
    try:
        figure.savefig(path, dpi=130)
    except OSError as error:
        raise DemoError(f"cannot write the picture {path}: {error.strerror}") from error
    finally:
        pyplot.close(figure)


def _draw_load(axes: Axes, steps: Sequence[Step], phases: Sequence[Phase], start: float) -> None:
    times = [step["now"] - start for step in steps]
    batch = [step["batch_size"] for step in steps]
    axes.fill_between(times, batch, step="pre", color="#9ecae1", label="batch size B")
    edges = [phase.began - start for phase in phases] + [phases[-1].ended - start]
    axes.stairs(
        [phase.concurrency for phase in phases],
        edges,
        baseline=None,
        color="0.2",
        linestyle="--",
        label="requests under way, asked for",
    )
    axes.set_ylabel("requests")
    axes.set_ylim(0, 1.25 * max(phase.concurrency for phase in phases))
    axes.legend(loc="upper left", fontsize=8, framealpha=0.9)


def _draw_drafts(axes: Axes, steps: Sequence[Step], start: float) -> Any:
    """How often each K was verified, its mean, and the draft depth D."""
    times = np.array([step["now"] - start for step in steps])
    place = (times / BIN_SECONDS).astype(int).clip(0)
    bins = int(place.max()) + 1
    counts = np.zeros((KMAX + 1, bins))
    depths: list[list[int]] = [[] for _ in range(bins)]
    for step, at in zip(steps, place.tolist(), strict=True):
        np.add.at(counts[:, at], step["k"], 1.0)
        depths[at].append(step["depth"])
    totals = counts.sum(axis=0)
    with np.errstate(invalid="ignore"):
        shares = counts / totals
        mean_k = (np.arange(KMAX + 1) @ counts) / totals
    middle = (np.arange(bins) + 0.5) * BIN_SECONDS
    image = axes.imshow(
        shares,
        origin="lower",
        aspect="auto",
        cmap="Blues",
        vmin=0,
        vmax=1,
        extent=(0, bins * BIN_SECONDS, -0.5, KMAX + 0.5),
    )
    mean_depth = [float(np.mean(depth)) if depth else np.nan for depth in depths]
    axes.plot(middle, mean_depth, color="#d95f02", linewidth=1.2, linestyle="--", label="depth D")
    axes.plot(middle, mean_k, color="black", linewidth=1.8, label="mean K")
    axes.set_ylabel("drafts per request\nand step [tokens]")
    axes.legend(loc="upper right", fontsize=8, framealpha=0.9, ncols=2)
    return image


def _draw_kinds(axes: Axes, steps: Sequence[Step], start: float) -> None:
    """Mean K by kind of prompt in a sliding window."""
    series: dict[str, list[tuple[float, int]]] = {}
    verified = accepted = 0
    for step in steps:
        for request_id, k, hits in zip(step["ids"], step["k"], step["accepted"], strict=True):
            series.setdefault(kind_of(request_id), []).append((step["now"] - start, k))
            verified, accepted = verified + k, accepted + hits
    end = max(step["now"] for step in steps) - start
    grid = np.arange(0.5 * KIND_WINDOW_SECONDS, end, 0.5)
    for kind, colour in KIND_COLOURS.items():
        points = np.array(series.get(kind, []))
        if not points.size:
            continue
        axes.plot(grid, _windowed(points, grid), color=colour, linewidth=1.6, label=kind)
    axes.set_ylabel(f"mean K by kind\n({KIND_WINDOW_SECONDS:.0f} s window) [tokens]")
    axes.set_ylim(-0.2, KMAX + 0.2)
    share = accepted / verified if verified else 0.0
    axes.legend(loc="upper right", fontsize=8, framealpha=0.9, ncols=5)
    axes.set_title(f"accepted: {share:.0%} of the drafts verified", fontsize=9, loc="left")


def _windowed(points: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """Mean of the second column in a window around each time; nan where there is nothing."""
    times, values = points[:, 0], np.concatenate(([0.0], np.cumsum(points[:, 1])))
    first = np.searchsorted(times, grid - 0.5 * KIND_WINDOW_SECONDS)
    last = np.searchsorted(times, grid + 0.5 * KIND_WINDOW_SECONDS)
    with np.errstate(invalid="ignore", divide="ignore"):
        means: np.ndarray = (values[last] - values[first]) / (last - first)
    return means
