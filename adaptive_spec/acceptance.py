"""Acceptance model: logit hazard of position j for request i is b_j + u_i.

The hazard is the probability that draft j is accepted given that the drafts before it were.
Feedback is censored: a step that verified K and accepted A shows positions 1..min(A + 1, K) only.
Per-position rates are biased as soon as K differs between requests, because K then depends on
acceptance; fitting position effects b_j jointly with request effects u_i, by residuals y - h, is
not. The b_j are updated once per step for the whole batch (one after the other they diverge at
large batches). Evidence is discounted only when something is observed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from adaptive_spec.errors import PolicyError
from adaptive_spec.kernels import active_kernel
from adaptive_spec.values import FloatArray, IntArray

_HAZARD_FLOOR, _HAZARD_CEILING = 0.01, 0.995
_PRIOR_VARIANCE_RANGE = (0.05, 3.0)
_VARIANCE_RATE = 0.02


class AcceptanceModel:
    """Posterior of the hazards, by position and by request slot.

    Args:
        max_draft_tokens: Kmax.
        prior_hazard: hazard assumed at every position before anything is seen.
        prior_variance: variance of u_i between requests, in logits; re-estimated as requests end.
        discount: of a request's own evidence, per step that verified something for it.
        evidence_limit: Fisher information at which a position's memory is capped; higher adapts
            more slowly and is steadier.
    """

    def __init__(
        self,
        max_draft_tokens: int,
        *,
        prior_hazard: float = 0.67,
        prior_variance: float = 0.3,
        discount: float = 0.98,
        evidence_limit: float = 1000.0,
    ) -> None:
        self.max_draft_tokens = max_draft_tokens
        self.prior_variance = prior_variance
        self._discount = discount
        self._evidence_limit = evidence_limit
        logit = float(np.log(prior_hazard / (1.0 - prior_hazard)))
        self.position_effect: FloatArray = np.full(max_draft_tokens, logit)
        self._position_evidence: FloatArray = np.full(max_draft_tokens, 2.0)
        self.observations: IntArray = np.zeros(max_draft_tokens, dtype=np.int64)
        """Times each position has been observed."""
        self._ended = 0
        self._effect: FloatArray = np.zeros(64)
        self._information: FloatArray = np.zeros(64)
        self._gradient: FloatArray = np.zeros(max_draft_tokens)
        self._step_information: FloatArray = np.zeros(max_draft_tokens)

    def hazard(self, slots: IntArray) -> FloatArray:
        """Predicted hazards [Kmax, B]."""
        hazard: FloatArray = self.position_effect[:, None] + self._request_effect(slots)
        np.negative(hazard, out=hazard)
        np.exp(hazard, out=hazard)
        hazard += 1.0
        np.reciprocal(hazard, out=hazard)
        np.maximum(hazard, _HAZARD_FLOOR, out=hazard)
        np.minimum(hazard, _HAZARD_CEILING, out=hazard)
        return hazard

    def survival(self, slots: IntArray) -> FloatArray:
        """Predicted probability [Kmax, B] that all drafts up to a position are accepted."""
        hazard = self.hazard(slots)
        np.cumprod(hazard, axis=0, out=hazard)
        return hazard

    def learn(self, slots: IntArray, verified: IntArray, accepted: IntArray) -> None:
        """Take up one step's outcomes, [B] each."""
        if slots.size == 0:
            return
        hazard = self.hazard(slots)
        effect = self._effect[slots]
        information = self._information[slots]
        active_kernel().learn(
            hazard,
            verified,
            accepted,
            self._gradient,
            self._step_information,
            self.observations,
            effect,
            information,
            self.prior_variance,
            self._discount,
        )
        self._effect[slots] = effect
        self._information[slots] = information
        evidence = np.minimum(self._position_evidence, self._evidence_limit)
        self._position_evidence = evidence + self._step_information
        self.position_effect = self.position_effect + self._gradient / self._position_evidence

    def forget(self, slots: IntArray) -> None:
        """Requests have ended: learn how much requests differ, then clear their rows."""
        slots = slots[slots < len(self._effect)]
        information = self._information[slots]
        known = information > 1.0
        if known.any():
            # EM step for the variance of u: E[u^2] = estimate^2 + posterior variance.
            posterior = 1.0 / (1.0 / self.prior_variance + information[known])
            second_moment = float(np.mean(self._effect[slots][known] ** 2 + posterior))
            ended = int(np.count_nonzero(known))
            self._ended += ended
            # An average over the first requests, a slow mean afterwards.
            rate = min(max(_VARIANCE_RATE, 1.0 / (self._ended + 10)) * ended, 0.5)
            self.prior_variance += rate * (second_moment - self.prior_variance)
            low, high = _PRIOR_VARIANCE_RANGE
            self.prior_variance = min(max(self.prior_variance, low), high)
        self._effect[slots] = 0.0
        self._information[slots] = 0.0

    def widen(self, evidence: float = 20.0) -> None:
        """Trust the past less: something may have changed. Exploration starts afresh."""
        self._position_evidence = np.minimum(self._position_evidence, evidence)
        self.observations[:] = 0

    def state(self) -> dict[str, Any]:
        """What holds beyond single requests, JSON-compatible."""
        return {
            "position_effect": self.position_effect.tolist(),
            "position_evidence": self._position_evidence.tolist(),
            "observations": self.observations.tolist(),
            "prior_variance": self.prior_variance,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a saved state; raises PolicyError if it does not fit."""
        try:
            effect = np.asarray(state["position_effect"], dtype=np.float64)
            evidence = np.asarray(state["position_evidence"], dtype=np.float64)
            observations = np.asarray(state["observations"], dtype=np.int64)
            variance = float(state["prior_variance"])
        except (KeyError, TypeError, ValueError) as error:
            raise PolicyError(f"acceptance state does not fit: {error!r}") from error
        shape = (self.max_draft_tokens,)
        if effect.shape != shape or evidence.shape != shape or observations.shape != shape:
            raise PolicyError(f"acceptance state is for Kmax {effect.shape}, not {shape}")
        if not (np.isfinite(effect).all() and np.isfinite(evidence).all() and variance > 0):
            raise PolicyError("acceptance state has values that are not finite")
        self.position_effect, self._position_evidence = effect, evidence
        self.observations, self.prior_variance = observations, variance

    def _request_effect(self, slots: IntArray) -> FloatArray:
        """u_i [B]; makes room for slots not seen before."""
        try:
            return self._effect[slots]
        except IndexError:
            extra = np.zeros(max(len(self._effect), int(slots.max()) + 1))
            self._effect = np.concatenate([self._effect, extra])
            self._information = np.concatenate([self._information, extra])
            return self._effect[slots]
