"""What becomes of speculation beside an engine's other features: a table that decides and is shown.

Each adapter has one such table. Its capability asks the rows that have a reason, `adaptive-spec
doctor` prints the rows of the installed engine, and the engine's page of the documentation contains
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from adaptive_spec.engines.doctor_rows import Interplay

# In this order: the plugin acts, and a test has executed that; K_i is ours, the depth the engine's;
# decisions are recorded, and the engine's own K runs; nothing is attached.
SUPPORTED, TRIMMING, SHADOW, INERT = "supported", "trimming only", "shadow", "inert"
"""How far the plugin steers beside a feature."""

S = TypeVar("S")
"""An engine's setup as its rules read it."""


class Rule(Interplay, Generic[S], frozen=True):
    """A row of the table.

    Attributes:
        reason: why the row holds for a setup, in a few words; empty if it does not. None where
            nothing is to be decided.
    """

    reason: Callable[[S], str] | None = None

    def row(self) -> Interplay:
        """Return what is shown of it."""
        return Interplay(self.feature, self.support, self.rule, self.shown_by)


def when(holds: Callable[[S], object], why: str) -> Callable[[S], str]:
    """Return a reason that is always worded alike."""
    return lambda setup: why if holds(setup) else ""


def reasons(rules: Iterable[Rule[S]], support: str, setup: S) -> Iterator[str]:
    """Yield the reasons for a kind of support, in the order of the table."""
    for rule in rules:
        if rule.support == support and rule.reason is not None and (why := rule.reason(setup)):
            yield why


def markdown_table(rules: Iterable[Interplay]) -> str:
    """Return the table for the engine's page."""
    lines = ["| with | | rule |", "| --- | --- | --- |"]
    lines += [f"| {row.feature} | {row.support} | {row.rule} |" for row in rules]
    return "\n".join(lines)
