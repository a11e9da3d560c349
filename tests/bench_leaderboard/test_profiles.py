"""Baselines that profile their engine at start-up get what the simulator charges."""

from __future__ import annotations

import pytest

from adaptive_spec.sim.drafters.registry import drafter
from adaptive_spec.sim.engine.step_time import StepTime
from adaptive_spec.sim.hardware.registry import hardware
from benchmarks.leaderboard.tune import cost_profile

REQUESTS, CONTEXTS = 64, 64 * 1024


@pytest.mark.parametrize("machine", ["h100-llama-8b", "l40s-llama-8b"])
def test_a_profile_prices_what_context_costs_more_in_steps_with_drafts(machine: str) -> None:
    step = StepTime(hardware(machine), drafter("eagle"), 0.0)
    without, with_drafts = (
        step.verify(REQUESTS, 2 * REQUESTS, CONTEXTS, 0, 0, any_draft=any_draft, ragged=False)
        for any_draft in (False, True)
    )
    profile = cost_profile(machine, "eagle", 6)
    priced = (
        profile.any_draft
        + profile.any_draft_per_request * REQUESTS
        + profile.any_draft_per_context_token * CONTEXTS
    )
    assert priced == pytest.approx(with_drafts - without)
