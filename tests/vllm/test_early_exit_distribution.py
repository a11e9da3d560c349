"""Sampled output keeps its distribution where the draft loop ends early."""

from __future__ import annotations

from typing import Any

import pytest
from distributions import check_alike
from sampled_completions import ENGINE, sample
from stopping_policies import RANDOM

pytestmark = [pytest.mark.engine, pytest.mark.statistics, pytest.mark.long]

PROBABILISTIC = {"draft_sample_method": "probabilistic"}
SAMPLES_PER_PROMPT = 1536


@pytest.fixture(scope="module")
def unspeculated_samples(shelf: Any) -> list[list[tuple[int, ...]]]:
    return sample(shelf.get(**ENGINE), SAMPLES_PER_PROMPT)


@pytest.mark.parametrize("policy", ["stopping_policies:RandomStopper", "svip"])
def test_distribution_at_temperature(
    unspeculated_samples: list[list[tuple[int, ...]]], shelf: Any, policy: str
) -> None:
    """By verdicts that are random, and by those of a rule that follows the drafter's entropy."""
    adaptive = RANDOM | {"policy": policy}
    engine = shelf.get("draft_model", adaptive=adaptive, speculation=PROBABILISTIC, **ENGINE)
    assert engine.controller.capability.sampled_drafts
    speculated = sample(engine, SAMPLES_PER_PROMPT)
    status = engine.controller.status()
    assert status["accepted_tokens"] > 1000, "speculation hardly ran"
    assert status["events"]["draft_rounds_ended_early"] > 50
    assert status["fail_opens"] == {}
    check_alike(speculated, unspeculated_samples)
