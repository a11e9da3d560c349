"""How the commands of the simulator print."""

from __future__ import annotations

from typing import Any


def print_json(value: Any) -> None:
    """One JSON value on standard output, for programs."""
    import msgspec

    print(msgspec.json.format(msgspec.json.encode(value)).decode())


def ratio(value: float | None) -> str:
    """A ratio of scores; a dash where there is none."""
    return "–" if value is None else f"{value:.3f}"


def number(value: float | None) -> str:
    """A figure with about three digits; a dash where there is none."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
