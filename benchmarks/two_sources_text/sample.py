"""One prompt and its answer."""

from __future__ import annotations

from dataclasses import dataclass

KINDS = ("prose", "code", "edit", "quote", "agent", "json")


@dataclass(frozen=True)
class Sample:
    """The text that a request reads, and the text that it writes.

    Attributes:
        kind: one of `KINDS`.
        prompt: everything before the answer.
        answer: what is drafted for.
    """

    kind: str
    prompt: str
    answer: str
