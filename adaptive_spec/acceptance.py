"""Acceptance model: logit hazard of position j for request i is b_j + a_c + v_t + u_i + w_cj z_ij.

The hazard is the probability that draft j is accepted given that the drafts before it were; b_j is
the position's effect, a_c that of greedy or sampled targets where a server has both
(`adaptive_spec.sampling_classes`), v_t that of the request's task label, u_i the request's own and
w_cj z_ij what the drafter's confidence adds (`adaptive_spec.confidence`). Terms without a label or
a signal are 0.

Feedback is censored: a step that verified K and accepted A shows positions 1..min(A + 1, K) only.
Per-position rates are biased as soon as K differs between requests, because K then depends on
acceptance; fitting all effects jointly, by residuals y - h, is not. The b_j are updated once per
step for the whole batch (one after the other they diverge at large batches). How fast u_i changes
is learned, too (`adaptive_spec.request_effects`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from adaptive_spec.confidence import ConfidenceEffect
from adaptive_spec.errors import PolicyError
from adaptive_spec.hazard_quality import HazardQuality
from adaptive_spec.kernels import active_kernel
from adaptive_spec.request_effects import RequestEffects
from adaptive_spec.sampling_classes import SamplingClasses
from adaptive_spec.values import BoolArray, FloatArray, IntArray

_HAZARD_FLOOR, _HAZARD_CEILING = 0.01, 0.995
_TASK_VARIANCE = 0.5
_TASK_EVIDENCE_LIMIT = 300.0
_MOST_TASKS = 1024
_LARGEST_LOGIT = 50.0


class AcceptanceModel:
    """Posterior of the hazards, by position and by request slot.

    Args:
        max_draft_tokens: Kmax.
        prior_hazard: hazard assumed at every position before anything is seen.
        prior_variance: variance of u_i between requests, in logits; re-estimated as requests end.
        discount: of a request's own evidence, per step that verified something for it, while
            requests don't change faster.
        evidence_limit: Fisher information at which a position's memory is capped; higher adapts
            more slowly and is steadier.
        request_effects: learn u_i; without them all requests count as alike.
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
        self.effects = RequestEffects(discount, prior_variance)
        self.confidence = ConfidenceEffect(max_draft_tokens)
        self.classes = SamplingClasses()
        """To be shown the temperatures of each step's requests."""
        self.quality = HazardQuality(max_draft_tokens)
        """How well the hazards were predicted, of all that was learned from."""
        self._evidence_limit = evidence_limit
        self._request_effects = request_effects
        logit = float(np.log(prior_hazard / (1.0 - prior_hazard)))
        self.position_effect: FloatArray = np.full(max_draft_tokens, logit)
        self._position_evidence: FloatArray = np.full(max_draft_tokens, 2.0)
        self.observations: IntArray = np.zeros(max_draft_tokens, dtype=np.int64)
        """Times each position has been observed."""
        self.surprise = 0.0
        """Sum of residuals y - h of the last step learned from."""
        self.expected_variance = 0.0
        """Sum of h (1 - h) over the same observations."""
        self.observed = 0
        """How many those were."""
        self._seen = 0
        """Of all positions together."""
        self._position = np.arange(max_draft_tokens)[:, None]
        self._task_effect: FloatArray = np.zeros(0)
        self._task_evidence: FloatArray = np.zeros(0)
        self._gradient: FloatArray = np.zeros(max_draft_tokens)
        self._step_information: FloatArray = np.zeros(max_draft_tokens)

    @property
    def prior_variance(self) -> float:
        """Of u_i between requests, in logits, as the slow average finds it."""
        return self.effects.slow.prior_variance

    def hazard(
        self, slots: IntArray, task: IntArray | None = None, signal: FloatArray | None = None
    ) -> FloatArray:
        """Predicted hazards [Kmax, B].

        Args:
            slots: [B] rows of the requests.
            task: [B] number of the task label, -1 without; None: nobody has one.
            signal: [Kmax, B] z from `signal`, nan where unknown: there, and without a signal, the
                mean over what the drafter may show.
        """
        used = signal if self.confidence.informative else None
        return self._hazard(slots, self._request_effect(slots), task, used)

    def _hazard(
        self,
        slots: IntArray,
        effect: FloatArray,
        task: IntArray | None,
        signal: FloatArray | None,
    ) -> FloatArray:
        """As `hazard`, with these u_i [B]; a signal that is given is used, informative or not."""
        confidence = self.confidence
        if task is not None and self._task_effect.size:
            effect = effect + self._task_effect_of(task)
        if self.classes.differ:
            effect = effect + self.classes.offset[self.classes.of(slots)]
        hazard: FloatArray = self.position_effect[:, None] + effect
        if signal is not None:
            hazard = confidence.logit(hazard, signal, self.classes.of(slots))
        elif confidence.informative:
            hazard *= confidence.attenuation[:, self.classes.of(slots)]
        active_kernel().hazards(hazard, _HAZARD_FLOOR, _HAZARD_CEILING)
        return hazard

    def signal(self, slots: IntArray, confidence: FloatArray) -> FloatArray:
        """z [Kmax, B] from these requests' maximum probabilities [B, Kmax]; nan if unknown."""
        return self.confidence.signal(confidence, self.classes.of(slots))

    def survival(
        self, slots: IntArray, task: IntArray | None = None, signal: FloatArray | None = None
    ) -> FloatArray:
        """Predicted probability [Kmax, B] that all drafts up to a position are accepted."""
        hazard = self.hazard(slots, task, signal)
        active_kernel().survive(hazard)
        return hazard

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
        effect = self._request_effect(slots)
        hazard = of_history = of_signal = self._hazard(slots, effect, task, None)
        self.quality.see("history", hazard, verified, accepted)
        if signal is not None:
            of_signal = self._hazard(slots, effect, task, signal)
            self.quality.see("confidence", of_signal, verified, accepted)
            if self.confidence.informative:
                hazard = of_signal
        leading, before = self.effects.leading, effect
        effect, information = before.copy(), leading.information[slots]
        seen_before = self._seen
        active_kernel().learn(
            hazard,
            verified,
            accepted,
            self._gradient,
            self._step_information,
            self.observations,
            effect,
            information,
            leading.prior_variance,
            leading.discount,
        )
        if self._request_effects:
            leading.effect[slots] = effect
            leading.information[slots] = information
            self.effects.follow(hazard, slots, verified, accepted, before)
        evidence = np.minimum(self._position_evidence, self._evidence_limit)
        self._position_evidence = evidence + self._step_information
        self.position_effect = self.position_effect + self._gradient / self._position_evidence
        self.surprise = float(np.add.reduce(self._gradient))
        self.expected_variance = float(np.add.reduce(self._step_information))
        self._seen = int(np.add.reduce(self.observations))
        self.observed = self._seen - seen_before
        labelled = task is not None and bool(np.maximum.reduce(task) >= 0)
        if signal is not None or labelled or self.classes.mixed:
            seen = self._position < np.minimum(accepted + 1, verified)
            right = self._position < accepted
            residual, spread = _residual(hazard, right, seen)
            classes = self.classes.of(slots)
            gradient, seen_of = residual.sum(axis=0), spread.sum(axis=0)
            self.classes.learn(classes, gradient, seen_of)
            if labelled:
                assert task is not None
                self._learn_tasks(task, gradient, seen_of)
            if signal is not None:
                unexplained, information = _residual(of_signal, right, seen)
                self.confidence.learn(signal, unexplained, information, classes)
                if self.confidence.judge(of_signal, of_history, right, seen):
                    self._change_of_signal()

    def forget(self, slots: IntArray) -> None:
        """Requests have ended: learn how much requests differ, then clear their rows."""
        self.effects.forget(slots)
        self.classes.forget(slots)

    def widen(self, evidence: float = 20.0) -> None:
        """Trust the past less: something may have changed. Exploration starts afresh."""
        self._position_evidence = np.minimum(self._position_evidence, evidence)
        self.effects.widen()
        self._task_evidence = np.minimum(self._task_evidence, evidence)
        self.classes.widen(evidence)
        self.observations[:] = 0
        self._seen = 0

    def state(self) -> dict[str, Any]:
        """What holds beyond single requests, JSON-compatible.

        Effects of task labels are not kept: their numbers are given anew by each server.
        """
        return {
            "position_effect": self.position_effect.tolist(),
            "position_evidence": self._position_evidence.tolist(),
            "observations": self.observations.tolist(),
            "prior_variance": self.prior_variance,
            "confidence": self.confidence.state(),
            "sampling": self.classes.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a saved state; raises PolicyError if it does not fit."""
        try:
            effect = np.asarray(state["position_effect"], dtype=np.float64)
            evidence = np.asarray(state["position_evidence"], dtype=np.float64)
            observations = np.asarray(state["observations"], dtype=np.int64)
            variance = float(state["prior_variance"])
            confidence = state["confidence"]
            sampling = state.get("sampling")  # older states have none
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
            raise PolicyError(f"acceptance state does not fit: {error!r}") from error
        shape = (self.max_draft_tokens,)
        if effect.shape != shape or evidence.shape != shape or observations.shape != shape:
            raise PolicyError(f"acceptance state is for Kmax {effect.shape}, not {shape}")
        finite = np.isfinite(effect).all() and np.isfinite(evidence).all()
        if not (finite and 0.0 < variance < np.inf and evidence.min() > 0.0):
            raise PolicyError("acceptance state has values that are not finite")
        if np.abs(effect).max(initial=0.0) > _LARGEST_LOGIT:
            raise PolicyError("acceptance state has logits that no hazard has")
        restored, classes = ConfidenceEffect(self.max_draft_tokens), SamplingClasses()
        restored.restore(confidence)
        if sampling is not None:
            classes.restore(sampling)
        self.confidence, self.classes = restored, classes
        self.position_effect, self._position_evidence = effect, evidence
        self.observations = observations
        self.effects.start_from(variance)
        self._seen = int(observations.sum())

    def _change_of_signal(self) -> None:
        """The signal is used from now on, or no longer: b_j is given it, or the mean over it."""
        attenuation = self.confidence.usual_attenuation()
        if self.confidence.informative:
            attenuation = 1.0 / attenuation
        self.position_effect = self.position_effect * attenuation

    def _request_effect(self, slots: IntArray) -> FloatArray:
        """u_i [B]; makes room for slots not seen before."""
        return self.effects.leading.of(slots)

    def _task_effect_of(self, task: IntArray) -> FloatArray:
        """v_t [B]; 0 without a label, and for those beyond the first thousand."""
        known = (task >= 0) & (task < len(self._task_effect))
        return np.where(known, self._task_effect[np.where(known, task, 0)], 0.0)

    def _learn_tasks(self, task: IntArray, residual: FloatArray, information: FloatArray) -> None:
        top = min(int(task.max()) + 1, _MOST_TASKS)
        if top > len(self._task_effect):
            extra = np.zeros(top - len(self._task_effect))
            self._task_effect = np.concatenate([self._task_effect, extra])
            self._task_evidence = np.concatenate([self._task_evidence, extra])
        known = (task >= 0) & (task < _MOST_TASKS)
        size = len(self._task_effect)
        gradient = np.bincount(task[known], weights=residual[known], minlength=size)
        seen = np.bincount(task[known], weights=information[known], minlength=size)
        self._task_evidence = np.minimum(self._task_evidence, _TASK_EVIDENCE_LIMIT) + seen
        self._task_effect += gradient / (self._task_evidence + 1.0 / _TASK_VARIANCE)


def _residual(
    hazard: FloatArray, right: BoolArray, seen: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """y - h and h (1 - h), [Kmax, B], 0 where unseen."""
    return np.where(seen, right - hazard, 0.0), np.where(seen, hazard * (1.0 - hazard), 0.0)
