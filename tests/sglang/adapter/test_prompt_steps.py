"""Batches of prompts between decode steps, and what a decode step counts for them."""

from __future__ import annotations

import random

import pytest

from adaptive_spec.adapters.sglang.prompt_steps import PromptSteps
from adaptive_spec.engines.step_clock import StepClock

FIXED, EACH = 0.007, 2e-5
"""Seconds of a batch of prompts, and of each of its tokens."""


def after(steps: int, prompts: list[int], pause: float = 0.0) -> tuple[PromptSteps, float]:
    """So many decode steps of 10 ms; before each, prompts as listed in turn, none for a 0."""
    chance, clock, now, counted = random.Random(1), StepClock(), 100.0, 0.0
    found = PromptSteps(clock)
    for step in range(steps):
        if count := prompts[step % len(prompts)]:
            now += pause
            tokens = count * chance.randint(200, 900)
            found.launched(now, under_way=0)
            now += FIXED + EACH * tokens
            found.ran(now, count, tokens)
        not_before = clock.launched(now, under_way=0)
        now += 0.010
        clock.completed(not_before, now)
        counted = found.decoded()
    return found, counted


def test_the_fixed_time_of_a_batch_is_told_from_that_of_its_tokens() -> None:
    assert after(200, [1, 3, 2])[0].fixed_seconds == pytest.approx(FIXED, rel=0.01)


def test_a_step_counts_the_fixed_time_that_prompts_share() -> None:
    assert after(300, [3])[1] == pytest.approx(FIXED, rel=0.02)
    assert after(300, [0, 3])[1] == pytest.approx(FIXED / 2, rel=0.05)


def test_a_prompt_by_itself_costs_the_same_whatever_k_is() -> None:
    assert after(300, [1])[1] == 0.0


def test_a_pause_is_no_time_of_prompts() -> None:
    assert after(200, [2, 3], pause=60.0)[0].fixed_seconds == pytest.approx(FIXED, rel=0.01)


def test_batches_of_one_size_tell_nothing_of_their_fixed_time() -> None:
    clock = StepClock()
    found = PromptSteps(clock)
    for step in range(50):
        found.launched(step * 0.01, under_way=0)
        found.ran(step * 0.01 + 0.008, 2, 100)
        found.decoded()
    assert found.fixed_seconds == 0.0
