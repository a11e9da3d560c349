"""Batches of prompts between decode steps, and the seconds that a decode step counts for them."""

import math
import random

import pytest

from adaptive_spec.adapters.sglang.prompt_steps import PromptSteps
from adaptive_spec.engines.driver import StepClock

FIXED, EACH = 0.007, 2e-5
"""Seconds of a batch of prompts, and of each of its tokens."""


def after(steps: int, prompts: list[int], pause: float = 0.0) -> PromptSteps:
    """Decode steps of 10 ms; before each of them as many prompts as listed, in turn."""
    chance, clock, now = random.Random(1), StepClock(), 100.0
    found = PromptSteps(clock)
    for step in range(steps):
        if count := prompts[step % len(prompts)]:
            now += pause
            tokens = count * chance.randint(200, 900)
            found.launched(now, under_way=0)
            now += FIXED + EACH * tokens
            found.record(now, count, tokens)
        not_before = clock.launched(now, under_way=0)
        now += 0.010
        clock.completed(not_before, now)
        found.decoded()
    return found


def shared(prompts: float) -> float:
    """Seconds that a step counts, with this mean number of prompts behind each."""
    return FIXED * (1.0 - (1.0 + prompts) * math.exp(-prompts))


@pytest.mark.parametrize("prompts", [[3], [0, 3], [1, 3, 2]])
def test_a_step_counts_the_fixed_time_that_prompts_share(prompts: list[int]) -> None:
    mean = sum(prompts) / len(prompts)
    assert after(400, prompts).shared_seconds == pytest.approx(shared(mean), rel=0.03)


def test_rare_prompts_cost_the_same_whatever_k_is() -> None:
    assert after(600, [1, *[0] * 19]).shared_seconds < 0.002 * FIXED


def test_a_pause_is_no_time_of_prompts() -> None:
    assert after(400, [2, 3], pause=60.0).shared_seconds == pytest.approx(shared(2.5), rel=0.03)


def test_batches_of_one_size_tell_nothing_of_their_fixed_time() -> None:
    clock = StepClock()
    found = PromptSteps(clock)
    for step in range(50):
        found.launched(step * 0.01, under_way=0)
        found.record(step * 0.01 + 0.008, 2, 100)
        found.decoded()
    assert found.shared_seconds == 0.0
