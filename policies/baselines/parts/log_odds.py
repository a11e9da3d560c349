"""Probability to log-odds and back."""

from __future__ import annotations

import numpy as np

from adaptive_spec.step import FloatArray

MAX_LOG_ODDS = 40.0
"""Log-odds are cut there: a distribution with all its mass on one token is at infinity."""


def log_odds(probability: FloatArray) -> FloatArray:
    """log(p / (1 - p)), within +-40; nan stays nan."""
    with np.errstate(divide="ignore"):
        odds: FloatArray = np.log(probability) - np.log1p(-probability)
    return np.clip(odds, -MAX_LOG_ODDS, MAX_LOG_ODDS)


def sigmoid(log_odds: FloatArray) -> FloatArray:
    """1 / (1 + exp(-x)), without overflow."""
    result: FloatArray = 0.5 * (1.0 + np.tanh(0.5 * log_odds))
    return result
