"""Online evaluation of the fitted hazards: features of finished steps, both heads, corrections.

The history head uses no value of the available drafts, so any decision may use it. The drafts head
uses the drafter's signals before each token was drawn; `adaptive_spec.policies.regression.policy`
states which decisions may use it.
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
"""Largest weight of an unverified draft: below 1, so that it never counts as an observation."""


class Survival(NamedTuple):
    """Survival [Kmax, B]: probability that all drafts up to a position are accepted.

    Attributes:
        stale: survival from finished steps.
        live: survival with the signals of the available drafts; None without signals.
        logits: [B, Kmax] each: of the history head and, with signals, of the drafts head (nan for
            drafts without one). Needed to learn from the finished step.
    """

    stale: FloatArray
    live: FloatArray | None
    logits: tuple[FloatArray, ...]


class FittedHazards:
    """Predictor and learner of hazards.

    Args:
        model: the fitted model.
        kmax: Kmax of the engine; positions beyond the fitted ones use the last one.
        tasks: label of each task number.
        discount: discount of a request's own residuals.
        first_evidence: initial weight of the model.
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
        # The last entry serves task -1 and unnamed task numbers.
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
        """[Kmax] number of observations of each position."""
        return self._of_history.observations

    def survival(self, context: StepContext) -> Survival:
        """Return the survival of this step's drafts."""
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
        """Learn from a finished step and its planned logits; empty logits if it was not planned."""
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
        # Signals selected the verified drafts, which are therefore no fair sample. So the
        # unverified drafts count too, with their expected acceptance.
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
        """Reset the state of these slots."""
        self._past.forget(slots)
        self._of_history.forget(slots)
        self._of_drafts.forget(slots)

    def widen(self) -> None:
        """Lower the confidence in the corrections after a suspected change."""
        self._of_history.widen()
        self._of_drafts.widen()

    def state(self) -> dict[str, Any]:
        """Return the corrections, JSON-compatible."""
        return {
            "history": self._of_history.state(),
            "drafts": self._of_drafts.state(),
            "average": self._average.state(),
        }

    def restore(self, state: Any) -> None:
        """Load saved corrections. Raises PolicyError if they do not fit."""
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
