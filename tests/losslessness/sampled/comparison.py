"""Are two samples of outputs from one law? Chi-square, by request and by pairs of requests."""

from typing import NamedTuple

import numpy as np

from adaptive_spec.step import IntArray
from tests.chi_square import tail
from tests.losslessness.sampled.sampler import OUTPUTS, ROWS


class Comparison(NamedTuple):
    """Probabilities of a difference at least as large if both samples have the same law.

    Attributes:
        single: of each request's output, given what it followed.
        pairs: of the outputs of two neighbours in a batch, given what they followed.
    """

    single: float
    pairs: float


def compare(row: IntArray, one: IntArray, other: IntArray) -> Comparison:
    """Compare [plans, B] outputs drawn for the same rows."""
    left, right = slice(0, None, 2), slice(1, None, 2)
    pair_row = row[:, left] * ROWS + row[:, right]
    one_pair, other_pair = (each[:, left] * OUTPUTS + each[:, right] for each in (one, other))
    return Comparison(
        _p_value(row, one, other, OUTPUTS), _p_value(pair_row, one_pair, other_pair, OUTPUTS**2)
    )


def _p_value(row: IntArray, one: IntArray, other: IntArray, outputs: int) -> float:
    """Homogeneity of two samples within each row; as many draws of each."""
    cells = (int(row.max()) + 1) * outputs
    counts = np.stack(
        [np.bincount((row * outputs + each).ravel(), minlength=cells) for each in (one, other)]
    ).astype(np.float64)
    counts = _rare_together(counts.reshape(2, -1, outputs))
    total = counts.sum(axis=0)
    seen = total > 0.0
    difference = counts[0] - counts[1]
    statistic = float((difference[seen] ** 2 / total[seen]).sum())
    freedom = int(seen.sum() - seen.any(axis=1).sum())
    return tail(statistic, freedom)


def _rare_together(counts: np.ndarray) -> np.ndarray:
    """Outputs that came less than 20 times in both samples together are one cell of their row."""
    rare = counts.sum(axis=0) < 20.0
    together = np.where(rare, counts, 0.0).sum(axis=2, keepdims=True)
    return np.concatenate([np.where(rare, 0.0, counts), together], axis=2)
