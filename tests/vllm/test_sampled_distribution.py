"""Sampled output has the distribution it has without speculation.

The first token of a completion comes from the prompt's own pass; speculation can bias the ones
after it. Compared by chi-square, pair of second and third token and the fourth token, with fixed
seeds. The exact check of losslessness is made on the policies themselves; this one is of the whole
engine.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from distributions import check_alike, p_value
from engines import RANDOM
from sampled_completions import ENGINE, sample

pytestmark = [pytest.mark.engine, pytest.mark.statistics]

SAMPLES_PER_PROMPT = 768
"""The test of many samples, which is long, has eight times as many."""


@pytest.fixture(scope="module")
def unspeculated(shelf: Any) -> list[list[tuple[int, ...]]]:
    return sample(shelf.get(**ENGINE), SAMPLES_PER_PROMPT)


@pytest.mark.long
@pytest.mark.parametrize("draft_sampling", ["greedy", "probabilistic"])
def test_distribution_at_temperature(
    unspeculated: list[list[tuple[int, ...]]], shelf: Any, draft_sampling: str
) -> None:
    speculation = {"draft_sample_method": draft_sampling}
    engine = shelf.get("draft_model", adaptive=RANDOM, speculation=speculation, **ENGINE)
    speculated = sample(engine, SAMPLES_PER_PROMPT)
    status = engine.controller.status()
    assert status["accepted_tokens"] > 1000, "speculation hardly ran"
    assert status["fail_opens"] == {}
    assert sum(map(len, speculated)) >= 2500
    check_alike(speculated, unspeculated)


@pytest.mark.parametrize(
    ("draft_sampling", "asynchronous"),
    [
        pytest.param("greedy", False, marks=pytest.mark.long),
        pytest.param("probabilistic", False, marks=pytest.mark.long),
        ("probabilistic", True),
    ],
)
def test_distribution_at_temperature_with_two_sources(
    unspeculated: list[list[tuple[int, ...]]], shelf: Any, draft_sampling: str, asynchronous: bool
) -> None:
    pytest.importorskip("arctic_inference", reason="drafts are looked up by arctic-inference")
    adaptive = RANDOM | {"second_source": {"other_requests": True}}
    speculation = {"draft_sample_method": draft_sampling}
    engine = shelf.get(
        "draft_model",
        adaptive=adaptive,
        speculation=speculation,
        asynchronous=asynchronous,
        **ENGINE,
    )
    speculated = sample(engine, SAMPLES_PER_PROMPT)
    status = engine.controller.status()
    assert status["lookup"]["accepted"] > 250, "hardly anything was looked up"
    assert status["fail_opens"] == {}
    assert "lookup_not_copied" not in status["events"]
    check_alike(speculated, unspeculated)


@pytest.mark.long
def test_distribution_at_temperature_with_many_samples_under_goodput(shelf: Any) -> None:
    samples = 8 * SAMPLES_PER_PROMPT
    plain = sample(shelf.get(**ENGINE), samples)
    engine = shelf.get("draft_model", adaptive={"policy": "goodput"}, **ENGINE)
    speculated = sample(engine, samples)
    assert engine.controller.status()["fail_opens"] == {}
    assert sum(map(len, speculated)) >= 20_000
    check_alike(speculated, plain)


def test_the_comparison_notices_a_bias() -> None:
    import random

    draw = random.Random(1).choices
    plain = Counter(draw("abcd", [4, 3, 2, 1], k=SAMPLES_PER_PROMPT))
    fair = Counter(draw("abcd", [4, 3, 2, 1], k=SAMPLES_PER_PROMPT))
    biased = Counter(draw("abcd", [5, 3, 1, 1], k=SAMPLES_PER_PROMPT))
    assert p_value(plain, fair) > 1e-3
    assert p_value(plain, biased) < 1e-6
