"""Peer: the confidence threshold of Hugging Face transformers, refitted after each round.

Rule: drafting ends after the first draft whose probability is below the threshold (0.4 at first);
that draft is kept. Once more than five drafts have been judged, accepted and rejected ones among
them, the threshold becomes the point of the ROC curve of (probability, accepted) with the least

    false positive rate + 3 * false negative rate.

Source: `ConfidenceCriteria` in generation/stopping_criteria.py and `update_candidate_strategy` in
generation/candidate_generator.py of transformers 5.19 (`assistant_confidence_threshold`,
`num_assistant_tokens` 20, here `max_drafts`). Granularity: L2; the original serves one request.
Without the confidence signal: the engine's own K.

Stand-ins: the original compares the probability of the drafted token, the seam carries the
maximum probability; for greedy drafts they are the same. (Either is lossless for sampled drafts:
the draft that was looked at is kept, only the next is not made.) One history serves all requests
and is cut at `window` drafts, where the original keeps all of a generation and drops it at its end.

Faults kept: weights 1 and 3 whatever drafts and verification cost; the drafts it learns from are
those its own threshold let through; blind to load; the first draft is always made.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
import numpy as np

from adaptive_spec.errors import PolicyError
from adaptive_spec.policies.baselines.parts.observed_positions import observed
from adaptive_spec.policies.baselines.stopping.live_stopping import (
    LiveStoppingPolicy,
    StoppingOptions,
    Stops,
)
from adaptive_spec.policy import Provenance, State
from adaptive_spec.step import BoolArray, FinishedStep, FloatArray, IntArray, Level

_NEEDED = 5
"""More drafts than this must have been judged."""
_MISSED = 3.0
"""Weight of stopping before a draft that would have been accepted."""


class HfConfidenceOptions(StoppingOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of `hf_confidence`."""

    max_drafts: Annotated[int, msgspec.Meta(ge=1)] | None = 20
    """The most drafts per request and step; null, or above Kmax: Kmax."""
    threshold: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.4
    """Probability below which drafting stops, at first."""
    refit: bool = True
    """Move the threshold by what was accepted."""
    window: Annotated[int, msgspec.Meta(ge=6)] = 2048
    """Judged drafts that are remembered."""


class HfConfidencePolicy(LiveStoppingPolicy):
    """Drafts on while the draft is likely enough, by a threshold refitted on the ROC curve."""

    name: ClassVar[str] = "hf_confidence"
    summary: ClassVar[str] = "drafts until below a refitted confidence threshold, transformers"
    Options: ClassVar[type[msgspec.Struct]] = HfConfidenceOptions
    provenance: ClassVar[Provenance] = Provenance(
        source="transformers generation/stopping_criteria.py and candidate_generator.py",
        granularity=Level.FULL,
        faults="fixed weights instead of costs; learns from what its own threshold let through; "
        "blind to load; never off; maximum probability for that of the drafted token, one "
        "history for all requests",
    )
    needs_confidence = True

    def __init__(self, options: HfConfidenceOptions, *, seed: int = 0) -> None:
        del seed
        super().__init__(options.max_drafts)
        self._options = options
        self._threshold = self._frozen = options.threshold
        self._shown: FloatArray = np.zeros(0)
        self._taken: BoolArray = np.zeros(0, dtype=np.bool_)

    def stops(self, slots: IntArray, confidence: FloatArray, entropy: FloatArray) -> Stops:
        """Stop after a position whose probability is below the threshold."""
        goes_on = ~(confidence < self._frozen)  # nan is no reason to stop
        return Stops(np.ones_like(goes_on), goes_on)

    def freeze(self, slots: IntArray) -> None:
        """Fix the threshold for the drafts that are made next."""
        self._frozen = self._threshold

    def observe(self, step: FinishedStep) -> None:
        """Add the judged drafts and refit the threshold."""
        confidence, outcome = step.context.confidence, step.outcome
        if not self._options.refit or confidence is None:
            return
        seen, taken = observed(outcome.verified, outcome.accepted, confidence.shape[1])
        seen &= ~np.isnan(confidence)
        if not seen.any():
            return
        window = self._options.window
        self._shown = np.concatenate((self._shown, confidence[seen]))[-window:]
        self._taken = np.concatenate((self._taken, taken[seen]))[-window:]
        if len(self._shown) > _NEEDED and self._taken.any() and not self._taken.all():
            self._threshold = cheapest_threshold(self._shown, self._taken)

    def state(self) -> State:
        """The threshold."""
        return {"threshold": self._threshold}

    def restore(self, state: State) -> None:
        """Take up a saved threshold. Raises PolicyError if it is none."""
        threshold = state.get("threshold", self._threshold)
        number = isinstance(threshold, (int, float)) and not isinstance(threshold, bool)
        if not number or not 0.0 <= threshold <= 1.0 or set(state) - {"threshold"}:
            raise PolicyError("hf_confidence state: `threshold`, a number 0..1, expected")
        self._threshold = self._frozen = float(threshold)


def cheapest_threshold(shown: FloatArray, taken: BoolArray) -> float:
    """The probability with the least false positive rate + 3 false negative rate.

    Args:
        shown: [N] probabilities; a draft counts as predicted accepted at or above the threshold.
        taken: [N] accepted; both kinds must occur. Of equally cheap thresholds, the highest.
    """
    order = np.argsort(-shown, kind="stable")
    ranked = shown[order]
    last = np.append(ranked[1:] != ranked[:-1], True)  # of equal probabilities
    true = np.cumsum(taken[order])[last]
    false = np.cumsum(~taken[order])[last]
    cost = false / false[-1] + _MISSED * (1.0 - true / true[-1])
    return float(ranked[last][np.argmin(cost)])
