"""Acceptance model: hazards by what is known before the drafts are made, and by their own signal.

Two logistic models (`adaptive_spec.acceptance.hazard_model`) learn from the same outcomes:

* history: b_j + a_c + v_t + u_i + g_c m_i, with m_i how sure the drafter was of the request's
  earlier drafts (`adaptive_spec.acceptance.earlier_confidence`), 0 where no drafter says;
* drafts: b'_j + a'_c + v'_t + u'_i + w_cj z_ij, with z_ij how sure it is of this draft
  (`adaptive_spec.acceptance.confidence`). Used for drafts of which z is known, and only while it
  predicts better than history (`adaptive_spec.acceptance.model_selection`).

They are apart because the same request has another u_i in each: that of history also says how sure
the drafter usually is of it.

Once drafts are left out by their confidence, those that are verified are the better ones, and
history would learn from these alone. So of drafts that were made and left out, it learns what the
other model says of them (a regression imputation: Little and Rubin, "Statistical analysis with
missing data"); of the next after the last verified one, if all of these were accepted, and of later
ones by the chance that they would have been reached.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from adaptive_spec.acceptance.calibration import HazardQuality
from adaptive_spec.acceptance.confidence import ConfidenceEffect
from adaptive_spec.acceptance.earlier_confidence import EarlierConfidence
from adaptive_spec.acceptance.hazard_kernels import logits_to_hazards, survive
from adaptive_spec.acceptance.hazard_model import HazardModel, Observed
from adaptive_spec.acceptance.model_selection import PredictionGain
from adaptive_spec.acceptance.passed_over_kernel import passed_over
from adaptive_spec.acceptance.request_effects import RequestEffects
from adaptive_spec.acceptance.sampling_classes import SamplingClasses
from adaptive_spec.errors import PolicyError
from adaptive_spec.step import FloatArray, IntArray


class PassHazards(NamedTuple):
    """Logits of the drafts of one round, as far as they are known before it: [Kmax, B] each.

    Of the log odds x of the drafter's maximum probability, `logit` + `weight` * x is the logit of
    a draft's hazard, and x - `usual` its z; the last two may be [Kmax, 1].
    """

    logit: FloatArray
    weight: FloatArray
    usual: FloatArray

    def hazard(self, position: int, log_odds: FloatArray) -> FloatArray:
        """h [B] of the drafts at one position; nan where x is."""
        hazard: FloatArray = self.logit[position] + self.weight[position] * log_odds
        logits_to_hazards(hazard[None])
        return hazard


class AcceptanceModel:
    """Posterior of the hazards, by position and by request slot.

    Args:
        max_draft_tokens: Kmax.
        prior_hazard, prior_variance, discount, evidence_limit, request_effects: of both models; see
            `HazardModel`.
    """

    def __init__(
        self,
        max_draft_tokens: int,
        *,
        prior_hazard: float = 0.67,
        prior_variance: float = 0.3,
        discount: float = 0.98,
        evidence_limit: float = 1000.0,
        request_effects: bool = True,
    ) -> None:
        self.max_draft_tokens = max_draft_tokens
        self.classes = SamplingClasses()
        """To be shown the temperatures of each step's requests."""

        self._new_model = partial(
            HazardModel,
            max_draft_tokens,
            self.classes,
            prior_hazard=prior_hazard,
            prior_variance=prior_variance,
            discount=discount,
            evidence_limit=evidence_limit,
            request_effects=request_effects,
        )
        self.history, self.drafts = self._new_model(), self._new_model()
        self.earlier = EarlierConfidence()
        self.confidence = ConfidenceEffect(max_draft_tokens)
        self.gain = PredictionGain()
        """Of what the drafts show, over history."""
        self.quality = HazardQuality(max_draft_tokens)
        """How well the hazards were predicted, of all that was learned from."""
        self._shown = False
        self._asked: tuple[IntArray, IntArray | None, FloatArray] | None = None
        """Requests whose hazards history was last asked for, until anything is learned."""

    @property
    def informative(self) -> bool:
        """The drafts' own signal is used: it has been found to predict better than history."""
        return self.gain.proven

    @property
    def effects(self) -> RequestEffects:
        """u_i of history."""
        return self.history.effects

    @property
    def prior_variance(self) -> float:
        """Of u_i between requests, in logits, as the slow average finds it."""
        return self.effects.slow.prior_variance

    @property
    def observations(self) -> IntArray:
        """[Kmax] times each position has been observed."""
        return self.history.observations

    def hazard(
        self, slots: IntArray, task: IntArray | None = None, signal: FloatArray | None = None
    ) -> FloatArray:
        """Predicted hazards [Kmax, B].

        Args:
            slots: [B] rows of the requests.
            task: [B] number of the task label, -1 without; None: nobody has one.
            signal: [Kmax, B] z from `signal`, nan where unknown: there, and without a signal, what
                history says.
        """
        of_history = self._of_history(slots, task)
        if signal is None or not self.informative:
            return of_history
        return self._of_drafts(slots, task, signal, of_history)

    def survival(
        self, slots: IntArray, task: IntArray | None = None, signal: FloatArray | None = None
    ) -> FloatArray:
        """Predicted probability [Kmax, B] that all drafts up to a position are accepted."""
        hazard = self.hazard(slots, task, signal)
        survive(hazard)
        return hazard

    def signal(self, slots: IntArray, confidence: FloatArray) -> FloatArray:
        """z [Kmax, B] from these requests' maximum probabilities [B, Kmax]; nan if unknown."""
        return self.confidence.signal(confidence, self.classes.of(slots))

    def of_passes(self, slots: IntArray, task: IntArray | None = None) -> PassHazards:
        """Hazards of the drafts that a round makes for these requests, pass by pass."""
        classes = self.classes.of(slots)
        weight, usual = self.confidence.weight[:, classes], self.confidence.usual(classes)
        logit = self.drafts.position_effect[:, None] + self.drafts.request_logit(slots, task)
        return PassHazards(logit - weight * usual, weight, usual)

    def see(self, slots: IntArray, signal: FloatArray) -> None:
        """Take up what the drafter showed in one step, z [Kmax, B], accepted or not."""
        self.confidence.see(signal, self.classes.of(slots))

    def learn(
        self,
        slots: IntArray,
        verified: IntArray,
        accepted: IntArray,
        task: IntArray | None = None,
        signal: FloatArray | None = None,
    ) -> None:
        """Take up one step's outcomes, [B] each, and the signal [Kmax, B] its drafts came with."""
        if slots.size == 0:
            return
        of_history = self._of_history(slots, task)
        self._asked = None
        self.quality.see("history", of_history, verified, accepted)
        step: Observed | None = None
        if signal is not None:
            step = Observed.of(self.max_draft_tokens, verified, accepted)
            self._learn_from_signal(slots, verified, accepted, task, signal, of_history, step)
        self.history.learn(of_history, slots, verified, accepted, task, step)

    def forget(self, slots: IntArray) -> None:
        """Requests have ended: learn how much requests differ, then clear their rows."""
        self._asked = None
        self.history.forget(slots)
        self.drafts.forget(slots)
        self.earlier.forget(slots)
        self.classes.forget(slots)

    def widen(self, evidence: float = 20.0) -> None:
        """Trust the past less: something may have changed. Exploration starts afresh."""
        self._asked = None
        self.history.widen(evidence)
        self.drafts.widen(evidence)
        self.earlier.widen(evidence)

    def state(self) -> dict[str, Any]:
        """What holds beyond single requests, JSON-compatible; history's at the top."""
        return {
            **self.history.state(),
            "drafts": self.drafts.state() if self._shown else None,
            "confidence": self.confidence.state(),
            "earlier": self.earlier.state(),
            "gain": self.gain.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a saved state; raises PolicyError, and changes nothing, if it does not fit."""
        history, drafts = self._new_model(), self._new_model()
        history.restore(state)
        of_drafts = state.get("drafts")
        drafts.restore(state if of_drafts is None else of_drafts)
        self.confidence, self.earlier, self.gain = self._restored_signal(state)
        self.history, self.drafts = history, drafts
        self._asked = None
        self._shown = of_drafts is not None

    def _restored_signal(
        self, state: Any
    ) -> tuple[ConfidenceEffect, EarlierConfidence, PredictionGain]:
        """What a saved state has learned of the signal; older states less, or nothing."""
        confidence = ConfidenceEffect(self.max_draft_tokens)
        earlier, gain = EarlierConfidence(), PredictionGain()
        try:
            confidence.restore(state["confidence"])
            if state.get("drafts") is not None:
                earlier.restore(state["earlier"])
                gain.restore(state["gain"])
        except (AttributeError, KeyError, TypeError) as error:
            raise PolicyError(f"acceptance state does not fit: {error!r}") from error
        return confidence, earlier, gain

    def _of_history(self, slots: IntArray, task: IntArray | None) -> FloatArray:
        """The caller's own copy. A step asks for the same requests again: for all of its plan."""
        known = self._asked
        if known is not None and known[0] is slots and known[1] is task:
            return known[2].copy()
        more = self.earlier.logit(slots, task, self.classes.of(slots)) if self._shown else None
        hazard = self.history.hazard(slots, task, more)
        self._asked = slots, task, hazard.copy()
        return hazard

    def _of_drafts(
        self, slots: IntArray, task: IntArray | None, signal: FloatArray, of_history: FloatArray
    ) -> FloatArray:
        more = self.confidence.logit(signal, self.classes.of(slots))
        unknown = np.isnan(more)
        more[unknown] = 0.0
        hazard = self.drafts.hazard(slots, task, more)
        hazard[unknown] = of_history[unknown]
        return hazard

    def _learn_from_signal(
        self,
        slots: IntArray,
        verified: IntArray,
        accepted: IntArray,
        task: IntArray | None,
        signal: FloatArray,
        of_history: FloatArray,
        step: Observed,
    ) -> None:
        if not self._shown:
            self._shown = True
            self.drafts.start_from(self.history)
        classes = self.classes.of(slots)
        hazard = self._of_drafts(slots, task, signal, of_history)
        self.quality.see("confidence", hazard, verified, accepted)
        self.gain.see(hazard, of_history, step.right, step.seen)
        residual, information = step.residual(hazard), step.information(hazard)
        self.confidence.learn(signal, residual, information, classes)
        self.drafts.learn(hazard, slots, verified, accepted, task, step)
        residual, information = step.residual(of_history), step.information(of_history)
        if self.informative:
            missed, uncertain, anything = passed_over(
                signal, verified, accepted, hazard, of_history
            )
            if anything:
                self.history.impute(missed, uncertain, slots, task)
                residual, information = residual + missed, information + uncertain
        self.earlier.learn(slots, task, classes, signal, residual, information)
