"""The reward of a step: emitted tokens per second and request.

Per request because the batch size varies within a load; at a given batch size it is the order of
tokens per second. Time that prompts in the step took is left out: it is due whatever K is.
"""

from __future__ import annotations

import math

import numpy as np

from adaptive_spec.policies.bandits.arms import LOAD_BINS
from adaptive_spec.step import FloatArray, IntArray, StepOutcome

_SCALE_MEMORY = 256
_MOST_PROMPT_SHARE = 0.5


def step_reward(outcome: StepOutcome, prompt_seconds: float) -> float:
    """Emitted tokens per second and request; nan if the step's time says little about K.

    Args:
        outcome: the step.
        prompt_seconds: what its prompts are thought to have taken; a step that spent more than
            half its time on them is no measurement.
    """
    seconds = outcome.seconds
    if not (0.0 < seconds < 60.0) or outcome.batch_size == 0:
        return math.nan
    if prompt_seconds > _MOST_PROMPT_SHARE * seconds:
        return math.nan
    return float(outcome.emitted.sum()) / (outcome.batch_size * (seconds - prompt_seconds))


class RewardScale:
    """The usual reward at each load, by which rewards are divided: they come out around 1."""

    def __init__(self) -> None:
        self.mean: FloatArray = np.zeros(LOAD_BINS)
        self.count: IntArray = np.zeros(LOAD_BINS, dtype=np.int64)

    def normalised(self, load: int, reward: float) -> float:
        """The reward in units of the load's mean, this one included; at most 4."""
        count = int(self.count[load])
        rate = 1.0 / min(count + 1, _SCALE_MEMORY)
        self.mean[load] += rate * (reward - self.mean[load])
        self.count[load] = min(count + 1, _SCALE_MEMORY)
        return min(reward / max(float(self.mean[load]), 1e-12), 4.0)
