"""Online fits of the confidence weights: weight updates, their pooling, and running means."""

from __future__ import annotations

import numpy as np

from adaptive_spec.policies.kernels import kernel, sum_in_order
from adaptive_spec.step import FloatArray


def _weigh_loop(
    values: FloatArray,
    residual: FloatArray,
    information: FloatArray,
    weight: FloatArray,
    evidence: FloatArray,
    prior_evidence: float,
    evidence_limit: float,
    most: float,
) -> None:
    rows, batch = values.shape
    for r in range(rows):
        gradient = 0.0
        shown = 0.0
        for i in range(batch):
            value = values[r, i]
            if not np.isnan(value):
                gradient += value * residual[r, i]
                shown += value * value * information[r, i]
        evidence[r] = min(evidence[r], evidence_limit) + shown
        found = weight[r] + gradient / (evidence[r] + prior_evidence)
        weight[r] = min(max(found, 0.0), most)


@kernel(
    "void(float64[:, :], float64[:, :], float64[:, :], float64[:], float64[:],"
    " float64, float64, float64)",
    _weigh_loop,
)
def weigh(
    values: FloatArray,
    residual: FloatArray,
    information: FloatArray,
    weight: FloatArray,
    evidence: FloatArray,
    prior_evidence: float,
    evidence_limit: float,
    most: float,
) -> None:
    """Update weights w >= 0 in logits w x with one step, row by row.

    Args:
        values: [R, B] x; nan counts for nothing.
        residual: [R, B] y - h.
        information: [R, B] h (1 - h).
        weight: [R] w; updated in place.
        evidence: [R] Fisher information; updated in place.
        prior_evidence: of w = 0.
        evidence_limit: of what was there before.
        most: largest w.
    """
    known = np.where(np.isnan(values), 0.0, values)
    np.minimum(evidence, evidence_limit, out=evidence)
    evidence += sum_in_order((known * known * information).T)
    weight += sum_in_order((known * residual).T) / (evidence + prior_evidence)
    np.minimum(np.maximum(weight, 0.0), most, out=weight)


def _pool_loop(
    own: FloatArray, evidence: FloatArray, weight: FloatArray, prior_evidence: float, pooling: float
) -> None:
    shown = 0.0
    gathered = 0.0
    for j in range(len(own)):
        shown += evidence[j] * own[j]
        gathered += evidence[j]
    pooled = shown / (gathered + prior_evidence)
    for j in range(len(own)):
        weight[j] = (evidence[j] * own[j] + pooling * pooled) / (evidence[j] + pooling)


@kernel("void(float64[:], float64[:], float64[:], float64, float64)", _pool_loop)
def pool(
    own: FloatArray, evidence: FloatArray, weight: FloatArray, prior_evidence: float, pooling: float
) -> None:
    """Draw the weight of each position towards the weight that all positions show together.

    Args:
        own: [Kmax] w of each position by itself.
        evidence: [Kmax] its Fisher information.
        weight: [Kmax] the outcome.
        prior_evidence: that w is 0.
        pooling: Fisher information by which all positions count at each.
    """
    shown, gathered = np.cumsum(evidence * own)[-1], np.cumsum(evidence)[-1]
    pooled = shown / (gathered + prior_evidence)
    weight[:] = (evidence * own + pooling * pooled) / (evidence + pooling)


def _follow_means_loop(
    values: FloatArray, mean: FloatArray, count: FloatArray, memory: float
) -> None:
    rows, batch = values.shape
    for r in range(rows):
        seen = 0.0
        total = 0.0
        for i in range(batch):
            if not np.isnan(values[r, i]):
                seen += 1.0
                total += values[r, i]
        count[r] = min(count[r] + seen, memory)
        mean[r] += total / max(count[r], 1.0)


@kernel("void(float64[:, :], float64[:], float64[:], float64)", _follow_means_loop)
def follow_means(values: FloatArray, mean: FloatArray, count: FloatArray, memory: float) -> None:
    """Take a step's centred values up in the running mean of each row.

    Args:
        values: [R, B] less the mean so far; nan counts for nothing.
        mean: [R] updated in place.
        count: [R] values so far, `memory` at most; updated in place.
        memory: values after which the mean forgets.
    """
    known = ~np.isnan(values)
    total = sum_in_order(np.where(known, values, 0.0).T)
    count[:] = np.minimum(count + np.count_nonzero(known, axis=1), memory)
    mean += total / np.maximum(count, 1.0)
