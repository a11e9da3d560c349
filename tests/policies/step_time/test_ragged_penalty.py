"""The extra time of steps whose K differ is learned, whatever is wrong with the prediction."""

from __future__ import annotations

import numpy as np
import pytest

from adaptive_spec.policies.step_time.model import CostModel, RaggedPenalty
from adaptive_spec.step import Capability, Level
from tests import steps


def learned(true: float, *, prior: float, steps: int = 900, bias: float = 0.0) -> float:
    """What is learned where ragged steps take `true` longer, and all steps `bias`."""
    draw = np.random.default_rng(3)
    penalty = RaggedPenalty(prior)
    for step in range(steps):
        ragged = step % 3 > 0
        factor = (1.0 + bias) * (1.0 + true * ragged) * (1.0 + 0.02 * draw.standard_normal())
        penalty.add_step(factor, 1.0, ragged=ragged)
    return penalty.value


@pytest.mark.parametrize("true", [0.0, 0.05, 0.2])
@pytest.mark.parametrize("bias", [-0.1, 0.0, 0.1])
def test_the_penalty_is_found_whatever_all_predictions_miss_by(true: float, bias: float) -> None:
    assert learned(true, prior=0.02, bias=bias) == pytest.approx(true, abs=0.03)


def test_nothing_measured_leaves_the_prior() -> None:
    assert RaggedPenalty(0.02).value == 0.02


def test_an_engine_without_a_penalty_learns_none() -> None:
    assert learned(0.2, prior=0.0) == 0.0


def test_one_kind_of_steps_alone_says_nothing() -> None:
    penalty = RaggedPenalty(0.02)
    for _ in range(100):
        penalty.add_step(2.0, 1.0, ragged=True)
    assert penalty.value == 0.02


def test_an_error_of_the_prediction_at_one_load_is_no_penalty() -> None:
    penalty = RaggedPenalty(0.02)
    for _ in range(200):  # as many requests at the same K, and many more whose K differ
        penalty.add_step(1.0, 1.0, ragged=False, load=(2, 1))
        penalty.add_step(1.1, 1.0, ragged=True, load=(6, 4))
    assert penalty.value == 0.02


def test_loads_with_both_kinds_of_steps_are_compared() -> None:
    penalty = RaggedPenalty(0.02)
    for step in range(600):
        load, miss = ((2, 1), 1.0) if step % 3 else ((6, 4), 1.1)
        ragged = step % 5 > 1
        penalty.add_step(miss * (1.05 if ragged else 1.0), 1.0, ragged=ragged, load=load)
    assert penalty.value == pytest.approx(0.05, abs=0.01)


def test_a_stalled_step_moves_little() -> None:
    penalty = RaggedPenalty(0.02)
    for step in range(128):
        penalty.add_step(1.0, 1.0, ragged=bool(step % 2))
    before = penalty.value
    penalty.add_step(100.0, 1.0, ragged=True)
    assert penalty.value - before <= 0.01


def test_it_is_never_negative() -> None:
    assert learned(-0.1, prior=0.02) == 0.0


def test_the_cost_model_learns_it_beside_the_step_times() -> None:
    capability = Capability(level=Level.FULL, max_draft_tokens=4, ragged_penalty=0.02)
    cost = CostModel(capability)
    draw = np.random.default_rng(5)
    for step in range(600):
        k, batch, ragged = int(draw.integers(1, 4)), 8, bool(step % 2)
        tokens = batch * (1 + k)
        seconds = (0.010 + 1e-4 * tokens) * (1.1 if ragged else 1.0) + 1e-3 * k
        cost.learn_step_time(
            steps.outcome(
                steps.context(batch, 4, step=step),
                k,
                ragged=ragged,
                seconds=seconds * (1.0 + 0.01 * draw.standard_normal()),
            )
        )
    assert cost.ragged_penalty == pytest.approx(0.1, abs=0.03)
