"""The first steps set the scale of what nothing has been measured of."""

from __future__ import annotations

import pytest

from adaptive_spec.policies.step_time.model import CostModel
from tests.measured_steps import FULL, step


def test_one_step_tells_that_deep_drafts_of_a_large_batch_are_dear() -> None:
    for batch, dear in ((256, True), (4, False)):
        model = CostModel(FULL)
        model.learn_step_time(step(batch, 0, 6, 0.02))
        verify = model.verify_seconds(batch, 100 * batch, 0)
        assert (verify[-1] > 4.0 * verify[0]) == dear
        assert dear or verify[-1] < 1.2 * verify[0]


def test_a_long_prompt_in_the_first_step_makes_no_unmeasured_draft_dear() -> None:
    model, slope = CostModel(FULL), 2e-5  # seconds of a token
    for n, prompt in enumerate((8000, *[0] * 60)):
        k = n % 3
        model.learn_step_time(step(64, k, k, 0.009 + slope * (64 * (1 + k) + prompt), prompt))
    verify = model.verify_seconds(64, 6400, 0)
    assert (verify[6 * 64] - verify[3 * 64]) / (3 * 64) < 3.0 * slope


def test_a_first_long_step_of_prompts_makes_no_draft_dear() -> None:
    """96 requests on an H200 with Mixtral: K = 2 takes 38 ms, and was expected to take 100."""
    model = CostModel(FULL)
    model.learn_step_time(step(47, 6, 6, 0.494, prefill=7863))
    model.learn_step_time(step(94, 1, 1, 0.0385, prefill=218))
    for n in range(200):
        k = 0 if n % 20 == 3 else 1
        model.learn_step_time(step(96, k, 1, 0.0313 + 0.001 * k))
    found = model.verify_seconds(96, 9600, 0)[::96] + model.draft_seconds(96)
    assert found[1] == pytest.approx(0.0323, rel=0.02)
    assert found[2] < 1.4 * found[1]
