"""Saved states with one entry changed."""

import copy
from collections.abc import Iterator
from typing import Any

GONE = object()
"""In place of an entry that is missing."""


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Everything that stands somewhere in a state; of a list, its first entry."""
    if place:
        yield place
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*place, key))
    elif isinstance(value, list) and value:
        yield from places(value[0], (*place, 0))


def entry(state: Any, place: tuple[Any, ...]) -> Any:
    """Return the value at a place."""
    for key in place:
        state = state[key]
    return state


def changed(state: dict[str, Any], place: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """A copy of a state with another value at a place."""
    result = copy.deepcopy(state)
    inner = entry(result, place[:-1])
    if value is GONE:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    return result
