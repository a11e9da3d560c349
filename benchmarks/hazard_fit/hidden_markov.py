"""Fits a hidden Markov chain to binary sequences, by expectation and maximisation (Baum-Welch).

Here a sequence says, output position by output position, whether the drafter's first token is
accepted; the hidden state is how easy the text is to draft at that place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adaptive_spec.step import FloatArray

_WINDOW = 256
"""Long sequences are split: it bounds the passes over positions, and few pairs are lost."""


@dataclass(frozen=True, eq=False)
class HiddenMarkov:
    """A chain of hidden states, each of which emits 1 with its own probability.

    Attributes:
        chances: [states] probability of a 1, ascending.
        transitions: [states, states] rows sum to 1.
        log_likelihood: of the sequences it was fitted to, before the last iteration's update.
    """

    chances: FloatArray
    transitions: FloatArray
    log_likelihood: float


def fit_hidden_markov(
    sequences: Sequence[NDArray[np.bool_]], *, states: int, iterations: int
) -> HiddenMarkov:
    """Fit from a fixed start, so without randomness.

    Args:
        sequences: none empty.
        states: hidden states, >= 1.
        iterations: of expectation and maximisation.
    """
    ones, there = _padded(sequences)
    share = float(np.clip(ones.sum() / there.sum(), 1e-3, 1 - 1e-3))
    centre = np.log(share / (1 - share))
    spread = np.linspace(-1.5, 1.5, states) if states > 1 else np.zeros(1)
    chances = 1 / (1 + np.exp(-(centre + spread)))
    transitions = np.full((states, states), 0.1 / max(states - 1, 1))
    np.fill_diagonal(transitions, 0.9 if states > 1 else 1.0)
    begin = np.full(states, 1 / states)
    likelihood = -np.inf
    for _ in range(iterations):
        begin, transitions, chances, likelihood = _improve(
            ones, there, share, begin, transitions, chances
        )
    order = np.argsort(chances)
    return HiddenMarkov(chances[order], transitions[np.ix_(order, order)], likelihood)


def _padded(
    sequences: Sequence[NDArray[np.bool_]],
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """[positions, N] values and whether there is one, of the windows of all sequences."""
    windows = [
        window
        for sequence in sequences
        for window in np.array_split(sequence, max(1, round(len(sequence) / _WINDOW)))
    ]
    longest = max(len(window) for window in windows)
    ones = np.zeros((longest, len(windows)), dtype=bool)
    there = np.zeros((longest, len(windows)), dtype=bool)
    for column, window in enumerate(windows):
        ones[: len(window), column] = window
        there[: len(window), column] = True
    return ones, there


def _improve(
    ones: NDArray[np.bool_],
    there: NDArray[np.bool_],
    share: float,
    begin: FloatArray,
    transitions: FloatArray,
    chances: FloatArray,
) -> tuple[FloatArray, FloatArray, FloatArray, float]:
    """One iteration: scaled forward and backward passes, then the new parameters."""
    positions, windows = ones.shape
    states = len(begin)
    emission = np.where(ones[..., None], chances, 1 - chances)
    emission[~there] = 1.0

    forward = np.empty((positions, windows, states))
    scale = np.empty((positions, windows))
    ahead = np.broadcast_to(begin, (windows, states))
    for position in range(positions):
        joint = ahead * emission[position]
        scale[position] = joint.sum(axis=1)
        forward[position] = joint / scale[position][:, None]
        ahead = forward[position] @ transitions

    backward = np.ones((windows, states))
    moves = np.zeros((states, states))
    visits = np.zeros(states)
    hits = np.zeros(states)
    for position in range(positions - 1, -1, -1):
        weight = forward[position] * backward
        weight /= weight.sum(axis=1, keepdims=True)
        weight[~there[position]] = 0.0
        visits += weight.sum(axis=0)
        hits += weight[ones[position]].sum(axis=0)
        if position:
            later = emission[position] * backward / scale[position][:, None]
            before = forward[position - 1] * there[position][:, None]
            moves += transitions * (before.T @ later)
            backward = later @ transitions.T
    # Half an observation at the overall share keeps every chance inside (0, 1).
    chances = np.clip((hits + 0.5 * share) / (visits + 0.5), 1e-4, 1 - 1e-4)
    moves += 1e-6
    return (
        weight.sum(axis=0) / windows,
        moves / moves.sum(axis=1, keepdims=True),
        chances,
        float(np.log(scale).sum()),
    )
