"""Belief 1: how probably a draft is accepted.

The draft at position j of request i, its predecessors accepted, is accepted with

    logit h_ij = b_j + fast_i + slow_i + w z_ij.

b ~ N(mean, P) drifts. fast_i and slow_i are Ornstein-Uhlenbeck effects of a request. Their
variances move to where they would have predicted best (recursive prediction errors). z_ij is the
centred logit of the drafter's maximum probability; where it is unknown the logit is divided by
sqrt(1 + pi / 8 w^2 var z) (MacKay 1992), so one model serves with and without confidence.

Feedback is censored: position j is observed iff j <= min(accepted + 1, verified). Positions and
requests are therefore learned jointly, from residuals y - h. What the effects of all B requests
move by alike, and b does not explain, is b's by the share P / (P + v / B), v an effect's variance.

Outcomes of one step are not independent, and an odd step counts little: W units of information in a
step whose residuals sum to r count as W / (1 + W / 10 + r^2 / (9 (W + w'P w))), w the information
by position.
"""

from __future__ import annotations

import math
from typing import Annotated

import msgspec
import numpy as np

from adaptive_spec.errors import PolicyError
from adaptive_spec.per_request import floats, highest_of
from adaptive_spec.policies.gaussian import (
    SavedGaussian,
    inform,
    saved_gaussian,
    variance_of,
)
from adaptive_spec.policies.kernels import Kernel, Limits, Matrix, Vector
from adaptive_spec.policies.labels import Labels
from adaptive_spec.step import FloatArray, IntArray

PRIOR_HAZARD = 0.67
"""Acceptance of a draft before anything was seen."""
FIRST_VARIANCE = 1.0
"""Prior variance of b_1 (logit^2)."""
MORE_VARIANCE = 0.25 * FIRST_VARIANCE
"""Prior variance of each step from one position to the next (logit^2)."""
DRIFT = 3e-5
"""Variance that b gains in each step, as a share of the prior's."""
FAST, SLOW = 0.7, 0.99
"""Share of a request's effects that is left after a step."""
FIRST_EFFECTS = (0.3, 0.1)
"""Variances of the effects at first (logit^2)."""
ALIKE = 0.1
"""Outcomes of a step tell no more than 1 / ALIKE independent drafts do."""
LEAST_HAZARD, MOST_HAZARD = 0.01, 0.995
"""Bounds of what is believed of a draft."""
LEAST_SHOWN = 200
"""Drafts with confidence before drafts are admitted by it."""
_MACKAY = math.pi / 8.0
_NOTHING: FloatArray = np.zeros((0, 0))


@Kernel
def learn_outcomes(
    b: Vector,
    weight: float,
    flat: float,
    variances: Vector,
    requests: Matrix,
    slots: Limits,
    verified: Limits,
    accepted: Limits,
    z: Matrix,
    sums: Matrix,
) -> Matrix:
    """Learn the requests' effects from a step, in place.

    Args:
        b: [Kmax] positions.
        weight: w.
        flat: factor of a logit whose z is unknown.
        variances: [2] of the effects.
        requests: [slots, 4] fast and slow effect, and the share of either's variance that is known,
            overwritten.
        slots: [B]
        verified: [B] drafts.
        accepted: [B] of these.
        z: [Kmax, B] signal, nan where unknown; empty without any.
        sums: [4, Kmax] overwritten with the residual and the information that positions learn
            from, and those of w.

    Returns [3, 3] slope and curvature of the outcomes in the logarithms of the variances (a column
    each), and by how much the effects have moved and may move, summed over the requests.
    """
    kmax = len(b)
    slopes = np.zeros((3, 3))
    fast_moved, slow_moved, spread = 0.0, 0.0, 0.0
    for i in range(len(slots)):
        slot = slots[i]
        fast, slow = requests[slot, 0] * FAST, requests[slot, 1] * SLOW
        left_fast = 1.0 - FAST * FAST * requests[slot, 2]
        left_slow = 1.0 - SLOW * SLOW * requests[slot, 3]
        residuals, total = 0.0, 0.0
        for j in range(min(accepted[i] + 1, verified[i], kmax)):
            logit = b[j] + fast + slow
            known = len(z) > 0 and z[j, i] == z[j, i]
            if known:
                logit += weight * z[j, i]
            else:
                logit *= flat
            h = min(max(1.0 / (1.0 + math.exp(-logit)), LEAST_HAZARD), MOST_HAZARD)
            residual = (1.0 if j < accepted[i] else 0.0) - h
            information = max(h * (1.0 - h), 0.02)
            residuals += residual
            total += information
            # Positions learn from what a request's own effect does not explain.
            sums[0, j] += left_fast * residual
            sums[1, j] += left_fast * information
            if known:
                sums[2, j] += z[j, i] * residual
                sums[3, j] += z[j, i] * z[j, i] * information
        by_fast, by_slow = left_fast * variances[0], left_slow * variances[1]
        moved_fast, moved_slow = fast * left_fast, slow * left_slow
        slopes[0, 0] += residuals * moved_fast
        slopes[0, 1] += residuals * moved_slow
        slopes[1, 0] += total * moved_fast * moved_fast
        slopes[1, 1] += total * moved_slow * moved_slow
        sure = 1.0 + total * (by_fast + by_slow)
        requests[slot, 0] = fast + by_fast * residuals / sure
        requests[slot, 1] = slow + by_slow * residuals / sure
        fast_moved += by_fast * residuals / sure
        slow_moved += by_slow * residuals / sure
        spread += by_fast + by_slow
        requests[slot, 2] = 1.0 - left_fast * (1.0 - by_fast * total / sure)
        requests[slot, 3] = 1.0 - left_slow * (1.0 - by_slow * total / sure)
    slopes[2, 0], slopes[2, 1], slopes[2, 2] = fast_moved, slow_moved, spread
    return slopes


@Kernel
def learn_positions(
    mean: Vector,
    covariance: Matrix,
    prior: Matrix,
    sums: Matrix,
    variances: Vector,
    curvature: Vector,
    slopes: Matrix,
    requests: Matrix,
    slots: Limits,
) -> None:
    """Learn b and the variances of the effects from what `learn_outcomes` has summed. In place.

    Args:
        mean: [Kmax] of b.
        covariance: [Kmax, Kmax] of b.
        prior: [Kmax, Kmax]
        sums: [4, Kmax]
        variances: [2] of the effects.
        curvature: [2] known of the logarithms of the variances.
        slopes: [3, 3]
        requests: [slots, 4] as `learn_outcomes` has left them; the effects are overwritten.
        slots: [B]
    """
    kmax = len(mean)
    total, off = 0.0, 0.0
    for j in range(kmax):
        off += sums[0, j]
        total += sums[1, j]
    known = total + variance_of(covariance, sums[1])
    alike = 1.0 + ALIKE * total + off * off / max(9.0 * known, 1.0)
    information = np.empty(kmax)
    for j in range(kmax):
        # Information of a step that was far off is more than at the belief's own hazard.
        information[j] = (sums[1, j] + 0.25 * abs(sums[0, j])) / alike
        for k in range(kmax):
            covariance[j, k] += DRIFT * prior[j, k]
    before = covariance[0, 0]
    inform(covariance, information)
    for j in range(kmax):
        for k in range(kmax):
            mean[j] += covariance[j, k] * sums[0, k] / alike
    # Of what all effects have moved by alike b has just explained a part; the rest is b's, too, as
    # far as b is the less sure of the two.
    batch = len(slots)
    left = covariance[0, 0] / before
    share = left * before / (before + slopes[2, 2] / batch**2)
    for j in range(kmax):
        mean[j] += share * (slopes[2, 0] + slopes[2, 1]) / batch
    for i in range(batch):
        for e in range(2):
            requests[slots[i], e] -= (1.0 - left + share) * slopes[2, e] / batch
    for e in range(len(variances)):
        curvature[e] = min(curvature[e], 100.0) + slopes[1, e]
        moved = math.exp(slopes[0, e] / (curvature[e] + abs(slopes[0, e])))
        variances[e] = min(max(variances[e] * moved, 0.02), 3.0)


@Kernel
def saved_by_drafts(mean: Vector, covariance: Matrix, flat: float, times: Vector) -> float:
    """Return the share of time that drafts save, if they are as good as one may hope.

    That is a standard deviation of b above its mean.

    Args:
        mean: [Kmax] of b.
        covariance: [Kmax, Kmax] of b.
        flat: factor of a logit.
        times: [Kmax + 1] of a step with that many drafts for each request.
    """
    reached, tokens, least = 1.0, 1.0, times[0]
    for j in range(len(mean)):
        logit = flat * (mean[j] + math.sqrt(covariance[j, j]))
        reached *= min(max(1.0 / (1.0 + math.exp(-logit)), LEAST_HAZARD), MOST_HAZARD)
        tokens += reached
        least = min(least, times[j + 1] / tokens)
    return 1.0 - float(least / times[0])


@Kernel
def predict(
    b: Vector, requests: Matrix, slots: Limits, flat: float, weight: float, z: Matrix
) -> tuple[Matrix, Matrix]:
    """Return the hazards [Kmax, B] of requests' drafts, and their survival [Kmax, B].

    Args:
        b: [Kmax] positions.
        requests: [slots, 4] see `learn_outcomes`.
        slots: [B]
        flat: factor of a logit whose z is unknown.
        weight: w.
        z: [Kmax, B] signal, nan where unknown; empty without any.
    """
    kmax, batch = len(b), len(slots)
    hazards, survival = np.empty((kmax, batch)), np.empty((kmax, batch))
    for i in range(batch):
        own = requests[slots[i], 0] + requests[slots[i], 1]
        reached = 1.0
        for j in range(kmax):
            logit = flat * (b[j] + own)
            if len(z) > 0 and z[j, i] == z[j, i]:
                logit = b[j] + own + weight * z[j, i]
            hazards[j, i] = min(max(1.0 / (1.0 + math.exp(-logit)), LEAST_HAZARD), MOST_HAZARD)
            reached *= hazards[j, i]
            survival[j, i] = reached
    return hazards, survival


class SavedAcceptance(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Belief about acceptance as JSON, single requests left out.

    Attributes:
        positions: belief about b, in logits.
        variances: [2] of the requests' effects.
        weight, weight_information: w, and what is known of it.
        signal_mean, signal_count: [Kmax] mean logit of the drafter's probability, and of how many.
        signal_variance: of the centred logits.
    """

    positions: SavedGaussian
    variances: list[Annotated[float, msgspec.Meta(ge=0.02, le=3.0)]]
    weight: Annotated[float, msgspec.Meta(ge=0.0, le=4.0)]
    weight_information: Annotated[float, msgspec.Meta(gt=0.0, le=1e9)]
    signal_mean: list[Annotated[float, msgspec.Meta(ge=-20.0, le=20.0)]]
    signal_count: list[Annotated[float, msgspec.Meta(ge=0.0, le=5000.0)]]
    signal_variance: Annotated[float, msgspec.Meta(ge=0.0, le=1e3)]


class Acceptance:
    """Belief about the drafts of one engine.

    Attributes:
        mean, covariance: [Kmax], [Kmax, Kmax] of b.
        prior_mean, prior: [Kmax], [Kmax, Kmax] of b before anything was seen.
        weight: w.
    """

    def __init__(self, kmax: int, prior_hazard: float = PRIOR_HAZARD) -> None:
        self._kmax = kmax
        positions = np.arange(kmax, dtype=np.float64)
        self.prior: FloatArray = FIRST_VARIANCE + MORE_VARIANCE * np.minimum.outer(
            positions, positions
        )
        prior = min(max(prior_hazard, LEAST_HAZARD), MOST_HAZARD)
        self.prior_mean = np.full(kmax, math.log(prior / (1.0 - prior)))
        self.mean: FloatArray = self.prior_mean.copy()
        self.covariance: FloatArray = self.prior.copy()
        self._began = self.prior_mean, self.prior
        """Mean and covariance of b that a saved state counts from."""
        self.variances: FloatArray = np.array(FIRST_EFFECTS)
        self._curvature: FloatArray = np.ones(2)
        self._requests = floats(0.0, 4)
        self._labels = Labels(SLOW)
        self.weight, self._weight_information = 0.0, 4.0
        self._z_mean: FloatArray = np.zeros(kmax)
        self._z_count: FloatArray = np.zeros(kmax)
        self._z_variance = 1.0

    @property
    def informative(self) -> bool:
        """Return whether confidence is known to tell of acceptance."""
        return self.weight > 0.0 and float(self._z_count.sum()) >= LEAST_SHOWN

    @property
    def flat(self) -> float:
        """Factor of a logit whose z is unknown."""
        return 1.0 / math.sqrt(1.0 + _MACKAY * self.weight**2 * self._z_variance)

    def predict(
        self, slots: IntArray, z: FloatArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Return hazards and survival [Kmax, B] of requests' drafts, from finished steps and z."""
        requests, z = self._requests.reaching(highest_of(slots)), _NOTHING if z is None else z
        return predict(self.mean, requests, slots, self.flat, self.weight, z)

    def signal(self, confidence: FloatArray) -> FloatArray:
        """Return z [Kmax, B] of confidences [B, Kmax].

        Their mean and variance are followed only as the step is learned: they set the survival of
        all drafts, and a plan may not depend on the confidence of deeper drafts of its own step.
        """
        p = np.clip(confidence.T, 1e-4, 1.0 - 1e-4)
        return np.ascontiguousarray(np.log(p / (1.0 - p)) - self._z_mean[:, None])

    def _follow_signal(self, z: FloatArray) -> None:
        known = ~np.isnan(z)
        count = known.sum(axis=1)
        self._z_count = np.minimum(self._z_count + count, 5000.0)
        seen = np.where(known, z, 0.0)
        self._z_mean = self._z_mean + seen.sum(axis=1) / np.maximum(self._z_count, 1.0)
        if number := int(count.sum()):
            more = float((seen * seen).sum()) - number * self._z_variance
            self._z_variance += more / float(self._z_count.sum())

    def learn(
        self, slots: IntArray, verified: IntArray, accepted: IntArray, z: FloatArray | None
    ) -> None:
        """Learn from the outcomes of a step: slots, verified and accepted drafts [B], z."""
        sums = np.zeros((4, self._kmax))
        requests = self._requests.reaching(highest_of(slots))
        slopes = learn_outcomes(
            self.mean,
            self.weight,
            self.flat,
            self.variances,
            requests,
            slots,
            verified,
            accepted,
            _NOTHING if z is None else z,
            sums,
        )
        learn_positions(
            self.mean,
            self.covariance,
            self.prior,
            sums,
            self.variances,
            self._curvature,
            slopes,
            requests,
            slots,
        )
        if z is not None:
            self._weight_information = min(self._weight_information, 1000.0) + float(sums[3].sum())
            moved_w = self.weight + float(sums[2].sum()) / self._weight_information
            self.weight = min(max(moved_w, 0.0), 4.0)
            self._follow_signal(z)

    def widen(self) -> None:
        """Trust the past no more than before anything was seen, but keep its mean.

        Drafts may be as good again as they were believed to be at first.
        """
        far = self.mean - self.prior_mean
        self.covariance = self.covariance + self.prior + np.outer(far, far)

    def begin(self, slots: IntArray, task: IntArray) -> None:
        """Give requests [B] in their first step the prior of their label [B], -1 without one."""
        found = self._labels.begun(slots, task, float(self.variances[1]))
        if found is not None:
            new, prior = found
            requests = self._requests.reaching(int(new.max()))
            requests[new, 1], requests[new, 3] = prior[:, 0], 1.0 - prior[:, 1]

    def forget(self, slots: IntArray) -> None:
        """Reset the effects of requests that have ended."""
        if self._labels.used:
            _, slow, _, known = self._requests[slots].T
            self._labels.ended(slots, slow, 1.0 - known, float(self.variances[1]))
        self._requests.reset(slots)

    def saved(self) -> SavedAcceptance:
        """Return what holds beyond single requests."""
        return SavedAcceptance(
            positions=saved_gaussian(self.mean, self.covariance, *self._began),
            variances=self.variances.tolist(),
            weight=self.weight,
            weight_information=self._weight_information,
            signal_mean=self._z_mean.tolist(),
            signal_count=self._z_count.tolist(),
            signal_variance=self._z_variance,
        )

    def restore(self, saved: SavedAcceptance) -> None:
        """Adopt what was saved. Raises PolicyError if it does not fit this engine."""
        mean, covariance = saved.positions.checked(self._kmax)
        if len(saved.variances) != 2 or not (
            len(saved.signal_mean) == len(saved.signal_count) == self._kmax
        ):
            raise PolicyError(f"acceptance of another engine: its Kmax is not {self._kmax}")
        self.mean, self.covariance = mean, covariance
        self._began = saved.positions.prior()
        self.variances = np.array(saved.variances)
        self.weight, self._weight_information = saved.weight, saved.weight_information
        self._z_mean, self._z_count = np.array(saved.signal_mean), np.array(saved.signal_count)
        self._z_variance = saved.signal_variance
