"""The picture of docs/measured.md: tokens per second over no speculation, by load."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from .arms import GOODPUT, NONE, STATIC, warm
from .cells import Cell

PANEL_WIDTH, PANEL_HEIGHT = 190, 170
LEFT, TOP, GAP, FOOT = 34, 62, 30, 42
LOWEST, STEP = 0.5, 0.5
OURS, FIXED, PLAIN = "#d9822b", "#3f7fd9", "#888"


def by_load(found: Sequence[Cell], title: Callable[[str], str], drafter: dict[str, str]) -> str:
    """Return an SVG with a panel for each device (rows) and drafter (columns).

    Args:
        found: cells with static arms, and none.
        title: of a device, by name.
        drafter: names of methods.
    """
    devices = list(dict.fromkeys(cell.device for cell in found))
    methods = list(dict.fromkeys(cell.key.method for cell in found))
    top = max(_over_none(cell, arm) for cell in found for arm in _shown(cell))
    highest = STEP * (int(top / STEP) + 1)
    width = LEFT + len(methods) * (PANEL_WIDTH + GAP)
    height = TOP + len(devices) * (PANEL_HEIGHT + FOOT)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="11" fill="#888">',
        '<text x="4" y="14">tokens/s over no speculation, by number of clients</text>',
        f'<text x="4" y="30" fill="{OURS}">adaptive-spec, warm</text>',
        f'<text x="130" y="30" fill="{FIXED}">static K = 1 to {len(STATIC)}, pale to dark</text>',
        f'<text x="320" y="30" fill="{PLAIN}">no speculation: 1.0</text>',
    ]
    for row, device in enumerate(devices):
        for column, method in enumerate(methods):
            cells = [c for c in found if (c.device, c.key.method) == (device, method)]
            x = LEFT + column * (PANEL_WIDTH + GAP)
            y = TOP + row * (PANEL_HEIGHT + FOOT)
            name = f"{drafter[method]}, {title(device)}"
            parts += _panel(cells, x, y, highest, name)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(cells: Sequence[Cell], x: int, y: int, highest: float, name: str) -> Iterator[str]:
    cells = sorted(cells, key=lambda cell: int(cell.key.load))
    yield f'<text x="{x}" y="{y - 8}">{name}</text>'

    def across(place: int) -> float:
        return x + PANEL_WIDTH * (place + 0.5) / max(len(cells), 1)

    def down(ratio: float) -> float:
        inside = min(max(ratio, LOWEST), highest)
        return y + PANEL_HEIGHT * (highest - inside) / (highest - LOWEST)

    for mark in range(int(LOWEST / STEP), int(highest / STEP) + 1):
        level = down(mark * STEP)
        dash = "" if mark * STEP == 1.0 else ' stroke-opacity=".3"'
        yield f'<path d="M{x} {level:.1f}h{PANEL_WIDTH}" stroke="{PLAIN}"{dash} fill="none"/>'
        yield f'<text x="{x - 5}" y="{level + 4:.1f}" text-anchor="end">{mark * STEP:.1f}</text>'
    for place, cell in enumerate(cells):
        at = f'x="{across(place):.1f}" y="{y + PANEL_HEIGHT + 15}"'
        yield f'<text {at} text-anchor="middle">{cell.key.load}</text>'
    for arm in (*STATIC, warm(GOODPUT)):
        points = [
            f"{across(place):.1f},{down(_over_none(cell, arm)):.1f}"
            for place, cell in enumerate(cells)
            if arm in _shown(cell)
        ]
        pale = (STATIC.index(arm) + 1) / len(STATIC) if arm in STATIC else 1.0
        colour, thick = (FIXED, 1.2) if arm in STATIC else (OURS, 2.5)
        yield (
            f'<polyline points="{" ".join(points)}" stroke="{colour}" stroke-width="{thick}" '
            f'stroke-opacity="{0.2 + 0.8 * pale:.2f}" fill="none"/>'
        )


def _shown(cell: Cell) -> list[str]:
    return [arm for arm in (*STATIC, warm(GOODPUT)) if arm in cell.arms and NONE in cell.arms]


def _over_none(cell: Cell, arm: str) -> float:
    return cell.arms[arm].steady / cell.arms[NONE].steady
