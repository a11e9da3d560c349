"""One logistic model of hazards: position + task label + request.

The hazard is the probability that draft j is accepted given that the drafts before it were. Its
logit is b_j + v_t + u_i + a_ij, plus whatever the caller adds: b_j is the effect of the position,
v_t that of the request's task label, u_i what the request has been like for some steps, and a_ij
what lasts of it, apart for its first draft (a_i1) and for the deeper ones (a_i2).

Feedback is censored: a step that verified K and accepted A shows positions 1..min(A + 1, K) only.
Per-position rates are biased as soon as K differs between requests, because K then depends on
acceptance; fitting all effects jointly, by residuals y - h, is not. The b_j are updated once per
step for the whole batch (one after the other they diverge at large batches).

A request that turns bad is verified until u_i has followed. One that turns good while nothing is
verified for it is not seen. So the outcomes of known requests hold too many failures, and b_j and
v_t learn from each request by the share of u_i's prior variance that is left. A known request needs
neither, because its own effects correct them. Short requests teach the b_j most, so that a stream
of them moves the b_j; what longer requests have shown stays in their a_ij.
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

PARTS = 3
"""Parts of a request's effect: u_i of all drafts, for a few steps; a_i1 of the first draft and a_i2
of the deeper ones, for long."""
EVIDENCE_LIMIT = 1000.0
"""Fisher information at which the memory of a position is capped."""
_LEAST_INFORMATION = 0.02
# Near a hazard of 0 or 1, Newton's own step overshoots, and the next one overshoots back.
_DAMPING = 0.25
"""Damping of a step: a position moves by less than 1 / 0.25 logits."""


def _update_effects_loop(
    hazard: FloatArray,
    slots: IntArray,
    verified: IntArray,
    accepted: IntArray,
    position_effect: FloatArray,
    position_evidence: FloatArray,
    position_count: IntArray,
    request_effect: FloatArray,
    request_information: FloatArray,
    prior_variance: FloatArray,
    discount: FloatArray,
) -> tuple[float, float, int, FloatArray, FloatArray]:
    kmax, batch = hazard.shape
    sums = np.zeros((4, kmax), np.float64)
    unknown_sums = np.empty((2, batch), np.float64)
    slopes = np.zeros((2, PARTS), np.float64)
    gradient = np.empty(PARTS, np.float64)
    total = np.empty(PARTS, np.float64)
    left = np.empty(PARTS, np.float64)
    observed = 0
    for i in range(batch):
        slot = slots[i]
        gradient[:] = 0.0
        total[:] = 0.0
        fisher = 0.0
        unknown = 1.0 / (1.0 + prior_variance[0] * request_information[slot, 0])
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
            part = 1 if j == 0 else 2
            gradient[0] += residual
            gradient[part] += residual
            total[0] += information
            total[part] += information
            fisher += h * (1.0 - h)
        unknown_sums[0, i] = unknown * gradient[0]
        unknown_sums[1, i] = unknown * fisher
        for part in range(PARTS):
            left[part] = prior_variance[part] / (
                1.0 + prior_variance[part] * request_information[slot, part] * discount[part]
            )
        # One observation tells of both parts that it holds of: they share its surprise.
        shared = (left[1] * total[1] + left[2] * total[2]) / max(total[0], _LEAST_INFORMATION)
        for part in range(PARTS):
            variance = prior_variance[part]
            information = request_information[slot, part]
            effect = request_effect[slot, part]
            by_log_variance = effect / (1.0 + variance * information)
            slopes[0, part] += by_log_variance * gradient[part]
            slopes[1, part] += by_log_variance * by_log_variance * total[part]
            information = information * discount[part] + total[part]
            both = left[part] + (left[0] if part else shared)
            effect += gradient[part] * left[part] / (1.0 + total[part] * both)
            forgets = (0.5 if verified[i] > 0 else 1.0) * (1.0 - discount[part])
            request_effect[slot, part] = effect * (1.0 - forgets / (1.0 + variance * information))
            request_information[slot, part] = information
    surprise = 0.0
    variance = 0.0
    for j in range(kmax):
        surprise += sums[0, j]
        variance += sums[1, j]
        position_evidence[j] = min(position_evidence[j], EVIDENCE_LIMIT) + sums[3, j]
        position_effect[j] += sums[2, j] / (position_evidence[j] + _DAMPING * abs(sums[2, j]))
    return surprise, variance, observed, slopes, unknown_sums


@kernel(
    f"Tuple((float64, float64, int64, float64[:, ::1], float64[:, ::1]))(float64[:, :], {INTS},"
    f" {INTS}, {INTS}, float64[::1], float64[::1], int64[::1], float64[:, ::1], float64[:, ::1],"
    " float64[::1], float64[::1])",
    _update_effects_loop,
)
def update_effects(
    hazard: FloatArray,
    slots: IntArray,
    verified: IntArray,
    accepted: IntArray,
    position_effect: FloatArray,
    position_evidence: FloatArray,
    position_count: IntArray,
    request_effect: FloatArray,
    request_information: FloatArray,
    prior_variance: FloatArray,
    discount: FloatArray,
) -> tuple[float, float, int, FloatArray, FloatArray]:
    """Update the effects of positions and requests by one step, in place.

    Position j of request i was observed iff ``j < min(accepted + 1, verified)`` (0-based), and
    accepted iff ``j < accepted``. Residuals are y - h with the hazards `[Kmax, B]` given. Each
    request counts for a position by the share of the prior variance of u_i that is left. A request
    forgets; one that verified nothing returns to the mean twice as fast.

    Args:
        hazard: [Kmax, B] as predicted.
        slots: [B] rows of the requests.
        verified: [B]
        accepted: [B]
        position_effect: [Kmax]
        position_evidence: [Kmax] Fisher information behind it.
        position_count: [Kmax] times seen.
        request_effect: [slots, PARTS]
        request_information: [slots, PARTS]
        prior_variance: [PARTS] of request effects.
        discount: [PARTS] of a request's information, per step.

    Returns the sum of all residuals, of their Fisher information, and the number of observations;
    [2, PARTS] slope and curvature of the outcomes' log-likelihood in the logarithm of each prior
    variance v (du_i / d log v is u_i times the share of v that was left); and [2, B] the first two
    sums by request, times the share that is left of u_i's.
    """
    position = np.arange(len(hazard))[:, None]
    seen = position < np.minimum(accepted + 1, verified)
    expected = hazard * seen
    residual = (position < accepted) - expected
    fisher = expected * (1.0 - expected)
    information = np.maximum(fisher, _LEAST_INFORMATION) * seen
    before, effect = request_information[slots], request_effect[slots]
    unknown = 1.0 / (1.0 + prior_variance[0] * before[:, 0])
    np.minimum(position_evidence, EVIDENCE_LIMIT, out=position_evidence)
    position_evidence += information @ unknown
    surplus = residual @ unknown
    position_effect += surplus / (position_evidence + _DAMPING * np.abs(surplus))
    observed = np.add.reduce(seen, axis=1, dtype=np.int64)
    position_count += observed
    gradient, total = _by_part(residual), _by_part(information)
    by_log_variance = effect / (1.0 + prior_variance * before)
    slopes = np.stack(
        ((by_log_variance * gradient).sum(axis=0), (by_log_variance**2 * total).sum(axis=0))
    )
    effect += gradient * _gain(prior_variance / (1.0 + prior_variance * before * discount), total)
    kept = before * discount + total
    # The discounted evidence no longer supports the whole effect: it shrinks towards the prior.
    forgets = np.where(verified > 0, 0.5, 1.0)[:, None] * (1.0 - discount)
    request_effect[slots] = effect * (1.0 - forgets / (1.0 + prior_variance * kept))
    request_information[slots] = kept
    return (
        float(np.add.reduce(gradient[:, 0])),
        float(np.add.reduce(total[:, 0])),
        int(np.add.reduce(observed)),
        slopes,
        unknown * (gradient[:, 0], np.add.reduce(fisher, axis=0)),
    )


def _by_part(table: FloatArray) -> FloatArray:
    """[B, PARTS] sums of a table [Kmax, B] over the drafts that each part of an effect holds of."""
    whole = table.sum(axis=0)
    return np.stack((whole, table[0], whole - table[0]), axis=1)


def _gain(variance: FloatArray, information: FloatArray) -> FloatArray:
    """[B, PARTS] by which a part moves for each unit of its gradient.

    An observation tells of the two parts that it holds of; they share its surprise by their
    variances [B, PARTS].
    """
    shared = (variance * information)[:, 1:].sum(axis=1)
    shared /= np.maximum(information[:, 0], _LEAST_INFORMATION)
    both = variance + np.column_stack((shared, variance[:, 0], variance[:, 0]))
    gain: FloatArray = variance / (1.0 + information * both)
    return gain


def _impute_loop(
    residual: FloatArray,
    information: FloatArray,
    slots: IntArray,
    position_effect: FloatArray,
    position_evidence: FloatArray,
    request_effect: FloatArray,
    request_information: FloatArray,
    prior_variance: FloatArray,
) -> FloatArray:
    kmax, batch = residual.shape
    sums = np.zeros((2, kmax), np.float64)
    unknown_sums = np.empty((2, batch), np.float64)
    gradient = np.empty(PARTS, np.float64)
    total = np.empty(PARTS, np.float64)
    left = np.empty(PARTS, np.float64)
    for i in range(batch):
        slot = slots[i]
        unknown = 1.0 / (1.0 + prior_variance[0] * request_information[slot, 0])
        gradient[:] = 0.0
        total[:] = 0.0
        for j in range(kmax):
            sums[0, j] += unknown * residual[j, i]
            sums[1, j] += unknown * information[j, i]
            part = 1 if j == 0 else 2
            gradient[0] += residual[j, i]
            gradient[part] += residual[j, i]
            total[0] += information[j, i]
            total[part] += information[j, i]
        unknown_sums[0, i] = unknown * gradient[0]
        unknown_sums[1, i] = unknown * total[0]
        for part in range(PARTS):
            variance = prior_variance[part]
            left[part] = variance / (1.0 + variance * request_information[slot, part])
        shared = (left[1] * total[1] + left[2] * total[2]) / max(total[0], _LEAST_INFORMATION)
        for part in range(PARTS):
            both = left[part] + (left[0] if part else shared)
            request_effect[slot, part] += gradient[part] * left[part] / (1.0 + total[part] * both)
            request_information[slot, part] += total[part]
    for j in range(kmax):
        position_evidence[j] = min(position_evidence[j], EVIDENCE_LIMIT) + sums[1, j]
        position_effect[j] += sums[0, j] / position_evidence[j]
    return unknown_sums


@kernel(
    f"float64[:, ::1](float64[:, :], float64[:, :], {INTS}, float64[::1], float64[::1],"
    " float64[:, ::1], float64[:, ::1], float64[::1])",
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
    prior_variance: FloatArray,
) -> FloatArray:
    """Update the effects by drafts whose outcomes were only estimated, in place.

    Args:
        residual: [Kmax, B] estimated y - h.
        information: [Kmax, B] behind it.
        slots: [B]
        position_effect: [Kmax]
        position_evidence: [Kmax] Fisher information behind it.
        request_effect: [slots, PARTS]
        request_information: [slots, PARTS]
        prior_variance: [PARTS] of request effects.

    Returns [2, B] the sums of both by request, times the share that is left of u_i's variance.
    """
    unknown = 1.0 / (1.0 + prior_variance[0] * request_information[slots, 0])
    fresh, surplus = information @ unknown, residual @ unknown
    position_evidence[:] = np.minimum(position_evidence, EVIDENCE_LIMIT) + fresh
    position_effect += surplus / position_evidence
    gradient, added = _by_part(residual), _by_part(information)
    before = request_information[slots]
    left = prior_variance / (1.0 + prior_variance * before)
    request_effect[slots] += gradient * _gain(left, added)
    request_information[slots] = before + added
    by_request: FloatArray = np.stack((gradient[:, 0], added[:, 0])) * unknown
    return by_request


_LARGEST_LOGIT = 50.0

DISCOUNT: FloatArray = np.array([0.75, 0.98, 0.98])
"""[PARTS] share of a request's evidence that a step leaves."""
_FIRST_VARIANCES: FloatArray = np.array([0.3, 0.1, 0.1])
"""[PARTS] variance between requests before anything is seen, in logits."""
_LEAST_VARIANCES: FloatArray = np.array([0.02, 0.05, 0.05])
_LARGEST_VARIANCE = 3.0
_FIRST_CURVATURE, _CURVATURE_LIMIT = 1.0, 100.0
"""Evidence behind the first variance, and its cap; sd(log) = evidence^-1/2."""
_TASK_VARIANCE = 0.5
"""Variance of v_t between labels, in logits."""
_EVIDENCE_LIMIT = 300.0
MOST_TASKS = 1024
"""Places for labels, far more than are in use at a time."""


class RequestEffects:
    """u_i, a_i1 and a_i2 by request slot, the evidence behind them, and how much requests differ.

    u_i forgets within about four steps: requests change that fast (a passage that the drafter
    copies, then one that it cannot). a_ij is an average over fifty. Its variance falls to next to
    nothing where requests are alike, and rises where kinds of requests differ.
    A request changes unobserved, too: in steps that verify nothing for it, its effects return to
    the mean of all requests. Without that, nobody would try a request again that was bad for some
    time.

    Attributes:
        prior_variance: [PARTS] of the effects between requests, in logits.
    """

    def __init__(self) -> None:
        self.prior_variance = _FIRST_VARIANCES.copy()
        self._curvature: FloatArray = np.full(PARTS, _FIRST_CURVATURE)
        self.effect, self.evidence = floats(0.0, PARTS), floats(0.0, PARTS)
        """[slots, PARTS] effects, and the Fisher information behind them."""

    def unknown(self, slots: IntArray) -> FloatArray:
        """Share [B] of the prior variance of u_i that is left."""
        share: FloatArray = 1.0 / (1.0 + self.prior_variance[0] * self.evidence[slots][:, 0])
        return share

    def learn_variance(self, slope: FloatArray, curvature: FloatArray) -> None:
        """Move prior variances to where the effects would have predicted a step's outcomes best.

        A Newton step on the error of one-step predictions (recursive prediction errors: Ljung and
        Söderström, "Theory and practice of recursive identification", chapter 3).

        Args:
            slope: [PARTS] of the outcomes' log-likelihood in the logarithm of each variance.
            curvature: [PARTS] of the same, expected; at least 0.
        """
        self._curvature = np.minimum(self._curvature, _CURVATURE_LIMIT) + curvature
        moved = self.prior_variance * np.exp(slope / (self._curvature + np.abs(slope)))
        self.prior_variance = np.clip(moved, _LEAST_VARIANCES, _LARGEST_VARIANCE)

    def centre(self) -> FloatArray:
        """Make the effects of the requests that are known average to zero.

        Returns [PARTS] the averages that they had.
        """
        rows, evidence = self.effect.rows, self.evidence.rows
        known = evidence * self.prior_variance / (1.0 + evidence * self.prior_variance)
        mean: FloatArray = (known * rows).sum(axis=0) / np.maximum(known.sum(axis=0), 1e-9)
        rows -= known * mean
        return mean

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

    def add_outcomes(self, task: IntArray, residual: FloatArray, information: FloatArray) -> None:
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
            own = request_effect[slots[i]]
            logit = position_effect[j] + own[0] + own[1 if j == 0 else 2]
            if len(label_effect):
                logit += label_effect[i]
            if len(more):
                logit += more[j, i]
            hazard[j, i] = min(max(1.0 / (1.0 + math.exp(-logit)), _FLOOR), _CEILING)
            if len(otherwise) and more[j, i] != more[j, i]:
                hazard[j, i] = otherwise[j, i]
    return hazard


@kernel(
    f"float64[:, ::1](float64[::1], float64[:, ::1], {INTS}, float64[:], float64[:, :],"
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
        request_effect: [slots, PARTS] u_i, a_i1 and a_i2.
        slots: [B]
        label_effect: [B] v_t; empty: nobody has a label.
        more: [Kmax, B] added to the logits; empty: nothing.
        otherwise: [Kmax, B] hazards where `more` is nan; empty: it never is.
    """
    effect = request_effect[slots].T
    logit: FloatArray = position_effect[:, None] + (effect[0] + effect[2])
    logit[0] += effect[1] - effect[2]
    if len(label_effect):
        logit += label_effect
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
    """b_j, v_t, u_i and a_ij, learned from outcomes.

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

    def learn_outcomes(
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
        self.surprise, self.expected_variance, self.observed, slopes, unknown = update_effects(
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
        effects.learn_variance(*slopes)
        if correction is not None:
            self.position_effect += correction.sum(axis=1) / self._position_evidence
            unknown[0] += correction.sum(axis=0)
        if task is not None:
            self.tasks.add_outcomes(task, unknown[0], unknown[1])

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
            self.tasks.add_outcomes(task, by_request[0], by_request[1])

    def start_from(self, other: HazardModel) -> None:
        """Begin with the position effects of another model, not trusting them much."""
        self.position_effect = other.position_effect.copy()
        self._position_evidence = np.minimum(other._position_evidence, 20.0)

    def widen(self, evidence: float, *, centre: bool = False) -> None:
        """Trust the past less; `centre`: move the mean effect of the requests to the positions."""
        if centre:
            of_all, of_first, of_later = self.effects.centre()
            self.position_effect[0] += of_all + of_first
            self.position_effect[1:] += of_all + of_later
        self._position_evidence = np.minimum(self._position_evidence, evidence)
        self.tasks.widen(evidence)
        self.observations[:] = 0

    def state(self) -> dict[str, Any]:
        """Return what holds beyond single requests, JSON-compatible."""
        return {
            "position_effect": self.position_effect.tolist(),
            "position_evidence": self._position_evidence.tolist(),
            "observations": self.observations.tolist(),
            "prior_variance": self.effects.prior_variance.tolist(),
        }

    def restore(self, state: Any) -> None:
        """Take up a saved state. Raises PolicyError if it does not fit."""
        try:
            effect = np.array(state["position_effect"], dtype=np.float64)
            evidence = np.array(state["position_evidence"], dtype=np.float64)
            observations = np.array(state["observations"], dtype=np.int64)
            # A state of version 0.1 has that of u_i alone.
            known = np.array(state["prior_variance"], dtype=np.float64).reshape(-1)
            variance = np.concatenate((known, _FIRST_VARIANCES[len(known) :]))
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
            raise PolicyError(f"acceptance state does not fit: {error!r}") from error
        shape = (self.max_draft_tokens,)
        if effect.shape != shape or evidence.shape != shape or observations.shape != shape:
            raise PolicyError(f"acceptance state is for Kmax {effect.shape}, not {shape}")
        if not len(known) or len(variance) != PARTS:
            raise PolicyError(f"acceptance state has {len(known)} variances, not {PARTS}")
        finite = all(np.isfinite(each).all() for each in (effect, evidence, variance))
        if not (finite and variance.min() > 0.0 and evidence.min() > 0.0):
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
