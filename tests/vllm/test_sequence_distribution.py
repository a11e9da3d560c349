"""Whole sampled sequences have the distribution they have without speculation.

The real engine, its drafts admitted by the drafter's confidence while it serves, or K and the
source of drafts drawn per request. The exact check of losslessness is made on the policies
themselves; this one would see what an adapter or an engine adds to it. The comparison is told apart
from one that sees nothing by a planted rule: ending drafts by the sampled token's own probability
must be noticed at the same number of samples.
"""

import importlib.util
import itertools
from typing import Any

import pytest
from engines import GOODPUT, RANDOM
from sequences import (
    ENGINE,
    Comparison,
    compare,
    draw,
    fake_step_times,
    learn,
    trimmed_by_sampled_tokens,
)

from benchmarks.bench_pair.vllm_cpu_sampling_fix import expand_batch_to_tokens

pytestmark = [pytest.mark.engine, pytest.mark.statistics]

FALSE_ALARM = 1e-4
"""Chance that a comparison of two samples of one distribution is taken for a difference."""
FEW, MANY = 2048, 20_480
ALL_VERIFIED = GOODPUT | {"policy": "static", "options": {"k": 4}}


def unspeculated(shelf: Any, samples: int, temperature: float) -> Any:
    return draw(shelf.get(**ENGINE), samples, temperature, seed=1)


def by_confidence(shelf: Any, samples: int, temperature: float, drafts: str) -> Any:
    """Samples while `goodput` admits drafts by confidence."""
    from vllm.v1.sample import rejection_sampler

    engine = shelf.get(
        "draft_model",
        adaptive=GOODPUT | {"seed": int(10 * temperature)},  # an engine of its own
        speculation={"draft_sample_method": drafts},
        **ENGINE,
    )
    assert rejection_sampler.expand_batch_to_tokens is expand_batch_to_tokens
    controller = engine.controller
    with fake_step_times(engine):
        learn(engine, temperature)
        before = controller.status()
        drawn = draw(engine, samples, temperature, seed=2)
    after = controller.status()
    grown = {
        name: count - before["reasons_by_mode"].get("on", {}).get(name, 0)
        for name, count in after["reasons_by_mode"]["on"].items()
    }
    steps = after["steps"] - before["steps"] - grown["nothing decodes"]
    print({"steps": steps, "reasons": grown, "requests by K": after["requests_by_k"]})
    assert grown["admitted by confidence"] > 0.3 * steps
    counts = after["requests_by_k"]
    assert min(counts.get(str(k), 0) for k in range(4)) > 0.005 * sum(counts.values())
    assert after["accepted_tokens"] - before["accepted_tokens"] > samples / 2
    assert after["fail_opens"] == {}
    return drawn


def by_two_sources(shelf: Any, samples: int, temperature: float, drafts: str) -> Any:
    """Samples while K and the source are drawn per request, with steps scheduled ahead."""
    engine = shelf.get(
        "draft_model",
        adaptive=RANDOM | {"second_source": {"other_requests": True}},
        asynchronous=True,
        speculation={"draft_sample_method": drafts},
        **ENGINE,
    )
    before = engine.controller.status()
    drawn = draw(engine, samples, temperature, seed=4)
    after = engine.controller.status()
    copied = after["lookup"]["accepted"] - before["lookup"]["accepted"]
    assert copied > samples / 8, "hardly anything was looked up"
    assert after["accepted_tokens"] - before["accepted_tokens"] > samples / 2
    assert after["fail_opens"] == {}
    assert "lookup_not_copied" not in after["events"]
    return drawn


def biased(shelf: Any, samples: int, temperature: float) -> Any:
    """Samples under the planted rule."""
    engine = shelf.get(
        "draft_model",
        adaptive=ALL_VERIFIED,
        speculation={"draft_sample_method": "probabilistic"},
        **ENGINE,
    )
    with trimmed_by_sampled_tokens(engine, least=0.25) as left_out:
        drawn = draw(engine, samples, temperature, seed=3)
    assert left_out() > samples / 4
    return drawn


def said(comparison: Comparison, samples: int) -> Comparison:
    """Shown with `pytest -s`: what was found, not only that it passed."""
    print(f"{samples} samples: {comparison}")
    return comparison


WAYS = [by_confidence]
if importlib.util.find_spec("arctic_inference") is not None:  # which looks up
    WAYS.append(by_two_sources)


def test_few_sequences_have_the_distribution_without_speculation(shelf: Any) -> None:
    plain = unspeculated(shelf, FEW, 1.0)
    found = said(compare(by_confidence(shelf, FEW, 1.0, "probabilistic"), plain), FEW)
    assert found.probability > FALSE_ALARM, found
    planted = said(compare(biased(shelf, FEW, 1.0), plain), FEW)
    assert planted.probability < FALSE_ALARM, "the comparison has no power"


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_many_sequences_have_the_distribution_without_speculation(
    shelf: Any, temperature: float
) -> None:
    plain = unspeculated(shelf, MANY, temperature)
    for served, drafts in itertools.product(WAYS, ("probabilistic", "greedy")):
        found = said(compare(served(shelf, MANY, temperature, drafts), plain), MANY)
        assert found.probability > FALSE_ALARM, (served, drafts, found)
    planted = said(compare(biased(shelf, MANY, temperature), plain), MANY)
    assert planted.probability < FALSE_ALARM, "the comparison has no power"
