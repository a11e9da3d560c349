"""The plain form: K values as unrelated arms, tokens per second of each, by load."""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from adaptive_spec.policies.bandits.arms import LOAD_BINS
from adaptive_spec.policies.bandits.base import Decision, Draw
from adaptive_spec.policies.bandits.rewards import step_reward
from adaptive_spec.policies.bandits.saved_arrays import Arrays
from adaptive_spec.policies.bandits.step_costs import StepCosts
from adaptive_spec.step import FloatArray, IntArray, StepContext, StepOutcome

_FORGOTTEN = 1e-9


class ArmMemory(Protocol):
    """Statistics of rewards by load and arm: rows of [LOAD_BINS, A]."""

    count: FloatArray
    total: FloatArray
    squares: FloatArray

    def learn(self, load: int, arm: int, reward: float) -> None:
        """Take up one reward."""
        ...

    def arrays(self) -> Arrays:
        """What is worth keeping."""
        ...

    def restored(self) -> None:
        """The arrays have been written to."""
        ...


class ArmCounts:
    """Sums of rewards, all of a load's forgotten at a rate per reward (1: never)."""

    def __init__(self, arms: int, discount: float = 1.0) -> None:
        self.count: FloatArray = np.zeros((LOAD_BINS, arms))
        self.total: FloatArray = np.zeros((LOAD_BINS, arms))
        self.squares: FloatArray = np.zeros((LOAD_BINS, arms))
        self._discount = discount

    def learn(self, load: int, arm: int, reward: float) -> None:
        """Take up one reward."""
        for sums, value in ((self.count, 1.0), (self.total, reward), (self.squares, reward**2)):
            sums[load] *= self._discount
            sums[load, arm] += value

    def arrays(self) -> Arrays:
        """The three sums."""
        return {"count": self.count, "total": self.total, "squares": self.squares}

    def restored(self) -> None:
        """Nothing else depends on them."""


class ArmWindow:
    """Sums of the last rewards of all loads together."""

    def __init__(self, arms: int, window: int) -> None:
        self.count: FloatArray = np.zeros((LOAD_BINS, arms))
        self.total: FloatArray = np.zeros((LOAD_BINS, arms))
        self.squares: FloatArray = np.zeros((LOAD_BINS, arms))
        self._where: IntArray = np.full((window, 2), -1, dtype=np.int64)
        self._rewards: FloatArray = np.zeros(window)
        self._next = 0
        self._left = 0
        """Rewards until what was restored leaves the window."""

    def learn(self, load: int, arm: int, reward: float) -> None:
        """Take up one reward; the oldest leaves."""
        place = self._next
        old_load, old_arm = self._where[place]
        if old_load >= 0:
            self._add(old_load, old_arm, self._rewards[place], -1.0)
        self._where[place] = load, arm
        self._rewards[place] = reward
        self._add(load, arm, reward, 1.0)
        self._next = (place + 1) % len(self._rewards)
        if self._left:
            self._left -= 1
            if not self._left:
                self._sum_anew()

    def arrays(self) -> Arrays:
        """The sums; a restored window leaves as a whole."""
        return {"count": self.count, "total": self.total, "squares": self.squares}

    def restored(self) -> None:
        """The sums stay until the window has gone round."""
        self._where[:] = -1
        self._left = len(self._rewards)

    def _add(self, load: int, arm: int, reward: float, sign: float) -> None:
        self.count[load, arm] += sign
        self.total[load, arm] += sign * reward
        self.squares[load, arm] += sign * reward**2

    def _sum_anew(self) -> None:
        """What was restored is forgotten: only the rewards in the window count."""
        for sums, power in ((self.count, 0), (self.total, 1), (self.squares, 2)):
            sums[:] = 0.0
            np.add.at(sums, (self._where[:, 0], self._where[:, 1]), self._rewards**power)


class IndexLearner:
    """Runs the arm of the largest mean reward plus bonus.

    index_k = mean_k / mean + c (sd / mean) sqrt(ln n / n_k), n = sum of n_k of the load, mean and
    sd of all its rewards: rewards are normalised by what the load usually gives. Arms without a
    reward go first, smallest K first.
    """

    def __init__(self, memory: ArmMemory, costs: StepCosts, exploration: float) -> None:
        self.memory = memory
        self._costs = costs
        self._exploration = exploration

    def features(self, context: StepContext) -> FloatArray:
        """None."""
        return np.zeros(0)

    def draw(self, context: StepContext, load: int, features: FloatArray) -> Draw:
        """The arm with the largest index."""
        count = self.memory.count[load]
        untried = count <= _FORGOTTEN
        if untried.any():
            return Draw(int(np.argmax(untried)), reason="first trial")
        return Draw(int(np.argmax(self.index(load))), reason="largest index")

    def index(self, load: int) -> FloatArray:
        """[A] indices; every arm must have a reward."""
        mean, spread = self.normalised(load)
        count = self.memory.count[load]
        bonus = np.sqrt(math.log(max(float(count.sum()), 1.0)) / count)
        index: FloatArray = mean + self._exploration * spread * bonus
        return index

    def normalised(self, load: int) -> tuple[FloatArray, float]:
        """[A] mean rewards, 0 without one, and the standard deviation within arms; normalised."""
        count, total = self.memory.count[load], self.memory.total[load]
        mean = total / np.maximum(count, 1e-12)
        overall = max(float(total.sum() / count.sum()), 1e-12)
        within = float(np.sum(self.memory.squares[load] - total * mean) / count.sum())
        return mean / overall, math.sqrt(max(within, 0.0)) / overall

    def learn(self, outcome: StepOutcome, decision: Decision | None, clean: bool) -> None:
        """Credit the arm with its step's reward."""
        if decision is None or not clean:
            return
        reward = step_reward(outcome, self._costs.prompt_seconds(outcome))
        if not math.isnan(reward):
            self.memory.learn(decision.load, decision.arm, reward)

    def forget(self, slots: IntArray) -> None:
        """Nothing is kept by request."""

    def arrays(self) -> Arrays:
        """The memory's."""
        return self.memory.arrays()

    def restored(self) -> None:
        """Tell the memory."""
        self.memory.restored()
