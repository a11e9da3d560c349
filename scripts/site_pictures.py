"""Draw the pictures of docs/how_it_decides.md: `python scripts/site_pictures.py [--check]`.

With --check nothing is written, and the exit status is 1 if a picture differs from its file.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from adaptive_spec.sim.drafters.registry import drafter
from adaptive_spec.sim.hardware.registry import hardware

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "images"
HAZARDS = {"code": (0.9, 0.88, 0.86, 0.85, 0.84, 0.83), "chat": (0.72, 0.66, 0.6, 0.56, 0.53, 0.5)}
"""Hazards of positions 1 to 6 of two requests, chosen as an example."""
BATCHES = (1, 16, 64, 256)
CONTEXT_TOKENS = 500
COLOURS = ("#3f7fd9", "#d9822b", "#3a9e5c", "#b04fb8")
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 560, 260, 60, 45, 20


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


def pictures() -> dict[str, str]:
    """Every picture by file name."""
    curves = {name: survival(hazards) for name, hazards in HAZARDS.items()}
    positions = [str(j) for j in range(1, 7)]
    loads = {
        f"{batch} request{'s' * (batch > 1)}": gains(batch, HAZARDS["chat"]) for batch in BATCHES
    }
    return {
        "survival.svg": _chart(curves, positions, "draft position", "accepted", 1.0, best=False),
        "goodput.svg": _chart(
            loads, ["0", *positions], "K, drafts verified per request", "tokens/s over K = 0", 2.5
        ),
    }


def _chart(
    curves: dict[str, list[float]],
    places: Sequence[str],
    below: str,
    beside: str,
    most: float,
    *,
    best: bool = True,
) -> str:
    return "\n".join(_lines(curves, places, below, beside, most, best)) + "\n"


def _lines(
    curves: dict[str, list[float]],
    places: Sequence[str],
    below: str,
    beside: str,
    most: float,
    best: bool,
) -> Iterator[str]:
    step = (WIDTH - LEFT - 140) / (len(places) - 1)

    def at(place: int, value: float) -> tuple[float, float]:
        return LEFT + 10 + place * step, HEIGHT - BOTTOM - value / most * (HEIGHT - BOTTOM - TOP)

    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="sans-serif" font-size="12" fill="#888">'
    )
    for tick in np.arange(0.0, most + 0.01, most / 5):
        x, y = at(0, float(tick))
        yield f'<path d="M{x - 5:.0f} {y:.1f}H{WIDTH - 130}" stroke="#8884" fill="none"/>'
        yield f'<text x="{x - 10:.0f}" y="{y + 4:.1f}" text-anchor="end">{tick:.1f}</text>'
    for place, name in enumerate(places):
        x, y = at(place, 0.0)
        yield f'<text x="{x:.0f}" y="{y + 16:.0f}" text-anchor="middle">{name}</text>'
    x, y = at(0, 0.0)
    yield f'<text x="{x:.0f}" y="{y + 36:.0f}">{below}</text>'
    yield f'<text x="4" y="12">{beside}</text>'
    for number, (colour, (name, values)) in enumerate(zip(COLOURS, curves.items(), strict=False)):
        points = [at(place, value) for place, value in enumerate(values)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        yield f'<polyline points="{path}" stroke="{colour}" stroke-width="2" fill="none"/>'
        if best:
            x, y = points[int(np.argmax(values))]
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{colour}"/>'
        yield f'<text x="{WIDTH - 120}" y="{TOP + 14 + 18 * number}" fill="{colour}">{name}</text>'
    yield "</svg>"


def main() -> int:
    """Write or check."""
    status = 0
    for name, picture in pictures().items():
        file = FOLDER / name
        if "--check" not in sys.argv[1:]:
            file.write_text(picture, encoding="utf-8")
        elif not file.is_file() or file.read_text(encoding="utf-8") != picture:
            print(f"error: docs/images/{name} is out of step; run `make docs`")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
