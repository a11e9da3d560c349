"""Table of observed drafts with the features that the policy computes online."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from adaptive_spec.policies.regression.features import (
    RequestHistory,
    confidence_feature,
    context_feature,
)
from adaptive_spec.sim.fit.sources import Steps
from adaptive_spec.step import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Drafts:
    """N observed drafts: position j of a step is one iff j <= min(accepted + 1, verified).

    Attributes:
        position: [N] from 0.
        accepted: [N] 0.0 or 1.0.
        request: [N]
        columns: [N] features by name (`adaptive_spec.policies.regression.features`), nan unknown.
    """

    position: IntArray
    accepted: FloatArray
    request: IntArray
    columns: dict[str, FloatArray]

    def only(self, rows: FloatArray | IntArray) -> Drafts:
        """These rows."""
        return Drafts(
            self.position[rows],
            self.accepted[rows],
            self.request[rows],
            {name: column[rows] for name, column in self.columns.items()},
        )


def average_hazards(steps: Steps, positions: int) -> FloatArray:
    """[positions] hazard of each position, by the product-limit form, kept off 0 and 1.

    A position that was never reached has the hazard of the one before.
    """
    seen = np.minimum(steps.accepted + 1, steps.verified)
    hazards = np.empty(positions)
    for position in range(positions):
        reached = int(np.count_nonzero(seen > position))
        kept = int(np.count_nonzero(steps.accepted > position))
        before = hazards[position - 1] if position else 0.5
        hazards[position] = (kept + 2.0 * before) / (reached + 2.0)
    return np.clip(hazards, 0.02, 0.98)


def seen_by_position(steps: Steps) -> IntArray:
    """[P] steps in which each position was observed."""
    seen = np.minimum(steps.accepted + 1, steps.verified)
    counts = [int(np.count_nonzero(seen > position)) for position in range(int(seen.max()))]
    return np.array(counts, dtype=np.int64)


def observed_drafts(steps: Steps, average: FloatArray, task_effects: FloatArray) -> Drafts:
    """Every observed draft with its features.

    Args:
        steps: in order within each request.
        average: [P] hazards that history is held against.
        task_effects: [labels + 1] effect of each label; the last is that of none.
    """
    history, recent, progress = _histories(steps, average)
    seen = np.minimum(steps.accepted + 1, steps.verified)
    step = np.repeat(np.arange(len(seen)), seen)
    position: IntArray = (np.arange(len(step)) - np.repeat(np.cumsum(seen) - seen, seen)).astype(
        np.int64
    )
    width = steps.confidence.shape[1]
    inside = np.minimum(position, width - 1)

    def signal(values: FloatArray) -> FloatArray:
        return np.where(position < width, values[step, inside], np.nan)

    return Drafts(
        position=position,
        accepted=(position < steps.accepted[step]).astype(np.float64),
        request=steps.request[step],
        columns={
            "history": history[step],
            "recent": recent[step],
            "progress": progress[step],
            "temperature": steps.temperature[step],
            "context": context_feature(steps.context[step]),
            "load": np.log2(steps.load[step]),
            "task": task_effects[steps.task[step]],
            "confidence": confidence_feature(signal(steps.confidence)),
            "entropy": signal(steps.entropy),
        },
    )


def _histories(steps: Steps, average: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Histories of the requests as known before each step: [S] each.

    All requests at once: the first step of each, then the second of each, and so on.
    """
    order = np.argsort(steps.request, kind="stable")
    counts = np.bincount(steps.request, minlength=steps.requests)
    first = np.cumsum(counts) - counts
    past = RequestHistory(average)
    result = np.zeros((3, len(order)))
    for number in range(int(counts.max())):
        request = np.flatnonzero(counts > number).astype(np.int64)
        rows = order[first[request] + number]
        result[:, rows] = past.features(request)
        past.add_outcomes(request, steps.verified[rows], steps.accepted[rows])
    return result[0], result[1], result[2]
