"""Baseline: Nightjar, a bandit over K by batch size, with the cost of switching speculation on.

Source: Li et al., 2512.22420 (Eq. 2-5, ADA-BINGREEDY; from published notes), and its released code
(class ADABinGreedy of a vLLM 0.8.2 fork). Granularity: one K per batch. Signals: batch size, tokens
and seconds of a step, tokens since a request was last drafted for.

Batch sizes form pairs; each pair has its own bandit, whose arms are all K. Time at a pair is
divided into blocks of 2^(j - 1) rounds, these into bins of sqrt(block) rounds. Bin b of a block
explores with probability 1 / sqrt(b) (code; 1 / b in the paper) by drawing a random arm. Otherwise
it takes

    argmin_K  1 / g(K) + [last K = 0 and K > 0] C_switch / K

and either way holds the arm for the bin. g is the mean of tokens per request and second, shrunk to
0 by one imagined round, so an arm that never ran can only be drawn. C_switch = `switch_seconds` +
`switch_seconds_per_token` x (largest number of tokens a request is behind) x B replaces the paper's
measured table: 17.9 ms at 128 tokens and batch 32 to 102 ms at 512 and 64 (RTX 4090) would be
0.0058 and 2.9e-6. Both are 0 by default: an engine that keeps the drafter in step pays nothing.

Faults kept:

* Arms are unrelated, though K shows the acceptance of every smaller K; each batch size starts from
  nothing.
* Means cover the whole past: the rule assumes that each batch size is stationary.
* Exploration never ends: after 1,000 rounds, about two bins in five explore.

Differences from the release: the code draws a new arm in every exploring round, never draws K = 0
below batch 50, switches off by a fixed rule (batch > 20 and more than 2 requests/s), puts all
batches above 22 into one bin by default, and its branch for C_switch uses undefined names; these
follow the paper here. Weights are not offloaded (the engine's task). At K = 0 upstream skips the
drafter (`cold`); by default its state is kept here, because requests alive at that time would never
be drafted for again.
"""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

import msgspec
import numpy as np

from adaptive_spec.per_request import integers
from adaptive_spec.policy import Provenance
from adaptive_spec.policy_helpers import StatelessPolicy
from adaptive_spec.sim.baselines.parts.batch_rounds import BatchRounds
from adaptive_spec.step import FinishedStep, FloatArray, IntArray, Level, SpecPlan, StepContext

_IMAGINED_ROUNDS = 1.0
_PAIR = 2

NonNegative = Annotated[float, msgspec.Meta(ge=0)]


class NightjarOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of `nightjar`."""

    switch_seconds: NonNegative = 0.0
    switch_seconds_per_token: NonNegative = 0.0
    exploration: Literal["sqrt", "inverse"] = "sqrt"
    """Exploration probability of bin b: 1 / sqrt(b) as released, or 1 / b as in the paper."""
    max_contexts: Annotated[int, msgspec.Meta(ge=1)] = 256
    """Pairs of batch sizes; larger batches share the last."""
    cold: bool = False
    """Skip the drafter at K = 0 where the engine can."""


class BinGreedy:
    """Blocks, bins and arms of one pair of batch sizes.

    Args:
        arms: number of arms.
        inverse: explore with 1 / b instead of 1 / sqrt(b).
    """

    def __init__(self, arms: int, *, inverse: bool) -> None:
        self.counts: IntArray = np.zeros(arms, dtype=np.int64)
        self.means: FloatArray = np.zeros(arms)
        self._inverse = inverse
        self._block = 1
        self._bin = 1
        self._rounds = 0
        self._arm: int | None = None
        self.probability = 1.0
        """Probability of the current choice; 1 for the rest of its bin."""

    def select(self, switch_cost: FloatArray, random: np.random.Generator) -> int:
        """Return the arm of the next round; [arms] extra seconds per token of each."""
        length = self._bin_length()
        if self._rounds >= length:
            self._rounds = 0
            self._bin += 1
            if (self._bin - 1) * length >= 2 ** (self._block - 1):
                self._block += 1
                self._bin = 1
            self._arm = None
        self._rounds += 1
        self.probability = 1.0
        if self._arm is None:
            self._arm = self._choose(switch_cost, random)
        return self._arm

    def record(self, arm: int, reward: float) -> None:
        """Record an arm's tokens per request and second."""
        self.counts[arm] += 1
        self.means[arm] += (reward - self.means[arm]) / self.counts[arm]

    def _bin_length(self) -> int:
        return math.isqrt(2 ** (self._block - 1))

    def _choose(self, switch_cost: FloatArray, random: np.random.Generator) -> int:
        arms = len(self.counts)
        exploring = 1.0 / self._bin if self._inverse else 1.0 / math.sqrt(self._bin)
        greedy: int | None = None
        if self.counts.any():
            goodput = self.means * self.counts / (self.counts + _IMAGINED_ROUNDS)
            loss = np.full(arms, np.inf)
            np.divide(1.0, goodput, out=loss, where=goodput > 0)
            greedy = int(np.argmin(loss + switch_cost))
        if greedy is None or random.random() < exploring:
            arm = int(random.integers(arms))
        else:
            arm = greedy
        share = 1.0 if greedy is None else exploring
        self.probability = share / arms + (1.0 - share) * (arm == greedy)
        return arm


class NightjarPolicy(StatelessPolicy):
    """Policy with a bandit over K for each pair of batch sizes.

    Attributes:
        contexts: bandit of each pair of batch sizes.
    """

    name: ClassVar[str] = "nightjar"
    summary: ClassVar[str] = "bandit over K by batch size with a switching cost (Nightjar)"
    Options: ClassVar[type[msgspec.Struct]] = NightjarOptions
    provenance: ClassVar[Provenance] = Provenance(
        source="2512.22420; ADABinGreedy of the released vLLM 0.8.2 fork",
        granularity=Level.UNIFORM,
        faults="unrelated arms and batch sizes; stationary means; explores for ever",
    )

    def __init__(self, options: NightjarOptions, *, seed: int = 0) -> None:
        self._options = options
        self._random = np.random.default_rng(seed)
        self._rounds = BatchRounds(cold=options.cold)
        self._arms: tuple[int, ...] = ()
        self.contexts: dict[int, BinGreedy] = {}
        self._last_k: int | None = None
        self._pending: int | None = None
        self._behind = integers(0)

    def plan(self, context: StepContext) -> SpecPlan:
        """Plan the arm of this batch size's bin; a deeper arm is drafted for first."""
        if not self._arms:
            self._arms = context.capability.uniform_values
        if context.batch_size == 0:
            k = context.engine_k if self._last_k is None else self._last_k
            return self._rounds.this_round(context, k, f"K = {k}, no requests")
        if self._pending is not None:
            k, self._pending, probability = self._pending, None, 1.0
        else:
            bandit = self._bandit(context.batch_size)
            k = self._arms[bandit.select(self._switch_cost(context), self._random)]
            probability = bandit.probability
            if not self._rounds.prepared(context, k):
                self._pending = k
        self._last_k = k
        plan = self._rounds.this_round(context, k, f"arm {k}")
        propensity = np.full(context.batch_size, probability)
        return msgspec.structs.replace(plan, propensity=propensity)

    def observe(self, step: FinishedStep) -> None:
        """Reward the arm that ran with tokens per request and second."""
        outcome = step.outcome
        if outcome.draft_depth > 0:
            self._behind.reset(outcome.slots)
        else:
            self._behind[outcome.slots] += outcome.emitted
        k = step.plan.memo
        if k is None or k not in self._arms or not outcome.seconds > 0.0:
            return
        reward = float(outcome.emitted.sum()) / outcome.batch_size / outcome.seconds
        self._bandit(outcome.batch_size).record(self._arms.index(k), reward)

    def forget(self, slots: IntArray) -> None:
        """Reset these slots."""
        self._behind.reset(slots)

    def _bandit(self, batch_size: int) -> BinGreedy:
        return self._of_pair(min((batch_size - 1) // _PAIR, self._options.max_contexts - 1))

    def _of_pair(self, pair: int) -> BinGreedy:
        bandit = self.contexts.get(pair)
        if bandit is None:
            inverse = self._options.exploration == "inverse"
            bandit = self.contexts[pair] = BinGreedy(len(self._arms), inverse=inverse)
        return bandit

    def _switch_cost(self, context: StepContext) -> FloatArray:
        """Return [arms] C_switch / K where speculation was off until now."""
        arms = np.array(self._arms, dtype=np.float64)
        cost = np.zeros(len(arms))
        if self._last_k == 0:
            behind = int(self._behind[context.slots].max())
            seconds = self._options.switch_seconds
            seconds += self._options.switch_seconds_per_token * behind * context.batch_size
            np.divide(seconds, arms, out=cost, where=arms > 0)
        return cost
