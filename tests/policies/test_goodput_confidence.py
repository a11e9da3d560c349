"""goodput uses the drafter's confidence where there is one, and loses nothing without."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from adaptive_spec import Level, build_policy
from adaptive_spec.sim.engine.options import EngineOptions
from adaptive_spec.sim.scenario import Scenario
from adaptive_spec.step import FinishedStep, SpecPlan, StepContext
from tests import steps


def scenario(concurrency: int, auc: float | None = 0.85, **engine: Any) -> Scenario:
    return Scenario(
        load=f"closed:{concurrency}",
        acceptance=("model:mixed",),
        drafter="eagle",
        hardware="h100-llama-8b",
        engine=EngineOptions(max_draft_tokens=6, **engine),
        seed=1,
        tokens=800 * concurrency + 2000,
        warmup_steps=300,
        confidence_auc=auc,
    )


def throughput(setting: Scenario, **options: Any) -> float:
    result = setting.run(build_policy("goodput", options, seed=1), "goodput")
    assert result.fail_opens == 0
    return result.throughput_tok_s


def history_only(setting: Scenario) -> float:
    return throughput(setting, confidence=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "gain"),
    # At level VERIFY all Kmax drafts are made in every step, whatever comes of them.
    [pytest.param({}, 1.01, marks=pytest.mark.long), ({"level": Level.VERIFY}, 1.01)],
)
def test_it_gains_by_trimming_what_was_drafted(options: dict[str, Any], gain: float) -> None:
    # Depths 1 and 2 are nearly alike here: which of them a run settles on differs by seed.
    settings = [msgspec.structs.replace(scenario(128, **options), seed=seed) for seed in range(2)]
    ratios = [throughput(setting) / history_only(setting) for setting in settings]
    assert np.mean(ratios) > gain
    assert min(ratios) > 0.99


@pytest.mark.slow
def test_a_signal_that_tells_nothing_costs_next_to_nothing() -> None:
    setting = scenario(16, auc=0.5)
    assert throughput(setting) > 0.985 * history_only(setting)


@pytest.mark.slow
def test_drafts_at_hand_change_what_is_verified_not_the_depth() -> None:
    setting = scenario(32)
    plans: dict[str, list[SpecPlan]] = {"as it was": [], "changed": []}
    for world, found in plans.items():
        policy: Any = build_policy("goodput", {}, seed=1)
        engine = setting.engine_for(policy)
        plan = policy.plan

        def changed(
            context: StepContext,
            plan: Any = plan,
            world: str = world,
            found: list[SpecPlan] = found,
        ) -> SpecPlan:
            if context.step == 703 and world == "changed" and context.confidence is not None:
                context.confidence[:] = np.where(np.isnan(context.confidence), np.nan, 0.02)
            decided: SpecPlan = plan(context)
            if context.step == 703:
                found.append(decided)
            return decided

        policy.plan = changed
        setting.run_engine(engine, "goodput")
    (one,), (other,) = plans.values()
    assert one.draft_depth == other.draft_depth
    assert other.verify.sum() < one.verify.sum()


def watched(signal: str, *, at_hand: bool = False) -> tuple[Any, list[SpecPlan]]:
    """A policy after 300 steps whose outcomes say what the drafter showed, and its plans.

    A draft is worth verifying if it is accepted about half of the time, as they are.

    Args:
        signal: what it tells.
        at_hand: it is also shown before the step is planned.
    """
    policy: Any = build_policy("goodput", {}, seed=1)
    random = np.random.default_rng(1)
    batch = 16
    plans = []
    for step in range(300):
        accepted = random.random((batch, 2)) < 0.5
        confidence: Any = np.where(
            accepted, random.beta(4, 2, (batch, 2)), random.beta(2, 4, (batch, 2))
        )
        if signal == "useless":
            confidence = np.random.default_rng(step).permuted(confidence)
        elif signal == "inverted":
            confidence = 1.0 - confidence
        elif signal == "none":
            confidence = None
        context = steps.context(
            batch,
            2,
            step=step,
            context_tokens=50,
            confidence=confidence if at_hand else None,
            now=0.1 * step,
        )
        plan = policy.plan(context)
        plans.append(plan)
        lengths = np.minimum(np.logical_and.accumulate(accepted, axis=1).sum(axis=1), plan.verify)
        outcome = steps.outcome(
            context,
            plan.verify,
            lengths,
            draft_depth=plan.draft_depth,
            ragged=False,
            seconds=0.1 + 0.0028 * int(plan.verify.sum()),
            now=0.1 * step + 0.1,
            confidence=confidence,
        )
        policy.observe(FinishedStep(context, plan, outcome))
    return policy, plans


def test_confidence_that_comes_with_the_outcome_is_learned_from() -> None:
    policy, _ = watched("telling")
    quality = policy.hazard_quality()
    assert quality["confidence"]["auc"] > quality["history"]["auc"] + 0.2


def changed_by(signal: str) -> int:
    """Plans that are not what they are without any signal."""
    _, without = watched("none")
    _, plans = watched(signal, at_hand=True)
    return sum(
        bool((plan.verify != other.verify).any()) or plan.draft_depth != other.draft_depth
        for plan, other in zip(plans, without, strict=True)
    )


def test_a_signal_that_points_the_wrong_way_gets_no_weight() -> None:
    """A plan can differ while the weight settles, and later ones then: drafts just break even."""
    policy, _ = watched("inverted", at_hand=True)
    assert policy.acceptance.weight < 0.05


def test_one_that_tells_changes_most_plans() -> None:
    assert changed_by("telling") > 150
