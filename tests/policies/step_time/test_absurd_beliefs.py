"""A belief that cannot explain the steps it sees starts anew, whatever a file or an engine said."""

from __future__ import annotations

import math

import msgspec
import pytest

from adaptive_spec.policies.step_time.model import CostModel
from tests.measured_steps import FULL, step


def seconds(k: int) -> float:
    return 0.01 + 1e-4 * k


def learn(model: CostModel, steps: int) -> None:
    for n in range(steps):
        model.learn_step_time(step(8, n % 3, n % 3, seconds(n % 3)))


def knows(model: CostModel) -> bool:
    found = [model.predict(step(8, k, k, 1.0)) for k in range(3)]
    return found == pytest.approx([seconds(k) for k in range(3)], rel=0.1)


@pytest.mark.parametrize("wrong", [2.0, 100.0, 3500.0, -59.0])
def test_a_saved_mean_of_another_scale_is_given_up(wrong: float) -> None:
    model = CostModel(FULL)
    learn(model, 100)
    profile, saved = model.profile(), model.belief.saved()
    saved.mean[0] = wrong
    saved.check()
    again = CostModel(FULL, profile, saved)
    learn(again, 60)
    assert knows(again)


@pytest.mark.parametrize("wrong", [1e4, -1e4, 1e155, -1e200])
def test_a_saved_mean_beyond_any_step_is_refused(wrong: float) -> None:
    model = CostModel(FULL)
    learn(model, 100)
    saved = model.belief.saved()
    saved.mean[0] = wrong
    with pytest.raises(ValueError, match="more than 3600 s"):
        saved.check()


def test_an_impossible_number_of_tokens_raises_nothing_and_passes() -> None:
    model = CostModel(FULL)
    learn(model, 50)
    for _ in range(200):
        model.learn_step_time(msgspec.structs.replace(step(8, 1, 1, 0.01), batch_tokens=1 << 40))
        model.learn_step_time(msgspec.structs.replace(step(8, 1, 1, 0.01), context_tokens=1 << 62))
    assert math.isfinite(model.predict(step(8, 1, 1, 1.0)))
    learn(model, 60)
    assert knows(model)
