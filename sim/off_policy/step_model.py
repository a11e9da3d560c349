"""Predictions of a step's tokens and seconds, learned from the steps before it only.

So an error of the prediction for a step does not depend on that step's own noise, and correcting
it by weighted errors (doubly robust) needs no second half of the data.
"""

from __future__ import annotations

import numpy as np

from adaptive_spec.policies.acceptance.model import AcceptanceModel, survival_of
from adaptive_spec.sim.off_policy.step_time import StepTimeRegression
from adaptive_spec.step import Capability, FloatArray, IntArray, StepOutcome


class StepModel:
    """Acceptance by request and position, and step times: the models beside each other."""

    def __init__(self, capability: Capability) -> None:
        self._acceptance = AcceptanceModel(capability.max_draft_tokens)
        self.time = StepTimeRegression(capability)

    @property
    def ready(self) -> bool:
        """Step times can be predicted."""
        return self.time.ready

    def survival(self, slots: IntArray) -> FloatArray:
        """[Kmax, B] predicted probability that all drafts up to a position are accepted."""
        return survival_of(self._acceptance.hazard(slots))

    def learn(self, ran: StepOutcome, ended: IntArray) -> None:
        """Take up a step, and forget the requests that ended with it."""
        self._acceptance.learn(ran.slots, ran.verified, ran.accepted)
        self.time.learn(ran)
        if ended.size:
            self._acceptance.forget(ended)


def expected_tokens(survival: FloatArray, verify: IntArray) -> FloatArray:
    """[B] tokens each request emits with K_i verified, from survival [Kmax, B]."""
    admitted = np.arange(len(survival))[:, None] < verify
    tokens: FloatArray = 1.0 + np.sum(survival, axis=0, where=admitted)
    return tokens
