"""What a larger Kmax is said to give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from adaptive_spec.engines.kmax_advice import kmax_advice
from adaptive_spec.policies.acceptance.model import AcceptanceModel


def learned(kmax: int, hazard: float, rounds: int = 60) -> dict[str, Any]:
    """A policy's state after it has verified Kmax drafts of 16 requests again and again."""
    model, draw = AcceptanceModel(kmax), np.random.default_rng(1)
    slots, verified = np.arange(16), np.full(16, kmax)
    for _ in range(rounds):
        kept = np.cumprod(draw.random((kmax, 16)) < hazard, axis=0).sum(axis=0)
        model.learn(slots, verified, kept)
    return {"schema": 1, "acceptance": model.state(), "profile": None}


def test_without_a_measurement_a_small_kmax_can_be_raised_at_a_stated_cost() -> None:
    said = kmax_advice(1, 256)
    assert "Kmax 1 can be raised" in said
    assert "num_speculative_tokens 4" in said
    assert "3 more KV tokens per running request (at most 768)" in said


def test_a_recurrent_state_is_part_of_the_cost() -> None:
    assert "copies of the recurrent state" in kmax_advice(1, 256, recurrent=True)
    assert "recurrent" not in kmax_advice(1, 256)


def test_without_a_measurement_nothing_is_said_of_a_large_kmax() -> None:
    assert kmax_advice(6, 256) == ""


def test_high_survival_asks_for_more_drafts() -> None:
    said = kmax_advice(3, 8, learned(3, 0.9))
    assert 0.6 < float(said.split("draft 3 is ")[1].split(",")[0]) < 0.8
    deeper = int(said.split("num_speculative_tokens ")[1].split()[0])
    assert 8 <= deeper <= 11  # 0.9 ** 11 = 0.31


def test_low_survival_does_not() -> None:
    assert kmax_advice(3, 8, learned(3, 0.5)).endswith("a larger Kmax would gain little")


@pytest.mark.parametrize(
    "state",
    [learned(3, 0.9, rounds=2), learned(2, 0.9), {"acceptance": {"position_effect": []}}, {"a": 1}],
    ids=["too few observations", "another Kmax", "incomplete", "of another policy"],
)
def test_a_state_that_measured_nothing_of_the_last_draft_is_not_used(state: Any) -> None:
    assert kmax_advice(3, 8, state) == kmax_advice(3, 8)
