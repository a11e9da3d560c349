"""One prompt and its answer."""

from __future__ import annotations

from dataclasses import dataclass

KINDS = ("prose", "code", "edit", "quote", "agent", "json")


@dataclass(frozen=True)
class Sample:
    """What a request would read and write.

    Attributes:
        kind: one of `KINDS`.
        prompt: everything before the answer.
        answer: what is drafted for.
    """

    kind: str
    prompt: str
    answer: str
