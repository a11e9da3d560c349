"""Fleet prior: a replica begins with what others of its kind have learned.

A replica r that began with N(m_0r, P_0r) and now believes N(m_r, P_r) has observed the information

    L_r = P_r^-1 - P_0r^-1,    h_r = P_r^-1 m_r - P_0r^-1 m_0r,

so that nothing counts twice that it had from others. Directions of which it knows little more than
at its start are left out: the belief has drifted there since, and the difference is no observation.

Replicas serve other traffic: r observes c_r = c + d_r, d_r ~ N(0, (t + t_r) P_0), with the common
prior c ~ N(m_0, P_0) and r's own doubt t_r, by age and kind of server (random effects). Given t the
information about c is (I + (t + t_r) L_r)^-1 (L_r, h_r) in units of P_0, and adds up. Each t of a
grid counts by the likelihood of how much replicas differ; its lowest value stays in doubt however
well they agree. The replica that begins is one more of them: N(c^, P + t P_0).

That is for acceptance. Step times of servers of the same kind are the same for all; what differs is
where the model of them is off, and what a jump has widened was no prior: see `averaged`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from adaptive_spec.errors import PolicyError
from adaptive_spec.policies.acceptance import Acceptance, SavedAcceptance
from adaptive_spec.policies.gaussian import SavedGaussian, saved_gaussian
from adaptive_spec.policies.step_times import BESIDE_LEVEL, SavedStepTimes, StepTimes
from adaptive_spec.step import FloatArray

_SPREADS: FloatArray = np.array([BESIDE_LEVEL * 2.0**n for n in range(6)])
"""t that are tried: any traffic changes acceptance by the first, at least."""


class Observed(NamedTuple):
    """Observations of one replica, in units of the common prior.

    Attributes:
        precision: [P, P] L_r
        vector: [P] h_r
        doubt: t_r
    """

    precision: FloatArray
    vector: FloatArray
    doubt: float


def observed(belief: SavedGaussian, mean: FloatArray, root: FloatArray, doubt: float) -> Observed:
    """Return what a belief has observed beyond the prior that it began with.

    Args:
        belief: checked.
        mean: [P] of the common prior.
        root: [P, P] Cholesky factor of its covariance.
        doubt: t_r
    """
    now, (began, spread) = np.array(belief.mean), belief.prior()
    own = np.linalg.cholesky(spread)
    inside = np.linalg.solve(own, np.linalg.solve(own, np.array(belief.covariance)).T)
    variance, axes = np.linalg.eigh(0.5 * (inside + inside.T))
    precision = 1.0 / np.maximum(variance, 1e-9)
    known = precision > 2.0  # what was observed tells more than the prior
    axes, precision = axes[:, known], precision[known]
    away = axes.T @ np.linalg.solve(own, now - began)
    # In these axes the prior is N(0, I); in the common ones c = mean + root x.
    seen = axes.T @ np.linalg.solve(own, root)
    shift = axes.T @ np.linalg.solve(own, mean - began)
    return Observed(
        seen.T @ ((precision - 1.0)[:, None] * seen),
        seen.T @ (precision * away - (precision - 1.0) * shift),
        doubt,
    )


def check_prior(belief: SavedGaussian) -> None:
    """Raise PolicyError if nothing can be subtracted from a belief that is checked itself."""
    try:
        np.linalg.cholesky(belief.prior()[1])
    except np.linalg.LinAlgError as error:
        raise PolicyError("the prior of a belief is singular") from error


def pooled(
    replicas: Sequence[Observed], mean: FloatArray, root: FloatArray, spreads: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return mean and covariance of the belief that one more replica begins with.

    Args:
        replicas: what each has observed.
        mean: [P] of the common prior.
        root: [P, P] Cholesky factor of its covariance.
        spreads: t that are tried.
    """
    size = len(mean)
    parts = [(*np.linalg.eigh(each.precision), each) for each in replicas]
    scores, means, covariances = [], [], []
    for spread in spreads:
        precision, vector, score = np.eye(size), np.zeros(size), 0.0
        for values, axes, each in parts:
            values = np.maximum(values, 0.0)
            share = 1.0 / (1.0 + (spread + each.doubt) * values)
            along = axes.T @ each.vector
            precision += (axes * (values * share)) @ axes.T
            vector += axes @ (share * along)
            score += 0.5 * float(np.log(share).sum())
            score += 0.5 * float(((spread + each.doubt) * share * along * along).sum())
        # How much replicas differ from each other is not told by how far all are from the prior.
        vague = precision - 0.99 * np.eye(size)
        score += 0.5 * float(vector @ np.linalg.solve(vague, vector))
        score -= 0.5 * float(np.linalg.slogdet(vague)[1])
        covariance = np.linalg.inv(precision)
        centre = covariance @ vector
        scores.append(score)
        means.append(centre)
        covariances.append(covariance + spread * np.eye(size))
    weight = np.exp(np.array(scores) - max(scores))
    weight /= weight.sum()
    centre = np.einsum("t,tp->p", weight, np.array(means))
    off = np.array(means) - centre
    covariance = np.einsum("t,tpq->pq", weight, np.array(covariances))
    covariance += np.einsum("t,tp,tq->pq", weight, off, off)
    # A server alone begins with variance 1: the fleet never makes it less sure than that.
    values, axes = np.linalg.eigh(covariance)
    covariance = (axes * np.minimum(values, 1.0)) @ axes.T
    return mean + root @ centre, root @ covariance @ root.T


def averaged(
    replicas: Sequence[tuple[SavedGaussian, float, float]], prior: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return mean and covariance of beliefs about the same coefficients, by precision.

    Precisions are averaged, not added up: the prior is in all of them, and how far the model is off
    (Julier and Uhlmann 1997). Where replicas contradict each other, all are less sure (Birge 1932).

    Args:
        replicas: checked beliefs, common units per unit of each, and its doubt.
        prior: [P, P] covariance of a replica alone, in common units.
    """
    root, size = np.linalg.cholesky(prior), len(prior)
    precision, vector = np.zeros((size, size)), np.zeros(size)
    known, directions = [], 0
    for belief, scale, doubt in replicas:
        mean = np.linalg.solve(root, scale * np.array(belief.mean))
        inside = np.linalg.solve(root, np.linalg.solve(root, np.array(belief.covariance)).T)
        values, axes = np.linalg.eigh(0.5 * scale * scale * (inside + inside.T))
        values = np.maximum(values, 1e-9) + doubt
        own = (axes / values) @ axes.T
        known.append((own, mean))
        directions += int((values < 0.5).sum())
        precision += own
        vector += own @ mean
    count = len(replicas)
    centre, covariance = np.linalg.solve(precision, vector), count * np.linalg.inv(precision)
    off = sum(float((mean - centre) @ own @ (mean - centre)) for own, mean in known)
    covariance *= max(off * count / max(directions * (count - 1), 1), 1.0)
    return root @ centre, root @ covariance @ root.T


def pooled_acceptance(
    replicas: Sequence[tuple[SavedAcceptance, float]], base: Acceptance
) -> SavedAcceptance:
    """Return the belief about acceptance that one more replica begins with.

    Args:
        replicas: beliefs of the same Kmax, and their doubt.
        base: what a replica alone begins with.
    """
    root: FloatArray = np.linalg.cholesky(base.prior).astype(np.float64)
    seen = [observed(each.positions, base.prior_mean, root, doubt) for each, doubt in replicas]
    mean, covariance = pooled(seen, base.prior_mean, root, _SPREADS)
    alone = base.saved()
    beliefs = [each for each, _ in replicas]
    known = [each.weight_information - alone.weight_information for each in beliefs]
    counts = np.array([each.signal_count for each in beliefs])
    shown = counts.sum(axis=1)
    return SavedAcceptance(
        positions=saved_gaussian(mean, covariance, mean, covariance),
        variances=[
            _geometric_mean([each.variances[e] for each in beliefs], [1.0] * len(beliefs))
            for e in range(len(base.variances))
        ],
        weight=_mean((each.weight for each in beliefs), known, alone.weight),
        # As sure as one of them: replicas may differ.
        weight_information=max(each.weight_information for each in beliefs),
        signal_mean=[
            _mean((each.signal_mean[j] for each in beliefs), counts[:, j], 0.0)
            for j in range(len(mean))
        ],
        signal_count=counts.max(axis=0).tolist(),
        signal_variance=_mean((each.signal_variance for each in beliefs), shown, 1.0),
    )


def pooled_step_times(
    replicas: Sequence[tuple[SavedStepTimes, float]], base: StepTimes
) -> SavedStepTimes:
    """Return the belief about step times that one more replica begins with.

    Units are seconds over the mean unit: how a replica splits a time into T0 L and c is its own.

    Args:
        replicas: beliefs of servers of the same kind, and their doubt; one at least.
        base: what a replica alone begins with.
    """
    beliefs = [each for each, _ in replicas]
    steps = [each.steps for each in beliefs]
    unit = _geometric_mean([each.unit for each in beliefs], steps)
    mean, covariance = averaged(
        [(each.parts, each.unit / unit, doubt) for each, doubt in replicas], base.covariance
    )
    parts = saved_gaussian(mean, covariance, mean, covariance)
    noise = _geometric_mean([each.noise for each in beliefs], steps)
    # K that one of them has not timed at a load is timed again: the parts may not hold there.
    loads = set.intersection(*(set(each.timed) for each in beliefs))
    timed = {
        load: np.min([each.timed[load] for each in beliefs], axis=0).tolist()
        for load in sorted(loads)
    }
    return SavedStepTimes(parts, unit, noise, max(steps), timed)


def _mean(values: Iterable[float], weights: Iterable[float], otherwise: float) -> float:
    """Return the weighted mean; of no weight at all `otherwise`."""
    given = np.maximum(np.array(list(weights), dtype=np.float64), 0.0)
    total, some = float(given.sum()), np.array(list(values))
    if total <= 0.0:
        return otherwise
    return float(np.clip(some @ given / total, some.min(), some.max()))


def _geometric_mean(values: Sequence[float], weights: Iterable[float]) -> float:
    """Return the weighted geometric mean, within the values."""
    found = np.exp(_mean(np.log(values), weights, float(np.log(values).mean())))
    return float(np.clip(found, min(values), max(values)))
