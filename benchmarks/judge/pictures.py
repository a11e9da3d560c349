"""The picture of docs/measured.md: gain over the best fixed K, by number of clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import mean

from .results import CellFigures

WIDTH, HEIGHT = 560, 260
LEFT, TOP, RIGHT, FOOT = 52, 44, 130, 40
COLOURS = ("#d9822b", "#3f7fd9", "#3a9d5d")
GREY = "#888"
STEP = 5
"""Per cent between two lines of the grid."""


def by_clients(found: Sequence[CellFigures], methods: Mapping[str, str], arm: str) -> str:
    """Return an SVG with a line for each drafter: the mean of all cells with so many clients.

    The band goes down to the worst of them.

    Args:
        found: cells; those whose number of clients changes are left out.
        methods: names of drafters.
        arm: whose gain.
    """
    gains: dict[str, dict[int, list[float]]] = {}
    for cell in found:
        over = cell.over(arm, cell.best) if cell.clients else []
        if over and cell.method in methods:
            same = gains.setdefault(cell.method, {}).setdefault(cell.clients, [])
            same.append(100 * (mean(over) - 1))
    every = [gain for by in gains.values() for values in by.values() for gain in values]
    low = STEP * ((min(every, default=0.0) // STEP) if every else 0)
    high = STEP * (max(every, default=0.0) // STEP + 1)
    clients = sorted({n for by in gains.values() for n in by})

    def across(count: int) -> float:
        return LEFT + WIDTH * (clients.index(count) + 0.5) / max(len(clients), 1)

    def down(gain: float) -> float:
        return TOP + HEIGHT * (high - gain) / (high - low)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + RIGHT} '
        f'{TOP + HEIGHT + FOOT}" font-family="sans-serif" font-size="12" fill="{GREY}">',
        '<text x="4" y="16">tokens/s over the best fixed K, picked with hindsight (%), by number '
        "of clients</text>",
        '<text x="4" y="32" font-size="11">line: mean of the cells; band: down to the worst</text>',
    ]
    level = low
    while level <= high:
        dash = "" if level == 0 else ' stroke-opacity=".25"'
        parts.append(
            f'<path d="M{LEFT} {down(level):.1f}h{WIDTH}" stroke="{GREY}"{dash} fill="none"/>'
            f'<text x="{LEFT - 6}" y="{down(level) + 4:.1f}" text-anchor="end">{level:+.0f}</text>'
        )
        level += STEP
    for count in clients:
        at = f'x="{across(count):.1f}" y="{TOP + HEIGHT + 18}"'
        parts.append(f'<text {at} text-anchor="middle">{count}</text>')
    for number, method in enumerate(name for name in methods if name in gains):
        parts += _line(gains[method], COLOURS[number], across, down)
        at = f'x="{LEFT + WIDTH + 8}" y="{TOP + 16 + 18 * number}"'
        parts.append(f'<text {at} fill="{COLOURS[number]}">{methods[method]}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _line(
    gains: Mapping[int, list[float]],
    colour: str,
    across: Callable[[int], float],
    down: Callable[[float], float],
) -> Iterator[str]:
    means = [f"{across(n):.1f},{down(mean(gains[n])):.1f}" for n in sorted(gains)]
    worst = [f"{across(n):.1f},{down(min(gains[n])):.1f}" for n in sorted(gains, reverse=True)]
    yield f'<polygon points="{" ".join([*means, *worst])}" fill="{colour}" fill-opacity=".15"/>'
    yield (
        f'<polyline points="{" ".join(means)}" stroke="{colour}" stroke-width="2.5" fill="none"/>'
    )
