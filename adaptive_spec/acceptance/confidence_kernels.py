"""Online fits of the confidence weights: weight updates, their pooling, and running means."""

from __future__ import annotations

import numpy as np

from adaptive_spec.kernels import kernel, sum_in_order
from adaptive_spec.step import FloatArray, IntArray


def _weigh_loop(
    values: FloatArray,
    residual: FloatArray,
    information: FloatArray,
    classes: IntArray,
    weight: FloatArray,
    evidence: FloatArray,
    prior_evidence: float,
    evidence_limit: float,
    most: float,
) -> None:
    rows, batch = values.shape
    columns = weight.shape[1]
    gradient = np.empty(columns, np.float64)
    shown = np.empty(columns, np.float64)
    for r in range(rows):
        gradient[:] = 0.0
        shown[:] = 0.0
        for i in range(batch):
            value = values[r, i]
            if not np.isnan(value):
                column = classes[i] if len(classes) > 1 else classes[0]
                gradient[column] += value * residual[r, i]
                shown[column] += value * value * information[r, i]
        for c in range(columns):
            evidence[r, c] = min(evidence[r, c], evidence_limit) + shown[c]
            found = weight[r, c] + gradient[c] / (evidence[r, c] + prior_evidence)
            weight[r, c] = min(max(found, 0.0), most)


@kernel(
    "void(float64[:, :], float64[:, :], float64[:, :], int64[:], float64[:, :], float64[:, :],"
    " float64, float64, float64)",
    _weigh_loop,
)
def weigh(
    values: FloatArray,
    residual: FloatArray,
    information: FloatArray,
    classes: IntArray,
    weight: FloatArray,
    evidence: FloatArray,
    prior_evidence: float,
    evidence_limit: float,
    most: float,
) -> None:
    """One step's update of weights w >= 0 in logits w x, for each row and class of requests.

    Args:
        values: [R, B] x; nan counts for nothing.
        residual: [R, B] y - h.
        information: [R, B] h (1 - h).
        classes: [B] column of each request, or [1] of all.
        weight: [R, C] w; updated in place.
        evidence: [R, C] Fisher information; updated in place.
        prior_evidence: of w = 0.
        evidence_limit: of what was there before.
        most: largest w.
    """
    known = np.where(np.isnan(values), 0.0, values)
    pull, shown = known * residual, known * known * information
    np.minimum(evidence, evidence_limit, out=evidence)
    for column in range(weight.shape[1]):
        here = classes == column
        evidence[:, column] += sum_in_order(np.where(here, shown, 0.0).T)
        gradient = sum_in_order(np.where(here, pull, 0.0).T)
        found = weight[:, column] + gradient / (evidence[:, column] + prior_evidence)
        weight[:, column] = np.minimum(np.maximum(found, 0.0), most)


def _pool_loop(
    own: FloatArray, evidence: FloatArray, weight: FloatArray, prior_evidence: float, pooling: float
) -> None:
    kmax, columns = own.shape
    shown = np.zeros(columns, np.float64)
    gathered = np.zeros(columns, np.float64)
    for j in range(kmax):
        for c in range(columns):
            shown[c] += evidence[j, c] * own[j, c]
            gathered[c] += evidence[j, c]
    all_shown = 0.0
    all_gathered = 0.0
    for c in range(columns):
        all_shown += shown[c]
        all_gathered += gathered[c]
    both = all_shown / (all_gathered + prior_evidence)
    for c in range(columns):
        pooled = (shown[c] + pooling * both) / (gathered[c] + pooling)
        for j in range(kmax):
            weight[j, c] = (evidence[j, c] * own[j, c] + pooling * pooled) / (
                evidence[j, c] + pooling
            )


@kernel(
    "void(float64[:, :], float64[:, :], float64[:, :], float64, float64)",
    _pool_loop,
)
def pool(
    own: FloatArray, evidence: FloatArray, weight: FloatArray, prior_evidence: float, pooling: float
) -> None:
    """What a position has shown itself, drawn towards what its class and both have shown.

    Args:
        own: [Kmax, C] w of each position and class by itself.
        evidence: [Kmax, C] its Fisher information.
        weight: [Kmax, C] the outcome.
        prior_evidence: that none of them is more than 0.
        pooling: Fisher information by which others count.
    """
    shown, gathered = sum_in_order(evidence * own), sum_in_order(evidence)
    both = float(np.cumsum(shown)[-1]) / (float(np.cumsum(gathered)[-1]) + prior_evidence)
    pooled = (shown + pooling * both) / (gathered + pooling)
    weight[:] = (evidence * own + pooling * pooled) / (evidence + pooling)


def _follow_means_loop(
    values: FloatArray, classes: IntArray, mean: FloatArray, count: FloatArray, memory: float
) -> None:
    rows, batch = values.shape
    columns = mean.shape[1]
    seen = np.empty(columns, np.float64)
    total = np.empty(columns, np.float64)
    for r in range(rows):
        seen[:] = 0.0
        total[:] = 0.0
        for i in range(batch):
            if not np.isnan(values[r, i]):
                column = classes[i] if len(classes) > 1 else classes[0]
                seen[column] += 1.0
                total[column] += values[r, i]
        for c in range(columns):
            count[r, c] = min(count[r, c] + seen[c], memory)
            mean[r, c] += total[c] / max(count[r, c], 1.0)


@kernel(
    "void(float64[:, :], int64[:], float64[:, :], float64[:, :], float64)",
    _follow_means_loop,
)
def follow_means(
    values: FloatArray, classes: IntArray, mean: FloatArray, count: FloatArray, memory: float
) -> None:
    """Take a step's values up in the running means of each row and class of requests.

    Args:
        values: [R, B]; nan counts for nothing.
        classes: [B] column of each request, or [1] of all.
        mean: [R, C] updated in place.
        count: [R, C] values so far, `memory` at most; updated in place.
        memory: values after which the mean forgets.
    """
    known = ~np.isnan(values)
    values = np.where(known, values, 0.0)
    for column in range(mean.shape[1]):
        here = known & (classes == column)
        seen = np.count_nonzero(here, axis=1)
        total = sum_in_order(np.where(here, values, 0.0).T)
        count[:, column] = np.minimum(count[:, column] + seen, memory)
        mean[:, column] += total / np.maximum(count[:, column], 1.0)
