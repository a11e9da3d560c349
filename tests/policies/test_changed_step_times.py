"""goodput finds the best K again after step times have changed, and soon after a cold start."""

import json
from typing import Any

import numpy as np
import pytest

from adaptive_spec.step import Capability, Level
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
