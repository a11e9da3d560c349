"""Fleet prior: a replica begins with what others of its kind have learned.

Beliefs of replicas are averaged by precision. They are not added up: each has the prior in it, and
perhaps what its replica had from others, and how far the model is off (Julier and Uhlmann 1997).
Each is in doubt: by the age of its state and the kind of its server, and of acceptance by `TRAFFIC`
besides, as replicas serve other traffic. So no replica outweighs the others however sure it is.
Where they contradict each other, all are less sure (Birge 1932).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from adaptive_spec.policies.acceptance import Acceptance, SavedAcceptance
from adaptive_spec.policies.gaussian import SavedGaussian, saved_gaussian
from adaptive_spec.policies.step_times import BESIDE_LEVEL, SavedStepTimes, StepTimes
from adaptive_spec.step import FloatArray

TRAFFIC = 4.0 * BESIDE_LEVEL
"""Doubt of what a replica has learned of acceptance, as a share of the prior's variance."""


def averaged(
    replicas: Sequence[tuple[SavedGaussian, float, float]], prior: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return mean and covariance of beliefs about the same coefficients.

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
    mean, covariance = averaged(
        [(each.positions, 1.0, TRAFFIC + doubt) for each, doubt in replicas], base.prior
    )
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
