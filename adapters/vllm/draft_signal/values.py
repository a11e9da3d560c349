"""Confidence and entropy of a batch of drafts, and their way to the rows of another batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from adaptive_spec.step import FloatArray

ATTRIBUTE = "adaptive_spec_signals"
"""Under this name they ride on vLLM's `DraftTokenIds` or `ModelRunnerOutput`."""

WANTED = "adaptive_spec_read_signals"
"""On `SchedulerOutput`: what is to be read of this step's drafts, if not all."""


class Wanted(IntEnum):
    """Signals to read of the drafts of a step."""

    NOTHING = 0
    CONFIDENCE = 1
    ENTROPY_TOO = 2


@dataclass(frozen=True, slots=True)
class DraftSignals:
    """Signals of one round of drafting.

    Attributes:
        request_ids: [R] whose drafts these are.
        confidence: [R, D] maximum probability of the draft distribution; nan where unknown.
        entropy: [R, D] its entropy in nats; nan where unknown.
        verified: they come with the results of the step that has verified these drafts, not with
            those of the step that has made them.
    """

    request_ids: Sequence[str]
    confidence: FloatArray
    entropy: FloatArray
    verified: bool = False

    def rows(self, request_ids: Sequence[str], kmax: int) -> tuple[FloatArray, FloatArray]:
        """Both for these requests: [B, kmax] each, nan where nothing is known."""
        found = np.full((2, len(request_ids), kmax), np.nan)
        depth = min(self.confidence.shape[1], kmax)
        if depth:
            row_of = {name: row for row, name in enumerate(self.request_ids)}
            pairs = [
                (here, row)
                for here, name in enumerate(request_ids)
                if (row := row_of.get(name)) is not None
            ]
            if pairs:
                here, there = np.array(pairs).T
                found[0, here, :depth] = self.confidence[there, :depth]
                found[1, here, :depth] = self.entropy[there, :depth]
        return found[0], found[1]
