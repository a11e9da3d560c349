"""Baseline: the confidence threshold of Hugging Face transformers, refitted after each round.

Rule: drafting ends after the first draft with a probability below the threshold (0.4 at first);
that draft is kept. Once more than five drafts have been judged, with both accepted and rejected
ones, the threshold becomes the point of the ROC curve of (probability, accepted) with the least

    false positive rate + 3 * false negative rate,

which decides from the next round on. Without scikit-learn the original never refits: `refit=false`.

Source: `ConfidenceCriteria` in generation/stopping_criteria.py and `update_candidate_strategy` in
generation/candidate_generator.py of transformers 5.19 (`assistant_confidence_threshold`,
`num_assistant_tokens` 20, here `max_drafts`). Granularity: L2; the original serves one request.
Without the confidence signal: the engine's own K.

Stand-ins: the original compares the probability of the drafted token, the contract carries the
maximum probability; for greedy drafts they are equal. (Either is lossless for sampled drafts: the
judged draft is kept, only the next is not made.) One history serves all requests and is limited to
`window` drafts; the original keeps all drafts of a generation and resets at its end.

Faults kept: weights 1 and 3 whatever the cost of drafts and verification; the rule learns only from
drafts that its own threshold admitted; load is ignored; the first draft is always made.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
import numpy as np

from adaptive_spec.policy import Provenance
from adaptive_spec.sim.baselines.parts.drafts import observed
from adaptive_spec.sim.baselines.stopping.confidence_stop import (
    ConfidenceStop,
    StoppingOptions,
    before_the_first,
)
from adaptive_spec.step import BoolArray, FinishedStep, FloatArray, IntArray, Level

_NEEDED = 5
"""Judged drafts that a refit must exceed."""
_MISSED = 3.0
"""Weight of a false negative: a stop before a draft that would have been accepted."""


class HfConfidenceOptions(StoppingOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of `hf_confidence`."""

    max_drafts: Annotated[int, msgspec.Meta(ge=1)] | None = 20
    """Most drafts per request and step; null, or above Kmax: Kmax."""
    threshold: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.4
    """Initial probability below which drafting stops."""
    refit: bool = True
    """Refit the threshold to accepted drafts."""
    window: Annotated[int, msgspec.Meta(ge=6, le=16_384)] = 2048
    """Most remembered judged drafts."""


class HfConfidencePolicy(ConfidenceStop):
    """Policy that drafts above a probability threshold, refitted on the ROC curve.

    Attributes:
        threshold: of the maximum probability.
    """

    name: ClassVar[str] = "hf_confidence"
    summary: ClassVar[str] = "drafts until below a refitted confidence threshold, transformers"
    Options: ClassVar[type[msgspec.Struct]] = HfConfidenceOptions
    provenance: ClassVar[Provenance] = Provenance(
        source="transformers generation/stopping_criteria.py and candidate_generator.py",
        granularity=Level.FULL,
        faults="fixed weights instead of costs; learns only from drafts that its threshold kept; "
        "ignores load; never off; maximum probability in place of the drafted token's, one "
        "history for all requests",
    )

    def __init__(self, options: HfConfidenceOptions, *, seed: int = 0) -> None:
        super().__init__(options, seed=seed)
        self._options = options
        self.threshold = options.threshold
        self._shown: FloatArray = np.zeros(0)
        self._taken: BoolArray = np.zeros(0, dtype=np.bool_)

    def kept(self, confidence: FloatArray) -> IntArray:
        """Stop after a position with a probability below the threshold."""
        return before_the_first(confidence < self.threshold) + 1  # nan is no reason to stop

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
            self.threshold = cheapest_threshold(self._shown, self._taken)


def cheapest_threshold(shown: FloatArray, taken: BoolArray) -> float:
    """Return the probability with the least false positive rate + 3 * false negative rate.

    Args:
        shown: [N] probabilities; a draft at or above the threshold is predicted as accepted.
        taken: [N] accepted; both values must occur. Ties go to the highest threshold.
    """
    order = np.argsort(-shown, kind="stable")
    ranked = shown[order]
    last = np.append(ranked[1:] != ranked[:-1], True)  # last of equal probabilities
    true = np.cumsum(taken[order])[last]
    false = np.cumsum(~taken[order])[last]
    cost = false / false[-1] + _MISSED * (1.0 - true / true[-1])
    return float(ranked[last][np.argmin(cost)])
