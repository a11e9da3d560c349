"""The part of the prompts' time that comes with every step."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from adaptive_spec.policies.planning.prompt_share import PromptShare
from tests.measured_steps import step


def served(steps: int, prompt: int, requests: int = 400) -> PromptShare:
    """Requests one after another, each with a prompt and so many steps that decode."""
    share = PromptShare()
    for n in range(requests):
        slot = np.array([n % 7])
        for turn in range(steps):
            ran = step(1, 0, 0, 0.01, prompt if turn == 0 else 0)
            share.add_step(msgspec.structs.replace(ran, slots=slot))
        share.ended(slot)
    return share


def test_the_prompts_of_answers_of_one_token_come_with_every_step() -> None:
    assert served(1, 300).tokens == pytest.approx(300.0, rel=0.02)


def test_the_prompts_of_long_answers_are_a_cost_per_token() -> None:
    assert served(200, 300).tokens < 0.05
    assert 0.0 < served(10, 300).tokens < 30.0


def test_prompts_of_steps_that_decode_nothing_count_with_the_next() -> None:
    share = PromptShare()
    for _ in range(400):
        share.add_step(msgspec.structs.replace(step(0, 0, 0, 0.01, 300), slots=np.arange(0)))
        assert share.recent
        share.add_step(step(1, 0, 0, 0.01))
        share.ended(np.array([0]))
    assert share.tokens == pytest.approx(300.0, rel=0.02)


def test_prompts_are_recent_for_eight_steps() -> None:
    share = served(1, 300, 10)
    found = []
    for _ in range(10):
        found.append(share.recent)
        share.add_step(step(1, 0, 0, 0.01))
    assert found == [True] * 8 + [False] * 2
