"""The fitted hazards online: features from finished steps, both heads, their corrections.

The history head uses nothing of the drafts at hand, so anything may be decided from it. The
drafts head uses what the drafter said before each token was drawn; what may be decided from it is
said where it is used (`adaptive_spec.policies.regression.policy`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from adaptive_spec.errors import PolicyError
from adaptive_spec.policies.regression.correction import Correction, RunningAverage
from adaptive_spec.policies.regression.features import (
    RequestHistory,
    confidence_feature,
    context_feature,
)
from adaptive_spec.policies.regression.heads import Columns, evaluator
from adaptive_spec.policies.regression.model_file import RegressionModel
from adaptive_spec.step import FloatArray, IntArray, StepContext, StepOutcome

_ALMOST_SEEN = 0.999
"""Weight of a draft that was not verified: never counted as an observation."""


class Survival(NamedTuple):
    """Probability [Kmax, B] that all drafts up to a position are accepted.

    Attributes:
        stale: from finished steps.
        live: with the signals of the drafts at hand where there are any; None without.
        logits: [B, Kmax] each: of the history head and, where there are signals, of the drafts
            head, nan for drafts without one. To be learned from when the step has finished.
    """

    stale: FloatArray
    live: FloatArray | None
    logits: tuple[FloatArray, ...]


class FittedHazards:
    """Predicts and learns.

    Args:
        model: the fitted model.
        kmax: Kmax of the engine; positions deeper than fitted count as the last that was.
        tasks: label of each task number.
        discount: of a request's own residuals.
        first_evidence: what the model is worth at first.
    """

    def __init__(
        self,
        model: RegressionModel,
        kmax: int,
        *,
        tasks: list[str],
        discount: float,
        first_evidence: float,
    ) -> None:
        self._kmax = kmax
        average = np.array(model.average)
        self._average = RunningAverage(average, first_evidence=first_evidence)
        self._past = RequestHistory(average)
        # The last entry is that of task -1, and of numbers without a name.
        effects = [model.tasks.get(label, np.nan) for label in tasks]
        self._task_effects: FloatArray = np.array([*effects, np.nan])
        self._history = evaluator(model.history, kmax)
        self._drafts = None if model.drafts is None else evaluator(model.drafts, kmax)

        def correction() -> Correction:
            return Correction(
                kmax,
                request_variance=model.request_variance,
                discount=discount,
                first_evidence=first_evidence,
            )

        self._of_history, self._of_drafts = correction(), correction()

    @property
    def observations(self) -> IntArray:
        """[Kmax] times each position has been observed."""
        return self._of_history.observations

    def survival(self, context: StepContext) -> Survival:
        """What to expect of this step's drafts."""
        columns = self._columns(context)
        slots, batch = context.slots, context.batch_size
        history = self._history.logits(columns, batch)
        stale = self._of_history.hazard(history, slots)
        drafts: FloatArray | None = None
        live: FloatArray | None = None
        if self._drafts is not None and context.confidence is not None:
            confidence = np.ascontiguousarray(context.confidence.T, dtype=np.float64)
            known = ~np.isnan(confidence)
            if known.any():
                columns["confidence"] = confidence_feature(confidence)
                if context.entropy is not None:
                    columns["entropy"] = np.ascontiguousarray(context.entropy.T, dtype=np.float64)
                drafts = np.where(known, self._drafts.logits(columns, batch), np.nan)
                hazard = self._of_drafts.hazard(np.where(known, drafts, 0.0), slots)
                live = np.cumprod(np.where(known, hazard, stale), axis=0)
        np.cumprod(stale, axis=0, out=stale)
        return Survival(stale, live, (history.T,) if drafts is None else (history.T, drafts.T))

    def learn(self, outcome: StepOutcome, logits: tuple[FloatArray, ...]) -> None:
        """Take up a finished step and the logits it was planned with; empty if it was not."""
        if logits and outcome.slots.size:
            self._learn(outcome, [np.ascontiguousarray(head.T) for head in logits])
        self._past.learn(outcome.slots, outcome.verified, outcome.accepted)

    def _learn(self, outcome: StepOutcome, heads: list[FloatArray]) -> None:
        slots, verified, accepted = outcome.slots, outcome.verified, outcome.accepted
        position = np.arange(self._kmax)[:, None]
        weights = (position < np.minimum(accepted + 1, verified)).astype(np.float64)
        labels = (position < accepted).astype(np.float64)
        history = heads[0]
        if len(heads) == 1:
            self._learn_history(history, slots, labels, weights)
            return
        logits = heads[1]
        known = ~np.isnan(logits)
        logits = np.nan_to_num(logits)
        expected = self._of_drafts.hazard(logits, slots)
        self._of_drafts.learn(logits, slots, labels, np.where(known, weights, 0.0))
        # What was not verified was left out because of its signals: the drafts that were are no
        # fair sample of all. So the others count too, with what their signals say.
        open_end = (position >= verified) & (accepted == verified) & known
        reached = np.cumprod(np.where(position >= verified, expected * known, 1.0), axis=0)
        reached[1:] = reached[:-1].copy()
        reached[0] = 1.0
        labels = np.where(open_end, expected, labels)
        weights = np.where(open_end, np.minimum(reached, _ALMOST_SEEN), weights)
        self._learn_history(history, slots, labels, weights)

    def _learn_history(
        self, logits: FloatArray, slots: IntArray, labels: FloatArray, weights: FloatArray
    ) -> None:
        self._of_history.learn(logits, slots, labels, weights)
        self._average.learn(labels, weights)
        self._past.average = self._average.hazards

    def forget(self, slots: IntArray) -> None:
        """Requests have ended."""
        self._past.forget(slots)
        self._of_history.forget(slots)
        self._of_drafts.forget(slots)

    def widen(self) -> None:
        """Trust the corrections less: something may have changed."""
        self._of_history.widen()
        self._of_drafts.widen()

    def state(self) -> dict[str, Any]:
        """The corrections, JSON-compatible."""
        return {
            "history": self._of_history.state(),
            "drafts": self._of_drafts.state(),
            "average": self._average.state(),
        }

    def restore(self, state: Any) -> None:
        """Take up saved corrections. Raises PolicyError if they do not fit."""
        if not isinstance(state, dict) or not {"history", "drafts", "average"} <= state.keys():
            raise PolicyError(
                "regression state: `corrections` needs `history`, `drafts` and `average`"
            )
        self._of_history.restore(state["history"])
        self._of_drafts.restore(state["drafts"])
        self._average.restore(state["average"])
        self._past.average = self._average.hazards

    def _columns(self, context: StepContext) -> Columns:
        history, recent, progress = self._past.features(context.slots)
        task = np.minimum(context.task, len(self._task_effects) - 1)
        batch = context.batch_size
        return {
            "history": history,
            "recent": recent,
            "progress": progress,
            "temperature": context.temperature,
            "context": context_feature(context.context_tokens.astype(np.float64)),
            "load": np.full(batch, np.log2(max(batch, 1))),
            "task": self._task_effects[task],
        }
