"""Online evaluation of the fitted hazards: features of finished steps, both heads, corrections.

The history head uses no value of the available drafts, so any decision may use it. The drafts head
uses the drafter's signals before each token was drawn; `adaptive_spec.policies.regression.policy`
states which decisions may use it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from adaptive_spec.errors import PolicyError
from adaptive_spec.policies.acceptance.hazard_model import Observed, survival_of
from adaptive_spec.policies.acceptance.model import passed_over
from adaptive_spec.policies.regression.correction import CorrectedHead
from adaptive_spec.policies.regression.features import (
    RequestHistory,
    confidence_feature,
    context_feature,
)
from adaptive_spec.policies.regression.model_file import Columns, HeadEvaluator, RegressionModel
from adaptive_spec.step import FloatArray, IntArray, StepContext, StepOutcome

_WIDE_EVIDENCE = 20.0
"""Fisher information that a position's correction keeps after a change was noticed."""


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
    """

    def __init__(self, model: RegressionModel, kmax: int, *, tasks: list[str]) -> None:
        self._kmax = kmax
        self._past = RequestHistory(np.array(model.average))
        # The last entry serves task -1 and unnamed task numbers.
        effects = [model.tasks.get(label, np.nan) for label in tasks]
        self._task_effects: FloatArray = np.array([*effects, np.nan])
        self._history = HeadEvaluator(model.history, kmax)
        self._drafts = None if model.drafts is None else HeadEvaluator(model.drafts, kmax)
        self._of_history, self._of_drafts = CorrectedHead(kmax), CorrectedHead(kmax)

    @property
    def observations(self) -> IntArray:
        """[Kmax] number of observations of each position."""
        return self._of_history.effects.observations

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
                live = survival_of(self._by_drafts(drafts, stale, slots))
        logits = (history.T,) if drafts is None else (history.T, drafts.T)
        return Survival(survival_of(stale), live, logits)

    def learn_outcomes(self, outcome: StepOutcome, logits: tuple[FloatArray, ...]) -> None:
        """Learn from a finished step and its planned logits; empty logits if it was not planned."""
        slots, verified, accepted = outcome.slots, outcome.verified, outcome.accepted
        if logits and slots.size:
            history, *others = (np.ascontiguousarray(head.T) for head in logits)
            by_history = self._of_history.hazard(history, slots)
            step = Observed.of(self._kmax, verified, accepted)
            labels, weights = step.right.astype(np.float64), step.seen.astype(np.float64)
            imputed = None
            for drafts in others:
                hazard = self._by_drafts(drafts, by_history, slots)
                # Signals selected the verified drafts, which are therefore no fair sample. So the
                # history learns from the unverified ones, too.
                missed, uncertain, _ = passed_over(drafts, verified, accepted, hazard, by_history)
                imputed = missed, uncertain
                labels = np.where(step.seen, labels, hazard)
                weights += uncertain / (by_history * (1.0 - by_history))
                self._of_drafts.learn_correction(drafts, hazard, slots, verified, accepted)
            self._of_history.learn_correction(
                history, by_history, slots, verified, accepted, imputed
            )
            self._past.follow(labels, weights)
        self._past.add_outcomes(slots, verified, accepted)

    def forget(self, slots: IntArray) -> None:
        """Reset the state of these slots."""
        self._past.forget(slots)
        self._of_history.effects.effects.forget(slots)
        self._of_drafts.effects.effects.forget(slots)

    def widen(self, *, centre: bool = False) -> None:
        """Lower the confidence in the corrections after a suspected change."""
        self._of_history.effects.widen(_WIDE_EVIDENCE, centre=centre)
        self._of_drafts.effects.widen(_WIDE_EVIDENCE, centre=centre)

    def state(self) -> dict[str, Any]:
        """Return the corrections, JSON-compatible."""
        return {
            "history": self._of_history.effects.state(),
            "drafts": self._of_drafts.effects.state(),
        }

    def restore(self, state: Any) -> None:
        """Load saved corrections. Raises PolicyError if they do not fit."""
        if not isinstance(state, dict) or not {"history", "drafts"} <= state.keys():
            raise PolicyError("regression state: `corrections` needs `history` and `drafts`")
        self._of_history.effects.restore(state["history"])
        self._of_drafts.effects.restore(state["drafts"])

    def _by_drafts(self, logits: FloatArray, by_history: FloatArray, slots: IntArray) -> FloatArray:
        """Return [Kmax, B] hazards by the drafts head, by history where its logits are nan."""
        unknown = np.isnan(logits)
        hazard = self._of_drafts.hazard(np.where(unknown, 0.0, logits), slots)
        return np.where(unknown, by_history, hazard)

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
