"""Oracles: decisions that are known to be best only afterwards, the reference of regret.

* The best static K: every K from 0 to Kmax is run, 0 without any drafter.
* Foresight: K_i and D by the planner's objective, with the true acceptances in place of estimated
  ones and the true step times in place of learned ones. It maximises the goodput of each step, not
  that of the run, so a fixed K may now and then come out a little above it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import msgspec
import numpy as np

from adaptive_spec.policies.planning.planner import Admission
from adaptive_spec.policies.planning.shared_k import best_admission
from adaptive_spec.policies.static import StaticOptions, StaticPolicy
from adaptive_spec.policy_helpers import StatelessPolicy
from adaptive_spec.sim.engine.loop import Engine
from adaptive_spec.sim.engine.step_time import StepTime
from adaptive_spec.sim.hardware.validity import expected_error
from adaptive_spec.sim.results.result import Regret, Result
from adaptive_spec.sim.results.segments import Recovery, recovery_of
from adaptive_spec.sim.scenario import Scenario
from adaptive_spec.step import FloatArray, IntArray, Level, Mode, SpecPlan, StepContext


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
            recoveries=self._recoveries(result) if self.closed else [],
        )
        return msgspec.structs.replace(result, regret=regret)

    def _recoveries(self, result: Result) -> list[Recovery]:
        """Return the recovery from each change that every run has reached."""
        found = []
        for number, segment in enumerate(result.segments):
            if all(len(each.segments) > number for each in self.static):
                static = [each.segments[number] for each in self.static]
                recovery = recovery_of(segment, static)
                if recovery is not None:
                    found.append(recovery)
        return found


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


class ForesightPolicy(StatelessPolicy):
    """A policy that plans with the true acceptance and step times of a simulated engine."""

    name: ClassVar[str] = "foresight"
    summary: ClassVar[str] = "knows every acceptance beforehand (simulator only)"
    Options: ClassVar[type[msgspec.Struct]] = _Nothing

    def __init__(self) -> None:
        self._engine: Engine | None = None

    def attach(self, engine: Engine) -> None:
        """The engine it looks into."""
        self._engine = engine

    def plan(self, context: StepContext) -> SpecPlan:
        """K_i from what is accepted here, D from what is accepted where this step will end."""
        engine = self._engine
        assert engine is not None
        capability = context.capability
        if context.batch_size == 0:
            depth = capability.max_draft_tokens
            verify: IntArray = np.zeros(0, dtype=np.int64)
            return SpecPlan(
                step=context.step, verify=verify, draft_depth=depth, mode=Mode.ON, reason="prompts"
            )
        here = engine.batch.cursor
        right, available, from_lookup = engine.accepted.at(here), context.draft_available, None
        found = context.lookup_available
        copied = engine.accepted.agreed(engine.batch, found)
        if found is not None and copied is not None:  # the source with more that is right
            from_lookup = copied > np.minimum(right, available)
            right = np.where(from_lookup, copied, right)
            available = np.where(from_lookup, found, available)
        now = self._best(context, right, available)
        accepted = np.minimum(right, now.verify)
        # A request that ends here drafts for nothing; its next position does not matter.
        end = np.minimum(here + accepted + 1, engine.accepted.positions - 1)
        there, copied_there = engine.accepted.at(end), engine.accepted.copied_at(end)
        if copied_there is not None:  # the drafter need not draft where the look-up is as good
            there = np.where(copied_there >= there, 0, there)
        left = np.maximum(engine.batch.left - accepted - 1, 0)
        depth = self._best(context, there, np.minimum(context.draft_possible, left)).draft_depth
        return SpecPlan(
            step=context.step,
            verify=now.verify,
            draft_depth=depth,
            mode=Mode.ON,
            reason="foresight",
            from_lookup=from_lookup,
        )

    def _best(self, context: StepContext, accepted: IntArray, limit: IntArray) -> Admission:
        """The planner's choice where exactly these drafts are accepted."""
        assert self._engine is not None
        kmax = context.capability.max_draft_tokens
        survival = (np.arange(kmax)[:, None] < accepted).astype(np.float64)
        verify_seconds, draft_seconds = true_seconds(self._engine.step_time, context)
        return best_admission(
            survival,
            np.ones(context.batch_size),
            limit,
            limit,
            verify_seconds,
            draft_seconds,
            context.capability,
        )


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
