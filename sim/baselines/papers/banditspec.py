"""Baselines: BanditSpec, UCB and EXP3 over lengths.

Source: Hou et al., 2505.15141 (ICML 2025), UCBSpec and EXP3Spec, and its code (sail-sg/BanditSpec,
`ucb_length_spec_generate` in generate_utils.py), which has UCB only. Granularity: one K per
batch. Signals: tokens and seconds of a round.

A generation is a batch that runs to its end; the bandit starts anew with each. Continuous batching
has no such batches, so a generation ends here when its requests have emitted `generation_tokens`
(256, upstream's max_gen_len) each on average; 0: never. Arms are K = 1..4.

`banditspec_ucb`: the arms in turn for the first 2 n - 1 rounds, then

    argmax_K  mean(K) + sqrt(6 ln t / n_rounds)

mean(K) is tokens per second of the rounds with K, n_rounds the number of rounds of all arms
together.

`banditspec_exp3`: P(K) proportional to exp(-eta_t L(K)), eta_t = sqrt(ln n / (n t)), L(K) the sum
of losses over their probabilities, loss = 1 - tokens per request / (largest K + 1): the paper's
objective is the number of rounds. Known from the paper's abstract and published notes, so the
constants are those of the textbook (Bubeck and Cesa-Bianchi, 2012, section 3.1).

Faults kept, and their correction by `corrected: true`:

* UCB: the bonus uses the count of all arms, so it is equal for all and nothing is explored after
  the first rounds. Corrected: the arm's own count.
* UCB: the bonus has no unit, the means are tokens per second. Corrected: means relative to the
  best.
* EXP3: the loss ignores the time of a round, and a longer K never emits less. Corrected: the loss
  is 1 - tokens per second over the best seen.
* Both: K = 0 is no arm, load is ignored, arms are unrelated, and each generation starts afresh.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Annotated, ClassVar, NamedTuple

import msgspec
import numpy as np

from adaptive_spec.policy import Provenance
from adaptive_spec.policy_helpers import StatelessPolicy, nearest_allowed
from adaptive_spec.sim.baselines.parts.batch_rounds import BatchRounds
from adaptive_spec.step import FinishedStep, FloatArray, Level, SpecPlan, StepContext

_SOURCE = "2505.15141; sail-sg/BanditSpec, generate_utils.py"

NonNegative = Annotated[int, msgspec.Meta(ge=0)]


class BanditSpecOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of both bandits."""

    arms: Annotated[tuple[NonNegative, ...], msgspec.Meta(min_length=1)] = (1, 2, 3, 4)
    """Candidate K."""
    generation_tokens: NonNegative = 256
    """Tokens per request after which the bandit is reset; 0: never."""
    corrected: bool = False


class BanditSpecUcbOptions(
    BanditSpecOptions, frozen=True, forbid_unknown_fields=True, kw_only=True
):
    """Options of `banditspec_ucb`."""

    exploration_weight: Annotated[float, msgspec.Meta(ge=0)] = 6.0


class BanditSpecExp3Options(
    BanditSpecOptions, frozen=True, forbid_unknown_fields=True, kw_only=True
):
    """Options of `banditspec_exp3`."""


class _Chosen(NamedTuple):
    """Arm of a step, and its probability."""

    generation: int
    arm: int
    probability: float


class _BanditSpecPolicy(StatelessPolicy, ABC):
    """Rounds and generations; subclasses choose arms and record rewards.

    Attributes:
        round: rounds of this generation.
        emitted: tokens per request of this generation.
    """

    def __init__(self, options: BanditSpecOptions) -> None:
        self._settings = options
        self._rounds = BatchRounds()
        self._arms: tuple[int, ...] = ()
        self._pending: tuple[int, float] | None = None
        self._generation = 0
        self.round = 0
        self.emitted = 0.0

    def plan(self, context: StepContext) -> SpecPlan:
        """Plan the arm of this round; a deeper arm is drafted for first."""
        if not self._arms:
            self._start(context.capability.uniform_values)
        if context.batch_size == 0:
            k = self._arms[-1]
            return self._rounds.this_round(context, k, f"K = {k}, no requests")
        if self._pending is not None:
            (arm, probability), self._pending, propensity = self._pending, None, 1.0
        else:
            self.round += 1
            arm, probability = self._choose()
            propensity = probability
        k = self._arms[arm]
        chosen: _Chosen | None = None
        if self._rounds.prepared(context, k):
            chosen = _Chosen(self._generation, arm, probability)
        else:
            self._pending = (arm, probability)
        plan = self._rounds.this_round(context, k, f"arm {k} in round {self.round}")
        return msgspec.structs.replace(
            plan, propensity=np.full(context.batch_size, propensity), memo=chosen
        )

    def observe(self, step: FinishedStep) -> None:
        """Credit the arm that ran, and end the generation if it is complete."""
        outcome, chosen = step.outcome, step.plan.memo
        if outcome.batch_size == 0:
            return
        tokens = float(outcome.emitted.sum())
        current = isinstance(chosen, _Chosen) and chosen.generation == self._generation
        if current and outcome.seconds > 0.0:
            self._record(
                chosen.arm,
                chosen.probability,
                tokens / outcome.batch_size,
                tokens / outcome.seconds,
            )
        self.emitted += tokens / outcome.batch_size
        limit = self._settings.generation_tokens
        if limit and self.emitted >= limit:
            self._generation += 1
            self._restart()

    def _start(self, allowed: tuple[int, ...]) -> None:
        runnable = tuple(sorted({k for k in self._settings.arms if k in allowed}))
        self._arms = runnable or (nearest_allowed(min(self._settings.arms), allowed),)
        self._restart()

    def _restart(self) -> None:
        self.round = 0
        self.emitted = 0.0
        self._pending = None
        self._begin(len(self._arms))

    @abstractmethod
    def _begin(self, arms: int) -> None:
        """Start a generation with this number of arms."""

    @abstractmethod
    def _choose(self) -> tuple[int, float]:
        """Return the next arm and its probability."""

    @abstractmethod
    def _record(
        self, arm: int, probability: float, tokens_per_request: float, tokens_per_second: float
    ) -> None:
        """Record the result of an arm."""


class BanditSpecUcbPolicy(_BanditSpecPolicy):
    """UCBSpec as released: greedy by throughput after one turn through the arms."""

    name: ClassVar[str] = "banditspec_ucb"
    summary: ClassVar[str] = "UCB over K by throughput, anew every generation (BanditSpec)"
    Options: ClassVar[type[msgspec.Struct]] = BanditSpecUcbOptions
    provenance: ClassVar[Provenance] = Provenance(
        source=_SOURCE,
        granularity=Level.UNIFORM,
        faults="bonus over the total count, so no exploration; no K = 0; ignores load",
    )

    def __init__(self, options: BanditSpecUcbOptions, *, seed: int = 0) -> None:
        del seed
        super().__init__(options)
        self._weight = options.exploration_weight
        self.means: FloatArray = np.zeros(0)
        self.counts: FloatArray = np.zeros(0)

    def _begin(self, arms: int) -> None:
        self.means, self.counts = np.zeros(arms), np.zeros(arms)

    def _choose(self) -> tuple[int, float]:
        arms = len(self._arms)
        if self.round < 2 * arms:
            return (self.round - 1) % arms, 1.0
        evidence: FloatArray = np.full(arms, max(self.counts.sum(), 1.0))
        means = self.means
        if self._settings.corrected:
            if not self.counts.all():
                return int(np.argmin(self.counts)), 1.0
            evidence, means = self.counts, means / means.max()
        bonus = np.sqrt(self._weight * math.log(self.round) / evidence)
        return int(np.argmax(means + bonus)), 1.0

    def _record(
        self, arm: int, probability: float, tokens_per_request: float, tokens_per_second: float
    ) -> None:
        self.counts[arm] += 1
        self.means[arm] += (tokens_per_second - self.means[arm]) / self.counts[arm]


class BanditSpecExp3Policy(_BanditSpecPolicy):
    """EXP3Spec: exponential weights over importance-weighted losses."""

    name: ClassVar[str] = "banditspec_exp3"
    summary: ClassVar[str] = "EXP3 over K by accepted tokens, anew every generation (BanditSpec)"
    Options: ClassVar[type[msgspec.Struct]] = BanditSpecExp3Options
    provenance: ClassVar[Provenance] = Provenance(
        source="2505.15141, EXP3Spec; constants of the textbook",
        granularity=Level.UNIFORM,
        faults="loss without time, so the longest K wins; no K = 0; ignores load",
    )

    def __init__(self, options: BanditSpecExp3Options, *, seed: int = 0) -> None:
        super().__init__(options)
        self._random = np.random.default_rng(seed)
        self.losses: FloatArray = np.zeros(0)
        self._best = 0.0

    def _begin(self, arms: int) -> None:
        self.losses = np.zeros(arms)
        self._best = 0.0

    def _choose(self) -> tuple[int, float]:
        arms = len(self._arms)
        rate = math.sqrt(math.log(arms) / (arms * self.round))
        weights = np.exp(-rate * (self.losses - self.losses.min()))
        probabilities = weights / weights.sum()
        arm = int(self._random.choice(arms, p=probabilities))
        return arm, float(probabilities[arm])

    def _record(
        self, arm: int, probability: float, tokens_per_request: float, tokens_per_second: float
    ) -> None:
        if self._settings.corrected:
            self._best = max(self._best, tokens_per_second)
            loss = 1.0 - tokens_per_second / self._best
        else:
            loss = 1.0 - tokens_per_request / (self._arms[-1] + 1.0)
        self.losses[arm] += loss / probability
