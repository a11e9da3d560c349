"""Oracles: decisions that are known to be best only afterwards, the reference of regret.

* The best static K: every K from 0 to Kmax is run, 0 without any drafter.
* Foresight: K_i and D by the planner's objective, with the true acceptances in place of estimated
  ones and the true step times in place of learned ones. It maximises the goodput of each step, not
  that of the run, so a fixed K may now and then come out a little above it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import msgspec
import numpy as np

from adaptive_spec.policies.planning.planner import Admission, engine_of
from adaptive_spec.policies.planning.search import best_admission
from adaptive_spec.policies.static import StaticOptions, StaticPolicy
from adaptive_spec.policy_helpers import StatelessPolicy, fixed_plan
from adaptive_spec.sim.engine.loop import Engine
from adaptive_spec.sim.engine.step_time import StepTime
from adaptive_spec.sim.hardware.validity import expected_error
from adaptive_spec.sim.result import Regret, Result
from adaptive_spec.sim.scenario import Scenario
from adaptive_spec.step import BoolArray, FloatArray, IntArray, Level, Mode, SpecPlan, StepContext


class Oracles(msgspec.Struct, frozen=True):
    """Results of the oracles on one scenario.

    Attributes:
        closed: the load is a closed loop.
        static: [Kmax + 1] results of each fixed K; the first is true no speculation.
        foresight: result of knowing every acceptance; None if it was not run, for token trees,
            whose nodes are not a chain that the planner could cut, and with one K for the batch,
            where the best K of each step is not the best sequence of K and so no bound.
        model_error: see `Regret`.
    """

    closed: bool
    static: tuple[Result, ...]
    foresight: Result | None
    model_error: float | None = None

    @property
    def best_static_k(self) -> int:
        """The fixed K with the best score."""
        return int(np.argmax([each.score(closed=self.closed) for each in self.static]))

    def held_against(self, result: Result) -> Result:
        """Return the result with its regret; without one where nothing can be compared.

        That is so where no request ended, in an open load, or nothing was emitted.
        """
        score = result.score(closed=self.closed)
        best = self.best_static_k
        others = self.static if self.foresight is None else (*self.static, self.foresight)
        # A score that is not a number fails the comparison, too.
        if not all(each.score(closed=self.closed) > 0.0 for each in (result, *others)):
            return result

        def ratio(other: Result) -> float:
            return score / other.score(closed=self.closed)

        regret = Regret(
            best_static_k=best,
            of_best_static=ratio(self.static[best]),
            of_no_speculation=ratio(self.static[0]),
            of_foresight=None if self.foresight is None else ratio(self.foresight),
            model_error=self.model_error,
        )
        return msgspec.structs.replace(result, regret=regret)


def consult(
    scenario: Scenario, *, foresight: bool = True, progress: Callable[[], None] = lambda: None
) -> Oracles:
    """Run the oracles of a scenario: Kmax + 2 runs, one less without foresight.

    `progress` is called after each of Kmax + 2 parts.
    """
    scenario = msgspec.structs.replace(scenario, trace_directory=None)
    options = scenario.engine
    static = []
    for k in range(options.max_draft_tokens + 1):
        policy = StaticPolicy(StaticOptions(k=k))
        static.append(scenario.run(policy, f"static:k={k}"))
        progress()
    foreseen = foresee(scenario) if foresight else None
    progress()
    error, _ = expected_error(
        scenario.hardware,
        clients=max(each.most_batch for each in static),
        context=static[0].mean_context,
        k=options.max_draft_tokens,
    )
    return Oracles(scenario.closed, tuple(static), foreseen, error)


def foresee(scenario: Scenario) -> Result | None:
    """Run with foresight; None as in `Oracles`."""
    policy = ForesightPolicy()
    engine = scenario.engine_for(policy)
    if engine.accepted.is_tree or scenario.engine.level is Level.UNIFORM:
        return None
    policy.attach(engine)
    return scenario.run_engine(engine, "foresight")


class _Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No options."""


class StepOracle(StatelessPolicy, ABC):
    """A policy that plans each step with the true acceptance and step times."""

    name: ClassVar[str]
    Options: ClassVar[type[msgspec.Struct]] = _Nothing
    step_time: StepTime

    @abstractmethod
    def here(self, context: StepContext) -> tuple[IntArray, IntArray, BoolArray | None]:
        """Return drafts that are right and drafts there are [B], and which are copied."""

    @abstractmethod
    def there(self, context: StepContext, accepted: IntArray) -> tuple[IntArray, IntArray]:
        """Return drafts that are right where this step will end, and how many may be made."""

    def plan(self, context: StepContext) -> SpecPlan:
        """K_i from what is accepted here, D from what is accepted where this step will end."""
        if context.batch_size == 0:
            return fixed_plan(context, context.capability.max_draft_tokens, "prompts")
        right, available, from_lookup = self.here(context)
        now = self._best(context, right, available)
        next_ = self._best(context, *self.there(context, np.minimum(right, now.verify)))
        return SpecPlan(
            step=context.step,
            verify=now.verify,
            draft_depth=next_.draft_depth,
            mode=Mode.ON,
            reason=self.name,
            from_lookup=from_lookup,
        )

    def _best(self, context: StepContext, accepted: IntArray, limit: IntArray) -> Admission:
        """The planner's choice where exactly these drafts are accepted."""
        depths = np.arange(context.capability.max_draft_tokens)[:, None]
        survival = (depths < accepted).astype(np.float64)
        costs = *true_seconds(self.step_time, context), *engine_of(context.capability)
        base = float(context.batch_size)
        return Admission(*best_admission(survival, base, limit, limit, *costs))


class ForesightPolicy(StepOracle):
    """The oracle of a simulated engine."""

    name: ClassVar[str] = "foresight"
    summary: ClassVar[str] = "knows every acceptance beforehand (simulator only)"

    def attach(self, engine: Engine) -> None:
        """The engine it looks into."""
        self._engine, self.step_time = engine, engine.step_time

    def here(self, context: StepContext) -> tuple[IntArray, IntArray, BoolArray | None]:
        """Look at the present positions; of two sources, the one with more that is right."""
        engine, found = self._engine, context.lookup_available
        right, available = engine.accepted.at(engine.batch.cursor), context.draft_available
        copied = engine.accepted.agreed(engine.batch, found)
        if found is None or copied is None:
            return right, available, None
        from_lookup = copied > np.minimum(right, available)
        return (
            np.where(from_lookup, copied, right),
            np.where(from_lookup, found, available),
            from_lookup,
        )

    def there(self, context: StepContext, accepted: IntArray) -> tuple[IntArray, IntArray]:
        """Look at the next positions; a drafter need not draft where the look-up is as good."""
        engine = self._engine
        # A request that ends here drafts for nothing; its next position does not matter.
        end = np.minimum(engine.batch.cursor + accepted + 1, engine.accepted.positions - 1)
        right, copied = engine.accepted.at(end), engine.accepted.copied_at(end)
        if copied is not None:
            right = np.where(copied >= right, 0, right)
        left = np.maximum(engine.batch.left - accepted - 1, 0)
        return right, np.minimum(context.draft_possible, left)


def true_seconds(step_time: StepTime, context: StepContext) -> tuple[FloatArray, FloatArray]:
    """True verify time by drafts [B Kmax + 1] and drafting time by depth [Kmax + 1]."""
    batch_size, kmax = context.batch_size, context.capability.max_draft_tokens
    contexts = int(context.context_tokens.sum())
    verify = [
        step_time.verify(
            batch_size,
            batch_size + drafts,
            contexts,
            context.prefill_tokens,
            0,
            any_draft=drafts > 0,
            ragged=False,
        )
        for drafts in range(batch_size * kmax + 1)
    ]
    draft = [step_time.draft(batch_size, depth, contexts, cold=False) for depth in range(kmax + 1)]
    return np.array(verify), np.array(draft)
