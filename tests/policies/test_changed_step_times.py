"""goodput finds the best K again after step times have changed, and soon after a cold start."""

import json
from typing import Any

import msgspec
import numpy as np
import pytest

from adaptive_spec.step import Capability, FinishedStep, IntArray, Level, SpecPlan, StepContext
from benchmarks.changes import GPUS, ISSUE, change, goodput
from benchmarks.policy_loop import World, run

DEAR_TOKENS = ISSUE._replace(token=30 * ISSUE.token)
DEAR_PASSES = ISSUE._replace(draft=30 * ISSUE.draft)


@pytest.mark.parametrize(
    ("batch", "old", "new"),
    [
        (4, ISSUE, ISSUE._replace(token=0.003, draft=0.001)),
        (4, DEAR_TOKENS, ISSUE),
        (64, ISSUE, ISSUE._replace(fixed=0.3)),
        (1, ISSUE, DEAR_PASSES),
        (64, DEAR_TOKENS, ISSUE),  # from no speculation back to some
        (256, ISSUE, ISSUE._replace(fixed=ISSUE.fixed / 30)),  # a sixth less with drafts
    ],
)
def test_the_new_best_k_is_found_within_200_steps(batch: int, old: World, new: World) -> None:
    found: dict[str, Any] = change(batch, old, new, seed=0)
    assert found["before"] >= 0.97
    assert found["after 200"] >= 0.97


class WithoutPass(World):
    """A world whose drafter does nothing where nothing is drafted."""

    def seconds(self, tokens: int, depth: int) -> float:
        return self.fixed + self.token * tokens + self.draft * depth


@pytest.mark.slow
def test_passes_that_became_cheap_are_timed_once_some_run() -> None:
    old = WithoutPass(*DEAR_PASSES)
    new, then = old._replace(draft=ISSUE.draft), 800
    cold = Capability(level=Level.FULL, max_draft_tokens=6, off_pass=False, cold_off=True)
    trace = run(
        goodput(0), lambda step: old if step < then else new, lambda _: 16, then + 1000, 0, cold
    )
    assert (old.best(16)[1], new.best(16)[1]) == (0, 4)
    assert trace.score(then - 200, then) >= 0.97
    assert trace.score(then + 600, then + 1000) >= 0.99


class OneCopies:
    """`goodput` with a second source: one request always has a copied draft; prompts come often."""

    def __init__(self, seed: int) -> None:
        self._policy = goodput(seed)
        self.name = self._policy.name

    def plan(self, context: StepContext) -> SpecPlan:
        return self._policy.plan(self._seen(context))

    def observe(self, step: FinishedStep) -> None:
        context = self._seen(step.context)
        outcome = msgspec.structs.replace(step.outcome, lookup_agreed=context.lookup_available)
        self._policy.observe(FinishedStep(context, step.plan, outcome))

    def forget(self, slots: IntArray) -> None:
        self._policy.forget(slots)

    def _seen(self, context: StepContext) -> StepContext:
        copied = (np.arange(context.batch_size) == 0).astype(np.int64)
        prompts = int(context.step % 8 == 0)
        return msgspec.structs.replace(
            context, lookup_available=copied, lookup_match=8 * copied, prefill_tokens=prompts
        )


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, pytest.param(10, marks=pytest.mark.long)])
def test_a_probe_beside_copied_drafts_notices_that_passes_became_cheap(seed: int) -> None:
    old = WithoutPass(*DEAR_PASSES)
    new, then = old._replace(draft=ISSUE.draft), 800
    cold = Capability(level=Level.FULL, max_draft_tokens=6, off_pass=False, cold_off=True)
    policy: Any = OneCopies(0)
    trace = run(policy, lambda step: old if step < then else new, lambda _: 16, 2800, seed, cold)
    assert trace.score(2000, 2800) >= 0.97


@pytest.mark.long
def test_a_gain_too_small_for_one_probe_to_show_is_found_over_several() -> None:
    old, then = WithoutPass(0.0071, 2.1e-5, 5.3e-4, hazard=0.02), 800
    new = old._replace(hazard=0.15)  # 3 % at K = 1
    cold = Capability(level=Level.FULL, max_draft_tokens=6, off_pass=False, cold_off=True)
    world_at = {False: old, True: new}
    trace = run(goodput(0), lambda step: world_at[step >= then], lambda _: 16, 7000, 0, cold)
    assert trace.score(then, 7000) >= 0.98


def test_an_untimed_draft_is_not_taken_for_the_best() -> None:
    world = GPUS["H100, 8B, poor drafts"]
    assert world.best(128)[1] == 1
    assert run(goodput(0), lambda _: world, lambda _: 128, 300, 0).score(100, 300) >= 0.99


@pytest.mark.slow
def test_where_little_is_gained_k_0_is_timed_now_and_then() -> None:
    world = GPUS["H100, 8B, poor drafts"]
    assert world.best(256)[1] == 1
    trace = run(goodput(0), lambda _: world, lambda _: 256, 1500, 0)
    assert 2 <= np.count_nonzero(trace.k[300:] == 0.0) <= 8
    good = GPUS["H100, 8B"]
    assert np.count_nonzero(run(goodput(0), lambda _: good, lambda _: 4, 900, 0).k[300:] == 0) <= 2


@pytest.mark.parametrize("batch", [64, 256])
@pytest.mark.parametrize("name", ["roofline, 70B", "CPU"])
def test_a_cold_start_loses_little_from_the_first_steps_on(name: str, batch: int) -> None:
    world = GPUS[name]
    policy = goodput(0)
    first = run(policy, lambda _: world, lambda _: batch, 300, 0)
    assert first.score(0, 300) >= 0.98
    assert first.worst(300) >= 0.95
    again = goodput(1)
    again.restore(json.loads(json.dumps(policy.state())))
    assert run(again, lambda _: world, lambda _: batch, 300, 1).score(0, 300) >= 0.985
