"""A mechanism of `goodput`, how to leave it out, and the cells it was made for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

Row = tuple[str, ...]
"""Acceptance, load, and where they are not the usual ones hardware and engine variant."""
Patch = tuple[object, str, object]
"""Whose attribute is replaced by what."""


@dataclass(frozen=True)
class Switch:
    """One mechanism.

    Attributes:
        name: of the mechanism.
        purpose: what it is for.
        cells: it was made for.
        patches: that leave it out.
        options: of `goodput` that leave it out.
        added: it is off by default, and `options` put it in.
        targets: measured by the share of requests that keep their latency target.
        spread: run on the mixed cells too; not where it cannot act there.
    """

    name: str
    purpose: str
    cells: tuple[Row, ...]
    patches: tuple[Patch, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    added: bool = False
    targets: bool = False
    spread: bool = True

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The mechanism is left out of every policy that runs inside."""
        with ExitStack() as stack:
            for owner, name, value in self.patches:
                # Some hide an attribute of instances under a property of their class.
                stack.enter_context(patch.object(owner, name, value, create=True))
            yield


def nothing(*_: object, **__: object) -> None:
    """In place of a method that does something."""


def fixed(value: object) -> property:
    """An attribute that stays as it is, whatever it is set to."""
    return property(lambda _: value, nothing)


def answer(value: object) -> Any:
    """A method that always says the same."""

    def method(*_: object, **__: object) -> object:
        return value

    return method
