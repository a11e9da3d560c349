"""Baseline: DISCO, a classifier that decides after each draft whether to go on.

Rule: drafting ends after the first position where the classifier's acceptance probability is below
`threshold`. Features: the likeliest probabilities of the draft distribution, its entropy, and the
position in the draft.

Source: arXiv 2405.04304, known here only from its description. Granularity: L2; the original serves
one request. Without confidence and entropy: the engine's own K.

Stand-ins: the original trains a feed-forward network offline on recorded drafts. Such a network is
not available here, so a logistic model learns online: log-odds of acceptance are linear in
logit(max q), entropy and position / Kmax. The model starts at max q itself. A Newton step every 100
steps, with ridge towards the present weights, refits it; the statistics are then reset. Of the
likeliest probabilities the contract carries the first.

Faults kept: one threshold for all loads; load is ignored; the first draft is always made.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
import numpy as np

from adaptive_spec.policy import Provenance
from adaptive_spec.sim.baselines.parts.drafts import log_odds, observed, sigmoid
from adaptive_spec.sim.baselines.stopping.live_stopping import (
    LiveStoppingPolicy,
    StoppingOptions,
    Stops,
)
from adaptive_spec.step import FinishedStep, FloatArray, IntArray, Level, SpecPlan, StepContext

_FEATURES = 4
_REFIT_STEPS = 100
_RIDGE = 1.0
_LARGEST_CHANGE = 1.0
"""Largest change of a weight in one refit."""


class DiscoOptions(StoppingOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of `disco`."""

    threshold: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.5
    """Acceptance probability below which drafting stops."""
    learn: bool = True
    """Refit online."""


class DiscoPolicy(LiveStoppingPolicy):
    """Policy that drafts while a classifier expects acceptance.

    Attributes:
        weights: of the classifier.
    """

    name: ClassVar[str] = "disco"
    summary: ClassVar[str] = "drafts until a classifier (confidence, entropy) stops, DISCO"
    Options: ClassVar[type[msgspec.Struct]] = DiscoOptions
    provenance: ClassVar[Provenance] = Provenance(
        source="DISCO, arXiv 2405.04304 (description only)",
        granularity=Level.FULL,
        faults="one threshold; ignores load; never off; an online logistic model stands in for "
        "the network trained offline",
    )
    needs_confidence = True
    needs_entropy = True

    def __init__(self, options: DiscoOptions, *, seed: int = 0) -> None:
        super().__init__(options, seed=seed)
        self._options = options
        self.weights: FloatArray = np.array([0.0, 1.0, 0.0, 0.0])
        self._frozen = self.weights
        self._kmax = 1
        self._begin_round()

    def stops(self, slots: IntArray, confidence: FloatArray, entropy: FloatArray) -> Stops:
        """Stop after a position with an expected rejection."""
        expected = sigmoid(self._features(confidence, entropy) @ self._frozen)
        goes_on = ~(expected < self._options.threshold)  # nan is no reason to stop
        return Stops(np.ones_like(goes_on), goes_on)

    def freeze(self, slots: IntArray) -> None:
        """Fix the weights for the next drafts."""
        self._frozen = self.weights

    def plan(self, context: StepContext) -> SpecPlan:
        """Plan K_i: the available drafts that the classifier keeps."""
        self._kmax = context.capability.max_draft_tokens
        return super().plan(context)

    def observe(self, step: FinishedStep) -> None:
        """Add the judged drafts; every 100 steps, take one Newton step."""
        confidence, entropy = step.context.confidence, step.context.entropy
        if not self._options.learn or confidence is None or entropy is None:
            return
        outcome = step.outcome
        seen, taken = observed(outcome.verified, outcome.accepted, confidence.shape[1])
        seen &= ~(np.isnan(confidence) | np.isnan(entropy))
        features = self._features(confidence, entropy)[seen]
        expected = sigmoid(features @ self.weights)
        weight = expected * (1.0 - expected)
        self._information += features.T @ (weight[:, None] * features)
        self._gradient += features.T @ (taken[seen] - expected)
        self._steps += 1
        if self._steps >= _REFIT_STEPS:
            change = np.linalg.solve(self._information, self._gradient)
            self.weights = self.weights + np.clip(change, -_LARGEST_CHANGE, _LARGEST_CHANGE)
            self._begin_round()

    def _begin_round(self) -> None:
        self._steps = 0
        self._information: FloatArray = _RIDGE * np.eye(_FEATURES)
        self._gradient: FloatArray = np.zeros(_FEATURES)

    def _features(self, confidence: FloatArray, entropy: FloatArray) -> FloatArray:
        """Return the features of each position, [B, J, 4]."""
        position = np.arange(1, confidence.shape[1] + 1) / self._kmax
        features = np.empty((*confidence.shape, _FEATURES))
        features[..., 0] = 1.0
        features[..., 1] = log_odds(confidence)
        features[..., 2] = entropy
        features[..., 3] = position
        return features
