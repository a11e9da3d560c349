"""One logistic model of hazards: position + sampling class + task label + request.

The hazard is the probability that draft j is accepted given that the drafts before it were. Its
logit is b_j + a_c + v_t + u_i, and whatever else the caller adds for what it knows besides: b_j is
the position's effect, a_c that of greedy or sampled targets where a server has both
(`adaptive_spec.acceptance.sampling_classes`), v_t that of the request's task label, and u_i the
request's own, of which also is learned how fast it changes
(`adaptive_spec.acceptance.request_effects`).

Feedback is censored: a step that verified K and accepted A shows positions 1..min(A + 1, K) only.
Per-position rates are biased as soon as K differs between requests, because K then depends on
acceptance; fitting all effects jointly, by residuals y - h, is not. The b_j are updated once per
step for the whole batch (one after the other they diverge at large batches).
"""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np

from adaptive_spec.acceptance.hazard_kernels import logits_to_hazards
from adaptive_spec.acceptance.learn_kernel import learn
from adaptive_spec.acceptance.request_effects import RequestEffects
from adaptive_spec.acceptance.sampling_classes import ClassOffsets, SamplingClasses
from adaptive_spec.errors import PolicyError
from adaptive_spec.step import BoolArray, FloatArray, IntArray

_TASK_VARIANCE = 0.5
_TASK_EVIDENCE_LIMIT = 300.0
_MOST_TASKS = 1024
_LARGEST_LOGIT = 50.0


class Observed(NamedTuple):
    """Which drafts of a step had an outcome, and what it was; [Kmax, B] each."""

    seen: BoolArray
    right: BoolArray

    @classmethod
    def of(cls, max_draft_tokens: int, verified: IntArray, accepted: IntArray) -> Self:
        """From the drafts verified and accepted [B]."""
        position = np.arange(max_draft_tokens)[:, None]
        return cls(position < np.minimum(accepted + 1, verified), position < accepted)

    def residual(self, hazard: FloatArray) -> FloatArray:
        """y - h; 0 where unseen."""
        return np.where(self.seen, self.right - hazard, 0.0)

    def information(self, hazard: FloatArray) -> FloatArray:
        """Fisher information h (1 - h); 0 where unseen."""
        return np.where(self.seen, hazard * (1.0 - hazard), 0.0)


class HazardModel:
    """b_j, a_c, v_t and u_i, learned from outcomes.

    Args:
        max_draft_tokens: Kmax.
        classes: of the requests; shared.
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
        classes: SamplingClasses,
        *,
        prior_hazard: float,
        prior_variance: float,
        discount: float,
        evidence_limit: float,
        request_effects: bool,
    ) -> None:
        self.max_draft_tokens = max_draft_tokens
        self.effects = RequestEffects(discount, prior_variance)
        self._classes = classes
        self._offsets = ClassOffsets()
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
        self._task_effect: FloatArray = np.zeros(0)
        self._task_evidence: FloatArray = np.zeros(0)
        self._gradient: FloatArray = np.zeros(max_draft_tokens)
        self._step_information: FloatArray = np.zeros(max_draft_tokens)

    def hazard(
        self, slots: IntArray, task: IntArray | None = None, more: FloatArray | None = None
    ) -> FloatArray:
        """Predicted hazards [Kmax, B] of these requests [B].

        Args:
            slots: [B] rows of the requests.
            task: [B] number of the task label, -1 without; None: nobody has one.
            more: [B] or [Kmax, B] added to the logits.
        """
        hazard: FloatArray = self.position_effect[:, None] + self.request_logit(slots, task)
        if more is not None:
            hazard += more
        logits_to_hazards(hazard)
        return hazard

    def request_logit(self, slots: IntArray, task: IntArray | None = None) -> FloatArray:
        """a_c + v_t + u_i [B]."""
        effect = self.effects.leading.of(slots)
        if task is not None and self._task_effect.size:
            effect = effect + self._task_effect_of(task)
        if self._offsets.differ:
            effect = effect + self._offsets.offset[self._classes.of(slots)]
        return effect

    def learn(
        self,
        hazard: FloatArray,
        slots: IntArray,
        verified: IntArray,
        accepted: IntArray,
        task: IntArray | None = None,
        step: Observed | None = None,
    ) -> None:
        """Take up one step's outcomes, [B] each, of which `hazard` [Kmax, B] was predicted.

        `step` are the same outcomes by position, for a caller who has them already.
        """
        leading = self.effects.leading
        before = leading.of(slots)
        effect, information = before.copy(), leading.information[slots]
        seen_before = self._seen
        learn(
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
        if self._tells_groups_apart(task):
            step = step or Observed.of(self.max_draft_tokens, verified, accepted)
            residual = step.residual(hazard).sum(axis=0)
            self._learn_groups(slots, task, residual, step.information(hazard).sum(axis=0))

    def impute(
        self,
        residual: FloatArray,
        information: FloatArray,
        slots: IntArray,
        task: IntArray | None = None,
    ) -> None:
        """Take up drafts that had no outcome, [Kmax, B] each, 0 for those that count for nothing.

        Args:
            residual: what another model says of the draft less what this one does, by weight.
            information: h (1 - h) of this one, by weight.
            slots: [B] rows of the requests.
            task: [B] numbers of their task labels.
        """
        evidence = np.minimum(self._position_evidence, self._evidence_limit)
        self._position_evidence = evidence + information.sum(axis=1)
        self.position_effect = self.position_effect + residual.sum(axis=1) / self._position_evidence
        total, known = residual.sum(axis=0), information.sum(axis=0)
        if self._request_effects:
            self.effects.impute(slots, total, known)
        if self._tells_groups_apart(task):
            self._learn_groups(slots, task, total, known)

    def start_from(self, other: HazardModel) -> None:
        """Begin with what another has learned of positions, not trusting it much."""
        self.position_effect = other.position_effect.copy()
        self._position_evidence = np.minimum(other._position_evidence, 20.0)

    def forget(self, slots: IntArray) -> None:
        """Requests have ended: learn how much requests differ, then clear their rows."""
        self.effects.forget(slots)

    def widen(self, evidence: float) -> None:
        """Trust the past less: something may have changed."""
        self._position_evidence = np.minimum(self._position_evidence, evidence)
        self.effects.widen()
        self._task_evidence = np.minimum(self._task_evidence, evidence)
        self._offsets.widen(evidence)
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
            "prior_variance": self.effects.slow.prior_variance,
            "sampling": self._offsets.state(),
        }

    def restore(self, state: Any) -> None:
        """Take up a saved state; raises PolicyError if it does not fit."""
        try:
            effect = np.asarray(state["position_effect"], dtype=np.float64)
            evidence = np.asarray(state["position_evidence"], dtype=np.float64)
            observations = np.asarray(state["observations"], dtype=np.int64)
            variance = float(state["prior_variance"])
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
        offsets = ClassOffsets()
        if sampling is not None:
            offsets.restore(sampling)
        self._offsets = offsets
        self.position_effect, self._position_evidence = effect, evidence
        self.observations = observations
        self.effects.start_from(variance)
        self._seen = int(observations.sum())

    def _tells_groups_apart(self, task: IntArray | None) -> bool:
        labelled = task is not None and bool(np.maximum.reduce(task) >= 0)
        return labelled or self._classes.mixed

    def _learn_groups(
        self,
        slots: IntArray,
        task: IntArray | None,
        residual: FloatArray,
        information: FloatArray,
    ) -> None:
        """a_c and v_t, from sums [B] over the drafts of each request."""
        self._offsets.learn(self._classes.of(slots), residual, information)
        if task is not None and bool(np.maximum.reduce(task) >= 0):
            self._learn_tasks(task, residual, information)

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
