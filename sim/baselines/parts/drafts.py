"""Drafts of a batch: observed positions, log-odds, survival and ranking."""

from __future__ import annotations

import numpy as np

from adaptive_spec.step import BoolArray, FloatArray, IntArray


def observed(verified: IntArray, accepted: IntArray, positions: int) -> tuple[BoolArray, BoolArray]:
    """Return [B, positions] masks of observed and of accepted positions; arguments [B]."""
    position = np.arange(positions)
    taken = position < accepted[:, None]
    seen = (position <= accepted[:, None]) & (position < verified[:, None])
    return seen, taken


MAX_LOG_ODDS = 40.0
"""Limit of log-odds, which are infinite for a distribution with all its mass on one token."""


def log_odds(probability: FloatArray) -> FloatArray:
    """Return log(p / (1 - p)), limited to +-40; nan stays nan."""
    with np.errstate(divide="ignore"):
        odds: FloatArray = np.log(probability) - np.log1p(-probability)
    return np.clip(odds, -MAX_LOG_ODDS, MAX_LOG_ODDS)


def sigmoid(log_odds: FloatArray) -> FloatArray:
    """Return 1 / (1 + exp(-x)) without overflow."""
    result: FloatArray = 0.5 * (1.0 + np.tanh(0.5 * log_odds))
    return result


def survival_of(acceptance: FloatArray) -> FloatArray:
    """Return [B, Kmax] the probability that all drafts up to a position are accepted.

    Args:
        acceptance: [B, Kmax] acceptance given that earlier drafts were accepted; unknown (nan)
            counts as certain.
    """
    survival = np.where(np.isnan(acceptance), 1.0, acceptance)
    return np.cumprod(survival, axis=1, out=survival)


def most_likely(survival: FloatArray, available: IntArray, budget: int) -> IntArray:
    """Return [B] K_i: the `budget` drafts of the batch with the largest survival.

    Survival never rises along a request, so the selected drafts are prefixes. Ties go to the
    shallower position, then to the earlier request: all ranks with the same numbers admit the same
    drafts, and a draft's place does not depend on deeper ones.

    Args:
        survival: [B, Kmax], not increasing along a row.
        available: [B] available drafts, 0..Kmax.
        budget: drafts to admit; all available ones if fewer.
    """
    batch, positions = survival.shape
    if budget >= int(available.sum()):
        return available.copy()
    # Position-major order: a stable sort then breaks ties as documented.
    value = np.where(np.arange(positions)[:, None] < available, survival.T, -1.0).ravel()
    admitted = np.argsort(-value, kind="stable")[: max(budget, 0)]
    return np.bincount(admitted % batch, minlength=batch).astype(np.int64)
