"""The texts of requests as a script: which drafts are right, were they made and verified.

Engine-independent. A text is a stretch of a record (`adaptive_spec.sim.acceptance.data`): after the
prompt's own token, the round that begins at decode position p accepts the first `right` drafts of
those that it verifies, and emits one token more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from adaptive_spec.sim.acceptance.data import AcceptanceData

DRAFT, EMITTED = 7, 5
"""Every draft of the drafter, and every emitted token. Tokens have no meaning here, but that copied
drafts differ from the drafter's."""


class Lines:
    """Drafts and acceptance at every position of some records, as plain lists.

    Attributes:
        right: [P] leading drafts that the target accepts.
        proposed: [P] drafts that the drafter can make; None: as many as it is asked for.
        confidence: [P, depth] maximum probability of each draft; None: the drafter shows nothing.
        copied: [P] drafts that a look-up finds; None without a second source.
        copied_right: [P] the leading ones of them that are right.
        copied_match: [P] tokens that the look-up matched.
        of_trees: [P] depth of the accepted path, by the depth of a tree; empty for chains.
    """

    def __init__(
        self, data: AcceptanceData, of_trees: Mapping[int, list[int]] | None = None
    ) -> None:
        self.data = data
        self.of_trees = of_trees or {}
        self.right: list[int] = data.accepted.tolist()
        self.proposed: list[int] | None = None if data.proposed is None else data.proposed.tolist()
        self.confidence: NDArray[np.float32] | None = data.confidence
        self.size = len(self.right)
        self.copied: list[int] | None = None
        self.copied_right: list[int] = []
        self.copied_match: list[int] = []
        if data.lookup is not None:
            found = data.lookup
            self.copied_right = found.right.tolist()
            proposed = found.right if found.proposed is None else found.proposed
            self.copied = proposed.tolist()
            match = np.minimum(proposed, 1) if found.match is None else found.match
            self.copied_match = match.tolist()


class Text:
    """One request's answer, and the state of its drafter.

    Attributes:
        lines: records that it is a stretch of.
        start: first position.
        at: decode positions that are behind; -1 before the prompt's own token.
        lost: the drafter has holes in its KV cache, and no draft is right any more.
        drafted: drafts at hand.
        right: the leading ones of them that are right.
        made_in: number of the step that has made them.
    """

    __slots__ = ("at", "drafted", "lines", "lost", "made_in", "right", "start")

    def __init__(self, lines: Lines, start: int) -> None:
        self.lines = lines
        self.start = start
        self.at = -1
        self.lost = False
        self.drafted = self.right = self.made_in = 0

    @property
    def place(self) -> int:
        """Position in the records; a text goes on from the last record to the first."""
        return (self.start + max(self.at, 0)) % self.lines.size

    def place_after(self, emitted: int) -> int:
        """Position in the records after so many tokens, the prompt's own included."""
        return (self.start + max(emitted - 1, 0)) % self.lines.size

    def emit(self, verified: int) -> int:
        """Verify so many of the drafts at hand; return the tokens emitted."""
        tokens = min(self.right, verified) + 1
        self.at += tokens
        return tokens

    def draft(self, depth: int, step: int) -> None:
        """Draft so deep after what has been emitted."""
        place, lines = self.place, self.lines
        self.drafted = depth
        if lines.proposed is not None:
            self.drafted = min(depth, lines.proposed[place])
        right = lines.of_trees.get(depth, lines.right)
        self.right = 0 if self.lost else min(self.drafted, right[place])
        self.made_in = step

    def confidence(self, depth: int) -> Sequence[float]:
        """[depth] confidence of the drafts at hand; nan where unknown."""
        shown = self.lines.confidence
        if shown is None:
            return [np.nan] * depth
        if self.lost:  # what a drafter without its KV cache shows: as little as it knows
            return [float(np.nanmin(shown[self.place]))] * depth
        row: list[float] = shown[self.place, :depth].tolist()
        return row + [np.nan] * (depth - len(row))
