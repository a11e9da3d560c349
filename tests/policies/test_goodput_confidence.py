"""goodput uses the drafter's confidence where there is one, and loses nothing without."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from adaptive_spec import Level, build_policy
from adaptive_spec.sim.options import EngineOptions
from adaptive_spec.sim.scenario import Scenario
from adaptive_spec.values import DraftPass, SpecPlan, StepContext


def scenario(concurrency: int, auc: float | None = 0.85, **engine: Any) -> Scenario:
    return Scenario(
        load=f"closed:{concurrency}",
        acceptance=("model:mixed",),
        drafter="eagle",
        hardware="h100-llama-8b",
        engine=EngineOptions(max_draft_tokens=6, **engine),
        seed=1,
        tokens=1500 * concurrency + 2000,
        warmup_steps=300,
        confidence_auc=auc,
    )


def throughput(setting: Scenario, **options: Any) -> float:
    result = setting.run(build_policy("goodput", options, seed=1), "goodput")
    assert result.fail_opens == 0
    return result.throughput_tok_s


@pytest.mark.parametrize(
    ("concurrency", "gain"),
    [(1, 1.02), (128, 1.005)],
)
def test_confidence_gains_where_the_engine_asks_while_drafting(
    concurrency: int, gain: float
) -> None:
    setting = scenario(concurrency)
    assert throughput(setting) > gain * throughput(setting, confidence=False)


@pytest.mark.parametrize(
    ("options", "gain"),
    # At level VERIFY all Kmax drafts are made in every step, whatever comes of them.
    [({"stops_drafting": False}, 1.01), ({"level": Level.VERIFY}, 1.003)],
)
def test_it_gains_by_trimming_what_was_drafted(options: dict[str, Any], gain: float) -> None:
    setting = scenario(128, **options)
    assert throughput(setting) > gain * throughput(setting, confidence=False)


def test_a_signal_that_tells_nothing_costs_next_to_nothing() -> None:
    setting = scenario(16, auc=0.5)
    assert throughput(setting) > 0.985 * throughput(setting, confidence=False)


def test_admission_never_depends_on_what_lies_deeper() -> None:
    """Two worlds: the same until a position, then different; the position's fate is the same."""
    setting = scenario(8)
    engine = setting.engine_for(policy := build_policy("goodput", {}, seed=1))
    seen: list[DraftPass] = []
    ask = policy.after_draft_pass  # type: ignore[attr-defined]

    def remember(draft: DraftPass) -> Any:
        seen.append(draft)
        return ask(draft)

    policy.after_draft_pass = remember  # type: ignore[attr-defined]
    setting.run_engine(engine, "goodput")
    assert len({draft.position for draft in seen}) > 2
    assert all(draft.confidence.shape[1] == draft.position + 1 for draft in seen)


def test_trimming_keeps_prefixes_and_its_depth_does_not_look_at_live_confidence() -> None:
    """The draft depth of a step is the same whatever the drafts at hand show."""
    setting = scenario(32, stops_drafting=False)
    plans: dict[str, list[SpecPlan]] = {"as it was": [], "changed": []}
    for world, found in plans.items():
        policy = build_policy("goodput", {}, seed=1)
        engine = setting.engine_for(policy)
        plan = policy.plan

        def changed(
            context: StepContext,
            plan: Any = plan,
            world: str = world,
            found: list[SpecPlan] = found,
        ) -> SpecPlan:
            if context.step == 700 and world == "changed" and context.confidence is not None:
                context.confidence[:] = np.where(np.isnan(context.confidence), np.nan, 0.02)
            decided: SpecPlan = plan(context)
            if context.step == 700:
                found.append(decided)
            return decided

        policy.plan = changed  # type: ignore[method-assign]
        setting.run_engine(engine, "goodput")
    (one,), (other,) = plans.values()
    assert one.draft_depth == other.draft_depth
    assert other.verify.sum() < one.verify.sum()
