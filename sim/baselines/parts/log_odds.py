"""Conversion between probability and log-odds."""

from __future__ import annotations

import numpy as np

from adaptive_spec.step import FloatArray

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
