"""Hazards of drafts that were looked up: copied from earlier text, without a model.

The hazard is the probability that draft j agrees given that the drafts before it did. Its logit is
b_j + m_l + u_i: position, length l of the match (in classes) and request, learned as those of the
drafter (`adaptive_spec.policies.acceptance.hazard_model`).

Labels are free. What a step emits says of each looked-up draft, verified or not, whether it was
right, up to the first wrong one or the end of what was emitted. So each source is scored in every
step, as in HedgeSpec (arXiv 2510.20064), and none has to be tried for its own sake.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from adaptive_spec.errors import PolicyError
from adaptive_spec.policies.acceptance.hazard_model import HazardModel
from adaptive_spec.step import FloatArray, IntArray

_PRIOR_HAZARD = 0.5
_CLASSES = np.array((2, 3, 4, 6, 8, 12, 16, 24, 32))
"""Least lengths of a match, of all classes but the first."""


class LookupModel:
    """Posterior of the hazards of looked-up drafts.

    Args:
        max_draft_tokens: Kmax.
    """

    def __init__(self, max_draft_tokens: int) -> None:
        self._kmax = max_draft_tokens
        self._hazards = HazardModel(max_draft_tokens, _PRIOR_HAZARD)

    def hazard(self, slots: IntArray, match: IntArray) -> FloatArray:
        """Return hazards [Kmax, B] of drafts that follow matches of this length [B]."""
        return self._hazards.hazard(slots, _class_of(match))

    def learn_copied(
        self,
        slots: IntArray,
        available: IntArray,
        match: IntArray,
        agreed: IntArray,
        emitted: IntArray,
    ) -> None:
        """Take up a step.

        Args:
            slots: [B] rows of the requests.
            available: [B] drafts that had been looked up.
            match: [B] lengths of their matches.
            agreed: [B] leading ones of them that are what was emitted.
            emitted: [B] tokens of the step; it says nothing of drafts beyond these.
        """
        shown = np.minimum(available, emitted)
        right = np.minimum(agreed, shown)
        seen = np.where(right < shown, right + 1, shown)
        self._hazards.learn_outcomes(
            self.hazard(slots, match), slots, seen, right, _class_of(match)
        )

    def forget(self, slots: IntArray) -> None:
        """Drop the state of ended requests."""
        self._hazards.effects.forget(slots)

    def widen(self, evidence: float, *, centre: bool = False) -> None:
        """Trust the past less."""
        self._hazards.widen(evidence, centre=centre)

    def state(self) -> dict[str, Any]:
        """Return what holds beyond single requests, JSON-compatible."""
        return {**self._hazards.state(), "by_match": self._hazards.tasks.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a saved state. Raises PolicyError, and changes nothing, if it does not fit."""
        hazards = HazardModel(self._kmax, _PRIOR_HAZARD)
        try:
            hazards.tasks.restore(state["by_match"])
        except (KeyError, TypeError) as error:
            raise PolicyError(f"acceptance state does not fit: {error!r}") from error
        hazards.restore(state)
        self._hazards = hazards


def _class_of(match: IntArray) -> IntArray:
    """[B] class of each length."""
    found: IntArray = np.searchsorted(_CLASSES, match, side="right")
    return found
