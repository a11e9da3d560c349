"""Table of observed drafts with the features that the policy computes online."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from adaptive_spec.policies.regression import History, logit_of
from adaptive_spec.sim.fit.sources import Steps
from adaptive_spec.step import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Drafts:
    """N observed drafts: position j of a step is one iff j <= min(accepted + 1, verified).

    Attributes:
        position: [N] from 0.
        accepted: [N] 0.0 or 1.0.
        request: [N]
        history: [N] x of the request before the step.
        confidence: [N] y, nan where unknown.
    """

    position: IntArray
    accepted: FloatArray
    request: IntArray
    history: FloatArray
    confidence: FloatArray

    def only(self, rows: IntArray) -> Drafts:
        """These rows."""
        return Drafts(
            self.position[rows],
            self.accepted[rows],
            self.request[rows],
            self.history[rows],
            self.confidence[rows],
        )


def average_hazards(steps: Steps, positions: int) -> list[float]:
    """[positions] hazard of each position, by the product-limit form, kept off 0 and 1.

    A position that was never reached has the hazard of the one before.
    """
    hazards: list[float] = []
    before = 0.5
    for position in range(positions):
        reached = int(np.count_nonzero(steps.seen > position))
        kept = int(np.count_nonzero(steps.accepted > position))
        before = min(max((kept + 2.0 * before) / (reached + 2.0), 0.02), 0.98)
        hazards.append(round(before, 5))
    return hazards


def seen_by_position(steps: Steps) -> IntArray:
    """[P] steps in which each position was observed."""
    return np.bincount(steps.seen, minlength=1)[::-1].cumsum()[::-1][1:].astype(np.int64)


def observed_drafts(steps: Steps, average: list[float]) -> Drafts:
    """Every observed draft with its features, held against the average [P] hazards."""
    seen = steps.seen
    step = np.repeat(np.arange(len(seen)), seen)
    position = np.arange(len(step)) - np.repeat(np.cumsum(seen) - seen, seen)
    width = steps.confidence.shape[1]
    shown = steps.confidence[step, np.minimum(position, width - 1)]
    return Drafts(
        position=position.astype(np.int64),
        accepted=(position < steps.accepted[step]).astype(np.float64),
        request=steps.request[step],
        history=_histories(steps, average)[step],
        confidence=logit_of(np.where(position < width, shown, np.nan)),
    )


def _histories(steps: Steps, average: list[float]) -> FloatArray:
    """[S] x of the requests as known before each step.

    All requests at once: the first step of each, then the second of each, and so on.
    """
    order = np.argsort(steps.request, kind="stable")
    counts = np.bincount(steps.request, minlength=steps.requests)
    first = np.cumsum(counts) - counts
    past, result = History(average), np.zeros(len(order))
    for number in range(int(counts.max())):
        request = np.flatnonzero(counts > number).astype(np.int64)
        rows = order[first[request] + number]
        result[rows] = past.x(request)
        past.learn(request, steps.verified[rows], steps.accepted[rows])
    return result
