"""Draw the pictures of docs/how_it_decides.md and docs/measured.md.

    python scripts/site_pictures.py [--check]

With --check nothing is written, and the exit status is 1 if a picture differs from its file.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot

from adaptive_spec.sim.drafters.registry import drafter
from adaptive_spec.sim.hardware.registry import hardware

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from benchmarks.judge.cells import LATER  # noqa: E402
from benchmarks.judge.engines import VLLM  # noqa: E402
from benchmarks.judge.page import METHODS, WARM  # noqa: E402
from benchmarks.judge.results import published  # noqa: E402

FOLDER = ROOT / "docs" / "images"
HAZARDS = {"code": (0.9, 0.88, 0.86, 0.85, 0.84, 0.83), "chat": (0.72, 0.66, 0.6, 0.56, 0.53, 0.5)}
"""Hazards of positions 1 to 6 of two requests, chosen as an example."""
BATCHES = (1, 16, 64, 256)
CONTEXT_TOKENS = 500
GREY = "#888888"
"""Of texts and axes, on light and on dark pages."""
STYLE = {
    **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), GREY),
    "axes.edgecolor": GREY,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.alpha": 0.25,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "savefig.transparent": True,
    # Texts stay texts, and the same figures give the same bytes.
    "svg.fonttype": "none",
    "svg.hashsalt": "adaptive-spec",
    "font.family": "sans-serif",
}


def survival(hazards: Sequence[float]) -> list[float]:
    """Probability that positions 1, 2, ... are accepted."""
    return [float(value) for value in np.cumprod(hazards)]


def gains(batch: int, hazards: Sequence[float]) -> list[float]:
    """Tokens per second at K = 0, 1, ... over those at K = 0, on an H100 with an 8B model."""
    machine = hardware("h100-llama-8b")
    cost = drafter("eagle").cost_on(machine)
    context = batch * CONTEXT_TOKENS
    rates = []
    for k in range(len(hazards) + 1):
        seconds = machine.verify_seconds(batch, batch * (1 + k), context, 0, 0)
        seconds += cost.seconds(k, batch, context) if k else 0.0
        rates.append(batch * (1.0 + sum(survival(hazards)[:k])) / seconds)
    return [rate / rates[0] for rate in rates]


def draw_survival(axes: Any) -> None:
    """Acceptance by position of two requests."""
    for name, hazards in HAZARDS.items():
        axes.plot(range(1, 7), survival(hazards), label=name)
    axes.set(title="accepted", xlabel="draft position", ylim=(0, 1))


def draw_goodput(axes: Any) -> None:
    """Tokens per second by K, with the best K of each load."""
    for batch in BATCHES:
        curve = gains(batch, HAZARDS["chat"])
        best = int(np.argmax(curve))
        (line,) = axes.plot(curve, label=f"{batch} request{'s' * (batch > 1)}")
        axes.plot(best, curve[best], "o", color=line.get_color())
    axes.set(title="tokens/s over K = 0", xlabel="K, drafts verified per request", ylim=(0, 2.5))


def draw_measured(axes: Any) -> None:
    """Gain over the best fixed K by clients and drafter: mean of the cells, down to the worst."""
    found: dict[str, dict[int, list[float]]] = {}
    for cell in published():
        over = cell.over(WARM, cell.best) if cell.clients and cell.engine == VLLM else []
        if over and cell.method in METHODS and not cell.group.startswith(LATER):
            by_clients = found.setdefault(cell.method, {})
            by_clients.setdefault(cell.clients, []).append(100 * (mean(over) - 1))
    clients = sorted({count for by_clients in found.values() for count in by_clients})
    for method in (name for name in METHODS if name in found):
        same = sorted(found[method].items())
        at = [clients.index(count) for count, _ in same]
        means = [mean(values) for _, values in same]
        (line,) = axes.plot(at, means, marker="o", label=METHODS[method])
        axes.fill_between(at, [min(v) for _, v in same], means, color=line.get_color(), alpha=0.15)
    axes.axhline(0, color=GREY, linewidth=0.8)
    axes.set_xticks(range(len(clients)), [str(count) for count in clients])
    axes.set(title="tokens/s over the best fixed K, picked with hindsight (%)", xlabel="clients")


PICTURES = {
    "survival.svg": draw_survival,
    "goodput.svg": draw_goodput,
    "measured.svg": draw_measured,
}


def picture(draw: Any) -> str:
    """Return an SVG."""
    with pyplot.rc_context(STYLE):
        figure, axes = pyplot.subplots(figsize=(6.4, 3.0), layout="constrained")
        draw(axes)
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
        pyplot.close(figure)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"


def main() -> int:
    """Write or check."""
    status = 0
    for name, draw in PICTURES.items():
        file, drawn = FOLDER / name, picture(draw)
        if "--check" not in sys.argv[1:]:
            file.write_text(drawn, encoding="utf-8")
        elif not file.is_file() or file.read_text(encoding="utf-8") != drawn:
            print(f"error: docs/images/{name} is out of step; run `make docs`")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
