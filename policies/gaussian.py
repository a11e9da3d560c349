"""A Gaussian belief N(mean, P) about coefficients that drift."""

from __future__ import annotations

import math

import msgspec
import numpy as np

from adaptive_spec.errors import PolicyError
from adaptive_spec.policies.kernels import Kernel, Matrix, Vector
from adaptive_spec.step import FloatArray

_LARGEST = 1e12
"""Largest entry of a saved mean or covariance."""
_NEGATIVE = -1e-3
"""Coefficients that lie further below 0 than this (standard deviations) are conditioned on 0."""


@Kernel
def dot(x: Vector, y: Vector) -> float:
    """Return x'y."""
    found = 0.0
    for p in range(len(x)):
        found += x[p] * y[p]
    return found


@Kernel
def product(covariance: Matrix, x: Vector) -> Vector:
    """Return P x of x [P], most of whose entries may be 0."""
    found = np.zeros(len(x))
    for p in range(len(x)):
        if x[p] != 0.0:
            for q in range(len(x)):
                found[q] += x[p] * covariance[p, q]
    return found


@Kernel
def variance_of(covariance: Matrix, x: Vector) -> float:
    """Return x' P x."""
    return dot(x, product(covariance, x))


@Kernel
def condition(mean: Vector, covariance: Matrix, row: Vector, value: float, variance: float) -> None:
    """Condition N(mean, P) on row . c = value, observed with this variance. In place.

    Args:
        mean: [P]
        covariance: [P, P]
        row: [P]; most entries are 0.
        value: observed.
        variance: of the observation's error.
    """
    size, side = len(mean), product(covariance, row)
    total, off = variance + dot(row, side), value - dot(row, mean)
    for p in range(size):
        gain = side[p] / total
        mean[p] += gain * off
        for q in range(size):
            covariance[p, q] -= gain * side[q]


@Kernel
def likeliest_nonnegative(mean: Vector, covariance: Matrix) -> Vector:
    """Return the mean given that no coefficient is negative, to first order.

    The coefficient that lies furthest below 0, in its standard deviations, is conditioned on being
    0, then the next one. Clipping would leave a steady error, since the others do not follow.
    """
    size = len(mean)
    found = mean.copy()
    for _ in range(size):
        worst, lowest = 0, _NEGATIVE
        for p in range(size):
            far = found[p] / math.sqrt(max(covariance[p, p], 1e-18))
            if far < lowest:
                worst, lowest = p, far
        if lowest == _NEGATIVE:
            break
        push = found[worst] / max(covariance[worst, worst], 1e-18)
        for q in range(size):
            found[q] -= covariance[worst, q] * push
    for p in range(size):
        found[p] = max(found[p], 0.0)
    return found


@Kernel
def inform(covariance: Matrix, information: Vector) -> None:
    """Condition a covariance [P, P] on independent Fisher information [P] of each entry. In place.

    Each entry is one observation of it, so that (P^-1 + diag(information))^-1 comes without an
    inverse.
    """
    size = len(covariance)
    for p in range(size):
        if information[p] > 0.0:
            column = covariance[:, p].copy()
            gain = information[p] / (1.0 + information[p] * column[p])
            for q in range(size):
                for r in range(size):
                    covariance[q, r] -= gain * column[q] * column[r]


class SavedGaussian(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A belief and the prior that it began with, as JSON.

    Both stand apart: the precision that observations brought is P^-1 - P0^-1.

    Attributes:
        mean, covariance: [P], [P, P]
        prior_mean, prior_covariance: likewise, before anything was observed.
    """

    mean: list[float]
    covariance: list[list[float]]
    prior_mean: list[float]
    prior_covariance: list[list[float]]

    def checked(self, size: int) -> tuple[FloatArray, FloatArray]:
        """Return mean and covariance. Raises PolicyError if this is no belief of `size` numbers."""
        found = []
        for mean, covariance in (
            (self.mean, self.covariance),
            (self.prior_mean, self.prior_covariance),
        ):
            if len(mean) != size or [len(row) for row in covariance] != [size] * size:
                raise PolicyError(f"a belief of {len(mean)} coefficients, {size} are expected")
            m, p = np.array(mean), np.array(covariance)
            if not (np.abs(m).max() < _LARGEST and np.abs(p).max() < _LARGEST):  # nan is not
                raise PolicyError("a belief has entries that are not finite, or beyond all measure")
            p = 0.5 * (p + p.T)
            if np.linalg.eigvalsh(p)[0] < -1e-9 * np.trace(p) or np.diag(p).min() <= 0.0:
                raise PolicyError("the covariance of a belief is not positive")
            found.append((m, p))
        return found[0]

    def prior(self) -> tuple[FloatArray, FloatArray]:
        """Return mean and covariance before anything was observed."""
        return np.array(self.prior_mean), np.array(self.prior_covariance)


def saved_gaussian(
    mean: FloatArray, covariance: FloatArray, prior_mean: FloatArray, prior_covariance: FloatArray
) -> SavedGaussian:
    """Return a belief and its prior as JSON."""
    return SavedGaussian(
        mean.tolist(), covariance.tolist(), prior_mean.tolist(), prior_covariance.tolist()
    )
