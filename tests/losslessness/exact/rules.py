"""Policies of the contract's table: each verifies what one rule says."""

from collections.abc import Callable
from typing import ClassVar

import msgspec
import numpy as np

from adaptive_spec.policies.static import StaticOptions, StaticPolicy
from adaptive_spec.policy import Provenance
from adaptive_spec.sim.baselines.parts.drafts import most_likely, survival_of
from adaptive_spec.step import (
    BoolArray,
    FinishedStep,
    FloatArray,
    IntArray,
    Mode,
    SpecPlan,
    StepContext,
)

Choice = Callable[[StepContext], BoolArray]
"""[B] requests that verify looked-up drafts."""
Rule = Callable[[FloatArray], object]
"""[B, Kmax] confidence, nan where nothing is known, -> B numbers K_i."""

_LEAST = 0.62
_VERIFY_SECONDS = (1.0, 1.02, 1.25, 1.30, 1.62)
"""Of a step of two requests, by drafts verified."""


class Planted(StaticPolicy):
    """Verifies what a rule says, or less where less is at hand."""

    name: ClassVar[str] = "planted"
    summary: ClassVar[str] = "a rule of a test"

    def __init__(self, rule: Rule) -> None:
        super().__init__(StaticOptions())
        self.rule = rule

    def plan(self, context: StepContext) -> SpecPlan:
        assert context.confidence is not None
        wanted = np.asarray(self.rule(context.confidence), dtype=np.int64)
        return self.planned(context, np.minimum(wanted, context.draft_available))

    def planned(self, context: StepContext, verify: IntArray) -> SpecPlan:
        depth = context.capability.max_draft_tokens
        return SpecPlan(
            step=context.step, verify=verify, draft_depth=depth, mode=Mode.ON, reason="planted"
        )


class Tetris(StaticPolicy):
    """Verifies the batch's likeliest drafts, Kmax - 1 for each request on average (2502.15197).

    TETRIS ranks by the probability of the drafted token. Here it ranks by what is shown.
    """

    name: ClassVar[str] = "tetris"
    summary: ClassVar[str] = "a fixed number of the batch's likeliest drafts"
    provenance: ClassVar[Provenance] = Provenance(
        source="TETRIS, arXiv 2502.15197", greedy_drafts_only=True
    )

    def plan(self, context: StepContext) -> SpecPlan:
        depth = context.capability.max_draft_tokens
        verify = np.minimum(depth - 1, context.draft_available)
        if context.confidence is not None:
            budget = context.batch_size * (depth - 1)
            verify = most_likely(survival_of(context.confidence), context.draft_available, budget)
        return SpecPlan(
            step=context.step, verify=verify, draft_depth=depth, mode=Mode.ON, reason="tetris"
        )


class ByEntropy(Planted):
    """The rule sees entropy in the place of confidence."""

    def plan(self, context: StepContext) -> SpecPlan:
        assert context.entropy is not None
        wanted = np.asarray(self.rule(context.entropy), dtype=np.int64)
        return self.planned(context, np.minimum(wanted, context.draft_available))


class ByHistory(Planted):
    """K_i from what finished rounds have shown: acceptance, wall clock, old confidences.

    Args:
        looks_at: `accepted`, `seconds` or `confidence`.
    """

    def __init__(self, looks_at: str) -> None:
        super().__init__(lambda confidence: confidence)
        self.looks_at = looks_at
        self.wanted = np.full(64, 2, dtype=np.int64)

    def plan(self, context: StepContext) -> SpecPlan:
        slots = context.slots
        verify = np.minimum(self.wanted[slots], context.draft_available)
        if self.looks_at == "confidence" and context.confidence is not None:
            # Of this round, at all depths, whether they are verified or not: for the next one.
            self.wanted[slots] = np.where(context.confidence.min(axis=1) > _LEAST, 2, 0)
        return self.planned(context, verify)

    def observe(self, step: FinishedStep) -> None:
        outcome = step.outcome
        if self.looks_at == "accepted":
            self.wanted[outcome.slots] = 2 - outcome.accepted
        if self.looks_at == "seconds":
            self.wanted[:] = 1 if outcome.seconds > 0.0225 else 2


class TwoSources(Planted):
    """All looked-up drafts where a choice says so, elsewhere those of the drafter.

    Args:
        choice: made in every round.
        rule: for the drafter's.
    """

    def __init__(self, choice: Choice, rule: Rule | None = None) -> None:
        super().__init__(rule or all_of_it)
        self.choice = choice

    def plan(self, context: StepContext) -> SpecPlan:
        assert context.lookup_available is not None
        copied, made = self.chosen(context), super().plan(context)
        verify = np.where(copied, context.lookup_available, made.verify)
        return msgspec.structs.replace(made, verify=verify, from_lookup=copied)

    def chosen(self, context: StepContext) -> BoolArray:
        return self.choice(context)


class WhoWasRight(TwoSources):
    """Looked-up drafts for requests of which the last round emitted none that was looked up."""

    def __init__(self) -> None:
        super().__init__(lambda context: np.zeros(context.batch_size, dtype=np.bool_))
        self.wrong = np.zeros(64, dtype=np.bool_)

    def chosen(self, context: StepContext) -> BoolArray:
        chosen: BoolArray = self.wrong[context.slots]
        return chosen

    def observe(self, step: FinishedStep) -> None:
        assert step.outcome.lookup_agreed is not None
        self.wrong[step.outcome.slots] = step.outcome.lookup_agreed == 0


# ------------------------------------------------------------------ rules on [2, 2] confidence


def leading(chosen: FloatArray | np.ndarray) -> IntArray:
    """[B] positions that are chosen in a row from the first."""
    count: IntArray = np.asarray(chosen).cumprod(axis=1).sum(axis=1).astype(np.int64)
    return count


def trim(confidence: FloatArray) -> IntArray:
    """While the position's value is high enough."""
    return leading(confidence >= _LEAST)


def trim_by_entropy(entropy: FloatArray) -> IntArray:
    """While entropy is low enough."""
    return leading(entropy <= 0.8)


def best_positions(values: FloatArray, number: int) -> list[tuple[int, int]]:
    """(request, position) of the highest values; ties to the shallower, then the earlier one."""
    found = [(-values[i, j], j, i) for i in range(2) for j in range(2)]
    return [(i, j) for _, j, i in sorted(found)[:number]]


def best_two(confidence: FloatArray) -> list[int]:
    """The two best by survival: a budget that nothing live decides."""
    return _counts(confidence.cumprod(axis=1), 2)


def best_two_by_hazard(confidence: FloatArray) -> list[int]:
    """The two best positions by hazard, and what lies before them."""
    k = [0, 0]
    for i, j in best_positions(confidence, 2):
        k[i] = max(k[i], j + 1)
    return k


def live_argmax(confidence: FloatArray) -> list[int]:
    """A budget that maximises goodput over live survival."""
    survival = confidence.cumprod(axis=1)
    return _counts(survival, int(np.argmax(_goodput(survival))))


def live_multiplier(confidence: FloatArray) -> IntArray:
    """The survival of the last draft of that budget as a threshold for all."""
    survival = confidence.cumprod(axis=1)
    budget = int(np.argmax(_goodput(survival)))
    least = np.sort(survival, axis=None)[::-1][budget - 1] if budget else np.inf
    return leading(survival >= least)


def live_first_fall(confidence: FloatArray) -> list[int]:
    """The best by survival until goodput falls (DSpark, arXiv 2607.05147, algorithm 1)."""
    survival = confidence.cumprod(axis=1)
    goodput = _goodput(survival)
    budget = 0
    while budget < 4 and goodput[budget + 1] > goodput[budget]:
        budget += 1
    return _counts(survival, budget)


def stale_multiplier(confidence: FloatArray) -> IntArray:
    """Survival above a threshold that is older than the round."""
    return leading(confidence.cumprod(axis=1) > 0.45)


def by_the_other(confidence: FloatArray) -> list[int]:
    """Each by the other's second position."""
    return [2 if other < 0.7 else 0 for other in confidence[::-1, 1]]


def one_way(confidence: FloatArray) -> list[int]:
    """The first request by the second's, all of which is verified."""
    return [2 if confidence[1, 1] < 0.7 else 0, 2]


def first_positions(confidence: FloatArray) -> list[int]:
    """By both first positions, known before anything is drawn."""
    return [2, 2] if confidence[:, 0].sum() > 1.3 else [1, 1]


def last_position(confidence: FloatArray) -> IntArray:
    """All or nothing by the last position."""
    return np.where(confidence[:, 1] > 0.6, 2, 0)


def least_sure_loses(confidence: FloatArray) -> IntArray:
    """A batch cut to a smaller graph: who is least sure at the last draft loses all (AdaSpec)."""
    last = confidence.prod(axis=1)
    return np.where(np.arange(2) == np.argmin(last), 0, 2)


def frontier_fill(confidence: FloatArray) -> list[int]:
    """Two slots of padding, each to the least certain of the positions that come next."""
    k = [0, 0]
    for _ in range(2):
        i = max((-abs(confidence[i, k[i]] - 0.6), i) for i in range(2) if k[i] < 2)[1]
        k[i] += 1
    return k


def global_fill(confidence: FloatArray) -> list[int]:
    """Padding to the least certain position anywhere, and what lies before it."""
    _, j, i = min((abs(confidence[i, j] - 0.6), j, i) for i in range(2) for j in range(2))
    k = [0, 0]
    k[i] = j + 1
    return k


def all_of_it(confidence: FloatArray) -> list[int]:
    """Whatever the engine would verify."""
    return [2] * len(confidence)


def _counts(survival: FloatArray, number: int) -> list[int]:
    k = [0, 0]
    for i, _ in best_positions(survival, number):
        k[i] += 1
    return k


def _goodput(survival: FloatArray) -> FloatArray:
    tokens = 2.0 + np.concatenate([[0.0], np.cumsum(np.sort(survival, axis=None)[::-1])])
    goodput: FloatArray = tokens / np.array(_VERIFY_SECONDS)
    return goodput
