"""One logistic model of hazards: position + task label + request.

The hazard is the probability that draft j is accepted given that the drafts before it were. Its
logit is b_j + v_t + u_i, plus whatever the caller adds: b_j is the effect of the position, v_t that
of the request's task label and u_i that of the request.

Feedback is censored: a step that verified K and accepted A shows positions 1..min(A + 1, K) only.
Per-position rates are biased as soon as K differs between requests, because K then depends on
acceptance; fitting all effects jointly, by residuals y - h, is not. The b_j are updated once per
step for the whole batch (one after the other they diverge at large batches).

A request that turns bad is verified until u_i has followed; one that turns good while nothing is
verified for it goes unseen. Among requests that are known, failures are in the majority therefore,
and b_j and v_t learn from each request by the share of its prior variance that is left. Requests
that are known need neither: u_i makes up for what is wrong with them.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Self

import numpy as np

from adaptive_spec.errors import PolicyError
from adaptive_spec.per_request import floats, highest_of
from adaptive_spec.policies.acceptance.label_outliers import LabelOutliers
from adaptive_spec.policies.kernels import INTS, kernel
from adaptive_spec.step import BoolArray, FloatArray, IntArray

EVIDENCE_LIMIT = 1000.0
"""Fisher information at which the memory of a position is capped."""
_LEAST_INFORMATION = 0.02
# Near a hazard of 0 or 1, Newton's own step overshoots, and the next one overshoots back.
_DAMPING = 0.25
"""Damping of a step: a position moves by less than 1 / 0.25 logits."""


def _learn_loop(
    hazard: FloatArray,
    slots: IntArray,
    verified: IntArray,
    accepted: IntArray,
    position_effect: FloatArray,
    position_evidence: FloatArray,
    position_count: IntArray,
    request_effect: FloatArray,
    request_information: FloatArray,
    prior_variance: float,
    discount: float,
) -> tuple[float, float, int, float, float, FloatArray]:
    kmax, batch = hazard.shape
    sums = np.zeros((4, kmax), np.float64)
    unknown_sums = np.empty((2, batch), np.float64)
    observed = 0
    slope = 0.0
    curvature = 0.0
    for i in range(batch):
        slot = slots[i]
        gradient = 0.0
        total = 0.0
        fisher = 0.0
        unknown = 1.0 / (1.0 + prior_variance * request_information[slot])
        for j in range(min(accepted[i] + 1, verified[i], kmax)):
            h = hazard[j, i]
            residual = (1.0 if j < accepted[i] else 0.0) - h
            information = max(h * (1.0 - h), _LEAST_INFORMATION)
            sums[0, j] += residual
            sums[1, j] += information
            sums[2, j] += unknown * residual
            sums[3, j] += unknown * information
            position_count[j] += 1
            observed += 1
            gradient += residual
            total += information
            fisher += h * (1.0 - h)
        unknown_sums[0, i] = unknown * gradient
        unknown_sums[1, i] = unknown * fisher
        by_log_variance = unknown * request_effect[slot]
        slope += by_log_variance * gradient
        curvature += by_log_variance * by_log_variance * total
        information = request_information[slot] * discount + total
        effect = request_effect[slot] + gradient / (1.0 / prior_variance + information)
        forgets = (0.5 if verified[i] > 0 else 1.0) * (1.0 - discount)
        request_effect[slot] = effect * (1.0 - forgets / (1.0 + prior_variance * information))
        request_information[slot] = information
    surprise = 0.0
    variance = 0.0
    for j in range(kmax):
        surprise += sums[0, j]
        variance += sums[1, j]
        position_evidence[j] = min(position_evidence[j], EVIDENCE_LIMIT) + sums[3, j]
        position_effect[j] += sums[2, j] / (position_evidence[j] + _DAMPING * abs(sums[2, j]))
    return surprise, variance, observed, slope, curvature, unknown_sums


@kernel(
    f"Tuple((float64, float64, int64, float64, float64, float64[:, ::1]))(float64[:, :], {INTS},"
    f" {INTS}, {INTS}, float64[::1], float64[::1], int64[::1], float64[::1], float64[::1],"
    " float64, float64)",
    _learn_loop,
)
def learn(
    hazard: FloatArray,
    slots: IntArray,
    verified: IntArray,
    accepted: IntArray,
    position_effect: FloatArray,
    position_evidence: FloatArray,
    position_count: IntArray,
    request_effect: FloatArray,
    request_information: FloatArray,
    prior_variance: float,
    discount: float,
) -> tuple[float, float, int, float, float, FloatArray]:
    """Update the effects of positions and requests by one step, in place.

    Position j of request i was observed iff ``j < min(accepted + 1, verified)`` (0-based), and
    accepted iff ``j < accepted``. Residuals are y - h with the hazards `[Kmax, B]` given. Each
    request counts for a position by the share of its prior variance that is left. A request
    forgets; one that verified nothing returns to the mean twice as fast.

    Args:
        hazard: [Kmax, B] as predicted.
        slots: [B] rows of the requests.
        verified: [B]
        accepted: [B]
        position_effect: [Kmax]
        position_evidence: [Kmax] Fisher information behind it.
        position_count: [Kmax] times seen.
        request_effect: [slots]
        request_information: [slots]
        prior_variance: of request effects.
        discount: of a request's information, per step.

    Returns the sum of all residuals, of their Fisher information, and the number of observations;
    slope and curvature of the outcomes' log-likelihood in the logarithm of the prior variance v
    (du_i / d log v is u_i times the share of v that was left); and [2, B] the first two sums by
    request, times that share.
    """
    position = np.arange(len(hazard))[:, None]
    seen = position < np.minimum(accepted + 1, verified)
    expected = hazard * seen
    residual = (position < accepted) - expected
    fisher = expected * (1.0 - expected)
    information = np.maximum(fisher, _LEAST_INFORMATION) * seen
    known, effect = request_information[slots], request_effect[slots]
    unknown = 1.0 / (1.0 + prior_variance * known)
    np.minimum(position_evidence, EVIDENCE_LIMIT, out=position_evidence)
    position_evidence += information @ unknown
    surplus = residual @ unknown
    position_effect += surplus / (position_evidence + _DAMPING * np.abs(surplus))
    observed = np.add.reduce(seen, axis=1, dtype=np.int64)
    position_count += observed
    gradient, total = np.add.reduce(residual, axis=0), np.add.reduce(information, axis=0)
    by_log_variance = unknown * effect
    slope = by_log_variance @ gradient
    curvature = (by_log_variance * by_log_variance) @ total
    kept = known * discount + total
    effect += gradient / (1.0 / prior_variance + kept)
    # The discounted evidence no longer supports the whole effect: it shrinks towards the prior.
    forgets = np.where(verified > 0, 0.5, 1.0) * (1.0 - discount)
    request_effect[slots] = effect * (1.0 - forgets / (1.0 + prior_variance * kept))
    request_information[slots] = kept
    return (
        float(np.add.reduce(gradient)),
        float(np.add.reduce(total)),
        int(np.add.reduce(observed)),
        float(slope),
        float(curvature),
        unknown * (gradient, np.add.reduce(fisher, axis=0)),
    )


def _impute_loop(
    residual: FloatArray,
    information: FloatArray,
    slots: IntArray,
    position_effect: FloatArray,
    position_evidence: FloatArray,
    request_effect: FloatArray,
    request_information: FloatArray,
    prior_variance: float,
) -> FloatArray:
    kmax, batch = residual.shape
    sums = np.zeros((2, kmax), np.float64)
    unknown_sums = np.empty((2, batch), np.float64)
    for i in range(batch):
        slot = slots[i]
        unknown = 1.0 / (1.0 + prior_variance * request_information[slot])
        gradient = 0.0
        total = 0.0
        for j in range(kmax):
            sums[0, j] += unknown * residual[j, i]
            sums[1, j] += unknown * information[j, i]
            gradient += residual[j, i]
            total += information[j, i]
        unknown_sums[0, i] = unknown * gradient
        unknown_sums[1, i] = unknown * total
        request_information[slot] += total
        request_effect[slot] += gradient / (1.0 / prior_variance + request_information[slot])
    for j in range(kmax):
        position_evidence[j] = min(position_evidence[j], EVIDENCE_LIMIT) + sums[1, j]
        position_effect[j] += sums[0, j] / position_evidence[j]
    return unknown_sums


@kernel(
    f"float64[:, ::1](float64[:, :], float64[:, :], {INTS}, float64[::1], float64[::1],"
    " float64[::1], float64[::1], float64)",
    _impute_loop,
)
def impute(
    residual: FloatArray,
    information: FloatArray,
    slots: IntArray,
    position_effect: FloatArray,
    position_evidence: FloatArray,
    request_effect: FloatArray,
    request_information: FloatArray,
    prior_variance: float,
) -> FloatArray:
    """Update the effects by drafts whose outcomes were only estimated, in place.

    Args:
        residual: [Kmax, B] estimated y - h.
        information: [Kmax, B] behind it.
        slots: [B]
        position_effect: [Kmax]
        position_evidence: [Kmax] Fisher information behind it.
        request_effect: [slots]
        request_information: [slots]
        prior_variance: of request effects.

    Returns [2, B] the sums of both by request, times the share of its prior variance that is left.
    """
    unknown = 1.0 / (1.0 + prior_variance * request_information[slots])
    fresh, surplus = information @ unknown, residual @ unknown
    position_evidence[:] = np.minimum(position_evidence, EVIDENCE_LIMIT) + fresh
    position_effect += surplus / position_evidence
    by_request = np.stack((residual.sum(axis=0), information.sum(axis=0)))
    total = request_information[slots] + by_request[1]
    request_effect[slots] += by_request[0] / (1.0 / prior_variance + total)
    request_information[slots] = total
    return by_request * unknown


_LARGEST_LOGIT = 50.0

DISCOUNT = 0.75
"""Share of a request's evidence that a step leaves."""
_FIRST_VARIANCE = 0.3
"""Variance of u_i between requests before anything is seen, in logits."""
_VARIANCE_RANGE = (0.02, 3.0)
_FIRST_CURVATURE, _CURVATURE_LIMIT = 1.0, 100.0
"""Evidence behind the first variance, and its cap; sd(log) = evidence^-1/2."""
_TASK_VARIANCE = 0.5
"""Variance of v_t between labels, in logits."""
_EVIDENCE_LIMIT = 300.0
MOST_TASKS = 1024
"""Places for labels, far more than are in use at a time."""


class RequestEffects:
    """u_i by request slot, the evidence behind it, and how much requests differ.

    The average of a request forgets within about four steps. Requests change that fast (a passage
    that the drafter copies, then one that it cannot), and an average over many steps was worth
    nothing besides. A request changes unobserved, too: in steps that verify nothing for it, u_i
    returns to the mean of all requests. Without that, nobody would try a request again that was bad
    for some steps.

    Attributes:
        prior_variance: of u_i between requests, in logits.
    """

    def __init__(self) -> None:
        self.prior_variance = _FIRST_VARIANCE
        self._curvature = _FIRST_CURVATURE
        self.effect, self.evidence = floats(0.0), floats(0.0)
        """u_i by slot, and the Fisher information behind it."""

    def unknown(self, slots: IntArray) -> FloatArray:
        """Share [B] of the prior variance of u_i that is left."""
        share: FloatArray = 1.0 / (1.0 + self.prior_variance * self.evidence[slots])
        return share

    def learn_variance(self, slope: float, curvature: float) -> None:
        """Move the prior variance to where the effects would have predicted a step's outcomes best.

        A Newton step on the error of one-step predictions (recursive prediction errors: Ljung and
        Söderström, "Theory and practice of recursive identification", chapter 3).

        Args:
            slope: of the outcomes' log-likelihood in the logarithm of the variance.
            curvature: of the same, expected; at least 0.
        """
        self._curvature = min(self._curvature, _CURVATURE_LIMIT) + curvature
        step = slope / (self._curvature + abs(slope))
        low, high = _VARIANCE_RANGE
        self.prior_variance = min(max(self.prior_variance * math.exp(step), low), high)

    def forget(self, slots: IntArray) -> None:
        """Clear the rows of ended requests."""
        self.effect.reset(slots)
        self.evidence.reset(slots)


class TaskEffects:
    """v_t by the number of the label.

    A label speaks from a request's first step on. Labels are numbered anew by each server, so their
    effects are not saved. Numbers grow without end, as labels come and go; a new number takes the
    place of one that is `MOST_TASKS` older.

    Attributes:
        number: [places] number of the label in each place; -1 in a free place.
        effect: [places] v_t.
    """

    def __init__(self) -> None:
        self.number: IntArray = np.zeros(0, dtype=np.int64)
        self.effect: FloatArray = np.zeros(0)
        self._evidence: FloatArray = np.zeros(0)

    def __len__(self) -> int:
        return len(self.effect)

    def of(self, task: IntArray) -> FloatArray:
        """v_t [B] of these labels [B]; 0 without a label."""
        if not len(self.effect):
            return np.zeros(len(task))
        place = np.minimum(task % MOST_TASKS, len(self.effect) - 1)
        known = (task >= 0) & (self.number[place] == task)
        return np.where(known, self.effect[place], 0.0)

    def learn(self, task: IntArray, residual: FloatArray, information: FloatArray) -> None:
        """Take up sums [B] of y - h and h (1 - h) over the drafts of each request."""
        highest = highest_of(task)
        if highest < 0:
            return
        more = min(highest + 1, MOST_TASKS) - len(self.effect)
        if more > 0:
            self.effect = np.concatenate([self.effect, np.zeros(more)])
            self._evidence = np.concatenate([self._evidence, np.zeros(more)])
            self.number = np.concatenate([self.number, np.full(more, -1)])
        labelled, size = task >= 0, len(self.number)
        own = task[labelled]
        place = own % MOST_TASKS
        new = place[self.number[place] < own]
        self.effect[new] = self._evidence[new] = 0.0
        np.maximum.at(self.number, place, own)
        kept = self.number[place] == own
        gradient = np.bincount(place[kept], weights=residual[labelled][kept], minlength=size)
        seen = np.bincount(place[kept], weights=information[labelled][kept], minlength=size)
        self._evidence = np.minimum(self._evidence, _EVIDENCE_LIMIT) + seen
        self.effect += gradient / (self._evidence + 1.0 / _TASK_VARIANCE)

    def state(self) -> dict[str, list[float]]:
        """Return the effects, JSON-compatible; for labels that mean the same in every process."""
        return {"effect": self.effect.tolist(), "evidence": self._evidence.tolist()}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a saved state. Raises PolicyError, and changes nothing, if it does not fit."""
        try:
            effect, evidence = (np.array(state[key], dtype=float) for key in ("effect", "evidence"))
        except (KeyError, TypeError, ValueError) as error:
            raise PolicyError(f"acceptance state does not fit: {error!r}") from error
        fits = effect.ndim == 1 and effect.shape == evidence.shape and len(effect) <= MOST_TASKS
        if not fits or not np.isfinite(effect + evidence).all() or (evidence < 0.0).any():
            raise PolicyError("acceptance state does not fit: effects of labels")
        self.effect, self._evidence = effect, evidence
        self.number = np.arange(len(effect))

    def widen(self, evidence: float) -> None:
        """Trust the past less."""
        self._evidence = np.minimum(self._evidence, evidence)


class Observed(NamedTuple):
    """Which drafts of a step had an outcome, and which were accepted; [Kmax, B] each."""

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


_FLOOR, _CEILING = 0.01, 0.995
"""Bounds of a hazard: no draft is taken for hopeless or for certain."""


def _hazards_loop(
    position_effect: FloatArray,
    request_effect: FloatArray,
    slots: IntArray,
    label_effect: FloatArray,
    more: FloatArray,
    otherwise: FloatArray,
) -> FloatArray:
    kmax, batch = len(position_effect), len(slots)
    hazard = np.empty((kmax, batch), np.float64)
    for j in range(kmax):
        for i in range(batch):
            logit = position_effect[j] + request_effect[slots[i]]
            if len(label_effect):
                logit += label_effect[i]
            if len(more):
                logit += more[j, i]
            hazard[j, i] = min(max(1.0 / (1.0 + math.exp(-logit)), _FLOOR), _CEILING)
            if len(otherwise) and more[j, i] != more[j, i]:
                hazard[j, i] = otherwise[j, i]
    return hazard


@kernel(
    f"float64[:, ::1](float64[::1], float64[::1], {INTS}, float64[:], float64[:, :],"
    " float64[:, :])",
    _hazards_loop,
)
def hazards(
    position_effect: FloatArray,
    request_effect: FloatArray,
    slots: IntArray,
    label_effect: FloatArray,
    more: FloatArray,
    otherwise: FloatArray,
) -> FloatArray:
    """Return hazards [Kmax, B].

    Args:
        position_effect: [Kmax] b_j.
        request_effect: [slots] u_i.
        slots: [B]
        label_effect: [B] v_t; empty: nobody has a label.
        more: [Kmax, B] added to the logits; empty: nothing.
        otherwise: [Kmax, B] hazards where `more` is nan; empty: it never is.
    """
    effect = request_effect[slots]
    if len(label_effect):
        effect += label_effect
    logit: FloatArray = position_effect[:, None] + effect
    if len(more):
        logit += more
    hazard = logistic(logit)
    return np.where(np.isnan(more), otherwise, hazard) if len(otherwise) else hazard


def _survival_loop(hazard: FloatArray) -> FloatArray:
    survival = hazard.copy()
    for j in range(1, len(survival)):
        for i in range(survival.shape[1]):
            survival[j, i] *= survival[j - 1, i]
    return survival


@kernel("float64[:, ::1](float64[:, :])", _survival_loop)
def survival_of(hazard: FloatArray) -> FloatArray:
    """Return the probability [Kmax, B] that all drafts up to a position are accepted."""
    survival = hazard.copy()
    for j in range(1, len(survival)):  # ten times as fast as numpy's cumprod over rows
        survival[j] *= survival[j - 1]
    return survival


_NO_ROWS: FloatArray = np.zeros(0)
_NO_TABLE: FloatArray = np.zeros((0, 0))


def logistic(logit: FloatArray) -> FloatArray:
    """Turn logits [Kmax, B] into hazards 1 / (1 + exp(-x)) within bounds, in place."""
    np.negative(logit, out=logit)
    np.exp(logit, out=logit)
    logit += 1.0
    np.reciprocal(logit, out=logit)
    np.maximum(logit, _FLOOR, out=logit)
    np.minimum(logit, _CEILING, out=logit)
    return logit


class HazardModel:
    """b_j, v_t and u_i, learned from outcomes.

    Args:
        max_draft_tokens: Kmax.
        prior_hazard: hazard assumed at every position before anything is seen.
        clients_label: clients choose the labels, so requests unlike the others of a label count
            less.

    Attributes:
        position_effect: [Kmax] b_j.
        observations: [Kmax] times each position has been observed.
        surprise: sum of the residuals y - h of the last step learned from.
        expected_variance: sum of h (1 - h) over the same observations.
        observed: number of these observations.
    """

    def __init__(
        self, max_draft_tokens: int, prior_hazard: float, *, clients_label: bool = False
    ) -> None:
        self.max_draft_tokens = max_draft_tokens
        self._outliers = LabelOutliers(max_draft_tokens) if clients_label else None
        self.effects = RequestEffects()
        self.tasks = TaskEffects()
        logit = float(np.log(prior_hazard / (1.0 - prior_hazard)))
        self.position_effect: FloatArray = np.full(max_draft_tokens, logit)
        self._position_evidence: FloatArray = np.full(max_draft_tokens, 2.0)
        self.observations: IntArray = np.zeros(max_draft_tokens, dtype=np.int64)
        self.surprise = self.expected_variance = 0.0
        self.observed = 0

    def hazard(
        self,
        slots: IntArray,
        task: IntArray | None = None,
        more: FloatArray = _NO_TABLE,
        otherwise: FloatArray = _NO_TABLE,
    ) -> FloatArray:
        """Return predicted hazards [Kmax, B].

        Args:
            slots: [B] rows of the requests.
            task: [B] number of the task label, -1 without; None: nobody has one.
            more: [Kmax, B] added to the logits; none if empty.
            otherwise: [Kmax, B] hazards where `more` is nan; it is nowhere if empty.
        """
        return hazards(
            self.position_effect,
            self.effects.effect.reaching(highest_of(slots)),
            slots,
            _NO_ROWS if task is None or not len(self.tasks) else self.tasks.of(task),
            more,
            otherwise,
        )

    def learn(
        self,
        hazard: FloatArray,
        slots: IntArray,
        verified: IntArray,
        accepted: IntArray,
        task: IntArray | None = None,
    ) -> None:
        """Take up one step's outcomes [B], for which `hazard` [Kmax, B] was predicted."""
        effects, highest = self.effects, highest_of(slots)
        correction = None
        if self._outliers is not None and task is not None and highest_of(task) >= 0:
            correction = self._correction(self._outliers, hazard, slots, verified, accepted, task)
        self.surprise, self.expected_variance, self.observed, slope, curvature, unknown = learn(
            hazard,
            slots,
            verified,
            accepted,
            self.position_effect,
            self._position_evidence,
            self.observations,
            effects.effect.reaching(highest),
            effects.evidence.reaching(highest),
            effects.prior_variance,
            DISCOUNT,
        )
        effects.learn_variance(slope, curvature)
        if correction is not None:
            self.position_effect += correction.sum(axis=1) / self._position_evidence
            unknown[0] += correction.sum(axis=0)
        if task is not None:
            self.tasks.learn(task, unknown[0], unknown[1])

    def forget(self, slots: IntArray) -> None:
        """Clear the rows of ended requests."""
        self.effects.forget(slots)
        if self._outliers is not None:
            self._outliers.forget(slots)

    def impute(
        self,
        residual: FloatArray,
        information: FloatArray,
        slots: IntArray,
        task: IntArray | None = None,
    ) -> None:
        """Take up drafts that had no outcome, [Kmax, B] each, 0 for those that do not count.

        Args:
            residual: hazard by another model minus the hazard by this one, by weight.
            information: h (1 - h) of this one, by weight.
            slots: [B] rows of the requests.
            task: [B] numbers of their task labels.
        """
        highest, effects = highest_of(slots), self.effects
        by_request = impute(
            residual,
            information,
            slots,
            self.position_effect,
            self._position_evidence,
            effects.effect.reaching(highest),
            effects.evidence.reaching(highest),
            effects.prior_variance,
        )
        if task is not None:
            self.tasks.learn(task, by_request[0], by_request[1])

    def start_from(self, other: HazardModel) -> None:
        """Begin with the position effects of another model, not trusting them much."""
        self.position_effect = other.position_effect.copy()
        self._position_evidence = np.minimum(other._position_evidence, 20.0)

    def widen(self, evidence: float) -> None:
        """Trust the past less: something may have changed."""
        self._position_evidence = np.minimum(self._position_evidence, evidence)
        self.tasks.widen(evidence)
        self.observations[:] = 0

    def state(self) -> dict[str, Any]:
        """Return what holds beyond single requests, JSON-compatible."""
        return {
            "position_effect": self.position_effect.tolist(),
            "position_evidence": self._position_evidence.tolist(),
            "observations": self.observations.tolist(),
            "prior_variance": self.effects.prior_variance,
        }

    def restore(self, state: Any) -> None:
        """Take up a saved state. Raises PolicyError if it does not fit."""
        try:
            effect = np.array(state["position_effect"], dtype=np.float64)
            evidence = np.array(state["position_evidence"], dtype=np.float64)
            observations = np.array(state["observations"], dtype=np.int64)
            variance = float(state["prior_variance"])
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
        self.position_effect, self._position_evidence = effect, evidence
        self.observations = observations
        self.effects.prior_variance = variance

    def _correction(
        self,
        outliers: LabelOutliers,
        hazard: FloatArray,
        slots: IntArray,
        verified: IntArray,
        accepted: IntArray,
        task: IntArray,
    ) -> FloatArray:
        """[Kmax, B] added to the sums of y - h, so that a label's outliers teach less."""
        step = Observed.of(self.max_draft_tokens, verified, accepted)
        pooled = logistic(self.position_effect[:, None] + self.tasks.of(task))
        return outliers.correction(
            task,
            slots,
            step.residual(pooled).sum(axis=0),
            step.information(pooled).sum(axis=0),
            step.residual(hazard) * self.effects.unknown(slots),
        )
