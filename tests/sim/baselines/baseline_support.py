"""Fake steps, a drive with confidence and a short simulation for the tests of baselines."""

import copy
import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from adaptive_spec import Capability, Level, build_policy
from adaptive_spec.controller.plan_validation import plan_fault
from adaptive_spec.controller.steps_in_flight import finished_step
from adaptive_spec.per_request import RequestSlots
from adaptive_spec.policy import Policy
from adaptive_spec.sim.engine.options import EngineOptions
from adaptive_spec.sim.policy_choice import PolicyChoice
from adaptive_spec.sim.result import Result
from adaptive_spec.sim.scenario import Scenario, simulate
from adaptive_spec.step import FinishedStep, Mode, SpecPlan, StepContext, StepOutcome
from tests import steps

KMAX = 5
LADDERS: dict[Level, Sequence[tuple[int, ...]]] = {
    Level.UNIFORM: ((), (0, 1, 3, 5), (1, 5), (0, 2)),
    Level.VERIFY: ((),),
    Level.FULL: ((),),
}

build_baseline = functools.partial(build_policy, baselines=True)
"""Build a baseline, or any policy, from its name and options."""


def make(name: str, **options: Any) -> Policy:
    """A policy by name, of a fixed seed."""
    return build_baseline(name, options, seed=3)


def context(batch: int = 1, **changes: Any) -> StepContext:
    """A step of `batch` requests with five drafts at hand and no signal."""
    for signal in ("confidence", "entropy"):
        if changes.get(signal) is not None:
            changes[signal] = np.array(changes[signal], dtype=np.float64)
    return steps.context(batch, changes.pop("capability", KMAX), **changes)


def outcome(verified: Sequence[int], accepted: Sequence[int], **changes: Any) -> StepOutcome:
    """The outcome of a step of these requests, in slots 0, 1, ..."""
    fields = {"draft_depth": KMAX, "ragged": False} | changes
    return steps.outcome(steps.context(len(verified), KMAX), verified, accepted, **fields)


def finished(
    verified: Sequence[int],
    accepted: Sequence[int],
    *,
    seen: StepContext | None = None,
    plan: SpecPlan | None = None,
    **changes: Any,
) -> FinishedStep:
    """The same as a finished step of `seen` and `plan`; without them somebody else planned it."""
    ran = outcome(verified, accepted, **changes)
    if seen is None:
        seen = context(len(ran.slots), step=ran.step, slots=ran.slots)
    if plan is None:
        plan = SpecPlan(
            step=ran.step, verify=ran.verified, draft_depth=KMAX, mode=Mode.ENGINE, reason=""
        )
    return finished_step(seen, plan, ran)


def profile_file(folder: Path, tokens: Sequence[int], seconds: Sequence[float]) -> str:
    """A cost profile of verifying alone; drafting is free."""
    file = folder / "profile.json"
    file.write_text(json.dumps({"tokens": list(tokens), "seconds": list(seconds)}))
    return str(file)


def dear_tokens(folder: Path) -> str:
    """Each verified token costs a tenth of a step of one."""
    return profile_file(folder, [1, 1001], [0.01, 1.01])


def staircase(folder: Path) -> str:
    """Time jumps at some sizes and is flat between them: whether a draft pays depends on others."""
    sizes = [1, 3, 4, 7, 8, 12, 13, 40]
    return profile_file(folder, sizes, [0.01, 0.01, 0.017, 0.017, 0.027, 0.027, 0.05, 0.09])


def check_with_signal(name: str, **options: Any) -> None:
    """Plans that can run, and the same ones again, when the drafter's signal is there."""
    for level, ladders in LADDERS.items():
        for ladder in ladders:
            capability = Capability(level=level, max_draft_tokens=KMAX, ladder=ladder)
            first = _drive(make(name, **options), capability)
            again = _drive(make(name, **options), capability)
            for one, other in zip(first, again, strict=True):
                assert one.verify.tolist() == other.verify.tolist()
                assert one.draft_depth == other.draft_depth


def _drive(policy: Policy, capability: Capability) -> list[SpecPlan]:
    """150 steps with confidence, of requests that come and go; outcomes are a step late."""
    random = np.random.default_rng(5)
    slots = RequestSlots()
    alive: list[str] = []
    waiting: list[FinishedStep] = []
    plans = []
    for step in range(150):
        while len(alive) < 2 + step % 4:
            alive.append(f"r{step}-{len(alive)}")
        batch = len(alive)
        confidence = random.random((batch, KMAX))
        confidence[0, 3:] = np.nan
        left = random.integers(0, KMAX + 2, batch)
        seen = context(
            batch,
            step=step,
            capability=capability,
            slots=np.array([slots.assign(each) for each in alive]),
            draft_available=np.minimum(left, capability.uniform_values[-1]),
            draft_possible=np.minimum(left, KMAX),
            confidence=confidence,
            entropy=-np.log(np.maximum(confidence, 1e-3)),
            prefill_tokens=64 * (step % 7 == 0),
        )
        plan = policy.plan(seen)
        assert not plan_fault(plan, seen), (capability, plan_fault(plan, seen))
        plans.append(plan)
        accepted = np.minimum(random.integers(0, KMAX + 1, batch), plan.verify)
        waiting.append(
            finished(
                plan.verify.tolist(),
                accepted.tolist(),
                seen=seen,
                plan=plan,
                step=step,
                slots=seen.slots,
                prefill_tokens=seen.prefill_tokens,
                draft_depth=plan.draft_depth,
                seconds=0.01 + 1e-3 * int(plan.verify.sum()),
            )
        )
        if len(waiting) > 1:
            policy.observe(waiting.pop(0))
        if step % 3 == 2:
            slot = slots.release(alive.pop(0))
            policy.forget(np.array([slot]))
    return plans


def simulated(
    name: str,
    *,
    level: Level = Level.FULL,
    auc: float | None = 0.85,
    concurrency: int = 4,
    drafter: str = "mtp",
    acceptance: str = "model:mixed",
    tokens: int = 2500,
    warmup_steps: int = 50,
    **options: Any,
) -> Result:
    """A short run on the shipped H100 profile; a plan that can't run fails the test."""
    scenario = Scenario(
        load=f"closed:{concurrency}",
        acceptance=(acceptance,),
        drafter=drafter,
        hardware="h100-llama-8b",
        engine=EngineOptions(level=level, max_draft_tokens=KMAX, delay=1),
        tokens=tokens,
        warmup_steps=warmup_steps,
        confidence_auc=auc,
    )
    result = simulate(scenario, PolicyChoice(name, name, options))
    assert result.fail_opens == 0
    return result


def stays_causal(policy: Policy, level: Level, ladder: tuple[int, ...] = ()) -> None:
    """What is said at a draft position never decides whether a shallower one is verified.

    Two worlds that differ in a request's signal from some position on (what follows from the token
    drafted before it) must agree on which of its drafts up to there are verified. On an engine with
    one K per batch the worlds differ for all requests.
    """
    random = np.random.default_rng(11)
    capability = Capability(level=level, max_draft_tokens=KMAX, ladder=ladder)
    for _ in range(150):
        batch = int(random.integers(1, 4))
        earlier = random.random((batch, KMAX))
        confidence = random.random((batch, KMAX))
        other = confidence.copy()
        changed = int(random.integers(1, KMAX))
        row = int(random.integers(batch)) if level is not Level.UNIFORM else slice(None)
        other[row, changed:] = random.random(other[row, changed:].shape)
        plans = []
        for world in (confidence, other):
            fresh = copy.deepcopy(policy)
            for step, signal in enumerate((earlier, world)):
                plan = fresh.plan(
                    context(
                        batch,
                        step=step,
                        capability=capability,
                        confidence=signal,
                        entropy=2.0 * (1.0 - signal),
                        draft_available=np.full(batch, capability.uniform_values[-1]),
                    )
                )
            plans.append(plan.verify)
        one, two = (np.atleast_1d(np.minimum(verify, changed)[row]) for verify in plans)
        assert one.tolist() == two.tolist()
