"""Paired difference between a block and the windows on both sides of it.

The difference is ln(tokens per second of the policy) - ln(tokens per second of the other arm). Load
and prompts are covariates. The duration of a step is fitted as a + b requests + c prompt tokens, on
all steps of windows; c times their prompt tokens is taken out of the seconds of each window, those
beside are brought to the requests of the block, and both arms then pay the same prompts for each
token, those of the frame. So the difference is that of whole runs.

Where prompts run in batches of their own, prompts that come during one step share a batch, and its
fixed time. A step that emits x tokens, with a prompts for each, is followed by a batch with
probability 1 - exp(-a x), as in `adapters/sglang/prompt_steps.py`; so an arm with fewer tokens in a
step pays the fixed time more often for each of them.

The correction for load spares the mean difference of the pairs before, as far as it is known. A
load that moves by itself rises in a block as often as it falls, so this mean is the arm's own: an
arm that answers in fewer steps leaves more of them without the request that comes next.

A pair whose load differs by more than a quarter is left out, whatever came out. No pair is left out
for its result: an odd one (a stall) is bounded to what the pairs before it at this load allow.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from adaptive_spec.audit.blocks import Arm, Placed, Window
from adaptive_spec.per_request import sum_of
from adaptive_spec.policy_helpers import load_bin
from adaptive_spec.prompt_batches import PromptBatches
from adaptive_spec.step import StepOutcome

_LOAD_DIFFERENCE = 0.25
"""Largest difference of ln(requests per step) between a block and each of its neighbours."""
_LEAST_STEPS = 8
"""Steps with a clean duration that each of the three windows needs."""
_BOUND = 4.0
"""Standard deviations beyond which a difference is bounded."""
_FIRST_DEVIATION, _FIRST_WEIGHT = 0.3, 2.0
"""Standard deviation of differences before any, and the pairs that this counts for."""
_LEAST_DEVIATION = 0.02
"""Least standard deviation that the bound assumes: a gain that changes must be seen."""
_FORGET = 0.03
"""Least weight of a new pair in mean and variance of the bound."""
_LARGEST_WEIGHT = 4.0
"""Largest weight of a pair, in mean weights so far: a stall is long."""
_KEPT = 0.97
"""Share of the step-time sums that a pair leaves."""
_FRAME_KEPT = 0.5
"""The same of the prompts and tokens of frames: prompts are those of recent frames."""
_UNSEEN_STEPS = 3
"""Steps outside of a pair after which it is complete: results of its last ones may be missing."""
_LEAST_DECODING = 0.1
"""Least share of a window's seconds that its decoding gets."""


class Difference(NamedTuple):
    """Result of one pair.

    Attributes:
        arm: compared with the policy.
        value: ln(tokens per second of the policy over those of the arm), bounded.
        weight: seconds of the windows beside the block, bounded.
        load: class of the requests per step, see `load_bin`.
        now: time of the last step (seconds).
    """

    arm: Arm
    value: float
    weight: float
    load: int
    now: float


class _Window:
    """Sums over the steps of a window."""

    __slots__ = ("arms", "prompts", "requests", "seconds", "steps", "tokens")

    def __init__(self) -> None:
        self.steps = self.tokens = self.requests = self.prompts = self.seconds = 0.0
        self.arms: set[Arm] = set()

    @property
    def load(self) -> float:
        """Requests per step."""
        return self.requests / self.steps


def _unusable(windows: dict[Window, _Window]) -> str:
    """Say why the windows of a pair cannot be compared; empty if they can."""
    if len(windows) < 3 or min(each.steps for each in windows.values()) < _LEAST_STEPS:
        return "incomplete"
    block, beside = windows["block"].arms, windows["before"].arms | windows["after"].arms
    return "arms mixed" if len(block) > 1 or len(beside) > 1 or block == beside else ""


def _batches_for_a_token(prompts: float, emitted: float) -> float:
    """Return the batches of prompts for each token emitted, by the docstring's formula.

    Args:
        prompts: for each token emitted.
        emitted: tokens in a step.
    """
    return -math.expm1(-prompts * emitted) / emitted if emitted else 0.0


class PairedDifferences:
    """Turns outcomes of steps into differences, one for each block.

    Attributes:
        left_out: blocks without a difference, by reason.
    """

    def __init__(self) -> None:
        self.left_out: Counter[str] = Counter()
        self._block = -1
        self._windows: dict[Window, _Window] = {}
        self._unseen = 0
        self._now = 0.0
        self._moments = np.zeros((3, 4))
        """[1, requests, prompt tokens] times [1, requests, prompt tokens, seconds], summed."""
        self._batches = PromptBatches()
        self._frame = [0.0] * 7
        """Tokens, prompt tokens, steps of prompts alone, decode steps, and of batches of prompts
        that were measured seconds, number and requests; recent ones."""
        self._bounds: dict[tuple[Arm, int], list[float]] = {}
        self._own_loads: dict[Arm, list[float]] = {}
        """Pairs, and mean and variance of their ln(requests per step under the arm over those of
        the policy)."""
        self._weights = [0.0, 0.0]

    def add(self, placed: Placed | None, outcome: StepOutcome) -> Difference | None:
        """Add a finished step; return a difference when one is complete."""
        decoded = len(outcome.slots)
        # Requests that ended in the step have no row: they emitted as the others did.
        tokens = sum_of(outcome.emitted) * outcome.batch_size / decoded if decoded else 0.0
        frame = self._frame
        frame[0] += tokens
        frame[1] += outcome.prefill_tokens
        frame[3] += bool(decoded)
        for requests, prompts, seconds in outcome.prompt_batches:
            frame[4:] = frame[4] + seconds, frame[5] + 1.0, frame[6] + requests
            self._batches.add(prompts, seconds)
        found = None
        if placed is None:
            self._unseen += 1
            if self._windows and self._unseen >= _UNSEEN_STEPS:
                found = self._close()
        elif placed.block != self._block:
            found = self._close()
            self._block = placed.block
        if placed is not None:
            self._unseen = 0
            if not placed.edge and decoded and 0.0 < outcome.seconds < math.inf:
                self._add_step(placed, outcome, tokens)
        return found

    def add_prompts(self, tokens: int) -> None:
        """Count a step of prompts alone, whose duration nobody reports."""
        self._frame[1] += tokens
        self._frame[2] += 1.0

    def void(self) -> None:
        """Leave out the pair that is under way: something else has changed."""
        self._windows = {}

    def _add_step(self, placed: Placed, outcome: StepOutcome, tokens: float) -> None:
        window = self._windows.setdefault(placed.window, _Window())
        requests, prompts = float(outcome.batch_size), float(outcome.prefill_tokens)
        window.steps += 1.0
        window.tokens += tokens
        window.requests += requests
        window.prompts += prompts
        window.seconds += outcome.seconds
        window.arms.add(placed.arm)
        self._moments += np.outer(
            (1.0, requests, prompts), (1.0, requests, prompts, outcome.seconds)
        )
        self._now = outcome.now

    def _close(self) -> Difference | None:
        """Compare the windows of the pair that has ended."""
        windows, self._windows = self._windows, {}
        if "block" not in windows:  # put off, or never begun
            return None
        why = _unusable(windows)
        if why:
            self.left_out[why] += 1
            return None
        block, beside = windows["block"], (windows["before"], windows["after"])
        (arm,), (other,) = block.arms, beside[0].arms
        # Where the plugin is handed back, the other arm runs beside the block.
        sign, arm = (1.0, arm) if other == "policy" else (-1.0, other)
        load = load_bin(max(round(block.load), 1))
        more = [sign * math.log(block.load / each.load) for each in beside]
        own = self._own_load(arm, more)
        if max(map(abs, more)) > _LOAD_DIFFERENCE:
            self.left_out["load differs"] += 1
            return None
        value = sign * self._compare(block, beside, block.load * math.exp(-sign * own))
        self._moments *= _KEPT
        self._batches.fade(_KEPT)
        self._frame = [_FRAME_KEPT * each for each in self._frame]
        weight = self._bounded_weight(beside[0].seconds + beside[1].seconds)
        return Difference(arm, self._bounded(value, arm, load), weight, load, self._now)

    def _own_load(self, arm: Arm, more: Sequence[float]) -> float:
        """Return the mean difference of the pairs before this one, and add it.

        Over all loads: a block at a peak has less beside it, whichever arm runs. Shrunk by how well
        it is known (James and Stein): where the load moves by itself, a mean of few pairs is noise.
        """
        known = self._own_loads.setdefault(arm, [0.0, 0.0, 0.0])
        number, mean, variance = known
        # Of every pair: which loads stand beside each other depends on how bursts look.
        rate, new = max(1.0 / (number + 1.0), _FORGET), sum(more) / len(more) - mean
        known[:] = number + 1.0, mean + rate * new, (1.0 - rate) * (variance + rate * new**2)
        if number < 2.0 or not mean:
            return 0.0
        return mean * max(1.0 - variance / (number - 1.0) / mean**2, 0.0)

    def _compare(self, block: _Window, beside: tuple[_Window, _Window], load: float) -> float:
        """Return the difference, those beside brought to this load."""
        fixed, each, prompt = self._step_times()
        tokens, prompts, alone, steps, measured, batches, requests = self._frame
        tokens = max(tokens, 1.0)
        batch = self._batches.fixed_seconds * batches
        shared = (prompt * prompts + fixed * alone + measured - batch) / tokens
        # Batches for each token, over those of the frame.
        usual = _batches_for_a_token(requests / tokens, tokens / max(steps, 1.0))

        def log_seconds(window: _Window, brought: float = 1.0, more: float = 1.0) -> float:
            decoding = window.seconds - prompt * window.prompts
            decoding = max(decoding, _LEAST_DECODING * window.seconds)
            emitted = max(window.tokens, 1.0)
            often = _batches_for_a_token(requests / tokens, more * emitted / window.steps)
            paid = shared + (batch / tokens * often / usual if usual else 0.0)
            return math.log(decoding * brought / emitted + paid)

        # Windows of one length: the mean of a logarithm depends on how many steps are averaged.
        each_token = fixed / load + each
        sides = [
            log_seconds(one, each_token / (fixed / one.load + each), load / one.load)
            for one in beside
        ]
        return log_seconds(block) - sum(sides) / 2.0

    def _step_times(self) -> tuple[float, float, float]:
        """Seconds of a step, of a request and of a prompt token, by least squares."""
        square = self._moments[:, :3]
        # Requests that never change their number say nothing of what one costs.
        ridge = np.diag(1e-6 * np.diag(square) + 1e-12)
        found = np.linalg.solve(square + ridge, self._moments[:, 3])
        fixed, each, prompt = (max(float(value), 0.0) for value in found)
        return (fixed, each, prompt) if fixed + each else (1.0, 0.0, prompt)

    def _bounded(self, value: float, arm: Arm, load: int) -> float:
        """Bound a difference by the pairs before it, and learn their mean and variance."""
        first = [_FIRST_WEIGHT, 0.0, _FIRST_DEVIATION**2]
        known = self._bounds.setdefault((arm, load), first)
        number, mean, variance = known
        most = _BOUND * max(math.sqrt(variance), _LEAST_DEVIATION)
        value = min(max(value, mean - most), mean + most)
        rate = max(1.0 / (number + 1.0), _FORGET)
        mean_after = mean + rate * (value - mean)
        spread = (value - mean) * (value - mean_after)
        known[:] = number + 1.0, mean_after, (1.0 - rate) * variance + rate * spread
        return value

    def _bounded_weight(self, seconds: float) -> float:
        total, number = self._weights
        if number:
            seconds = min(seconds, _LARGEST_WEIGHT * total / number)
        self._weights = [total + seconds, number + 1.0]
        return seconds
