"""Hundreds of thousands of speculative draws in big batches against as many from the target.

Each test of a comparison calls two samples of the same law different once in a million times
(FALSE_ALARM). Seeds are fixed, so a result doesn't change from run to run.

What this can't see: a budget that follows the live confidences of a whole batch biases each of its
requests by about one part in the batch's size, or in its root at a knife's edge. Enumeration does.
"""

import numpy as np
import pytest

from adaptive_spec import Capability, Level
from adaptive_spec.policies.static import StaticOptions
from adaptive_spec.policy import Policy
from adaptive_spec.step import FloatArray, IntArray
from tests.losslessness.exact.joint_law import Shown
from tests.losslessness.exact.request import Copies
from tests.losslessness.exact.rules import Planted, Tetris, TwoSources, leading
from tests.losslessness.exact.server import Server
from tests.losslessness.exact.shipped import LIVE, NAMES, engines, shipped
from tests.losslessness.sampled.comparison import Comparison, compare
from tests.losslessness.sampled.sampler import Draws, Sampler

BATCH = 512
DRAWS = 250_000
"""Enough for biases of a per cent; the long tests draw MANY."""
MANY = 1_000_000
FALSE_ALARM = 1e-6
VERIFY = Capability(level=Level.VERIFY, max_draft_tokens=2)


def drawn(
    policy: Policy,
    capability: Capability,
    shown: Shown = "maximum",
    *,
    copies: Copies = "",
    draws: int = DRAWS,
) -> tuple[Draws, Comparison]:
    sampler = Sampler(Server(policy, capability, BATCH), shown=shown, seed=5, copies=copies)
    draws = sampler.draws(-(-draws // BATCH))
    return draws, compare(draws.row, draws.output, sampler.direct(draws.row))


def threshold(confidence: FloatArray) -> IntArray:
    return leading(confidence >= 0.5)


def two_share_a_budget(confidence: FloatArray) -> IntArray:
    """Neighbours share as many drafts as their second positions are sure, best survival first."""
    survival = confidence.cumprod(axis=1).reshape(-1, 4)
    budget = 2 * (confidence[:, 1] > 0.5).reshape(-1, 2).sum(axis=1)
    # Stable, by position and then by request, so that what is admitted are prefixes.
    order = np.argsort(-survival[:, [0, 2, 1, 3]], axis=1, kind="stable")
    place = np.argsort(order, axis=1)
    k: IntArray = (place < budget[:, None]).reshape(-1, 2, 2).sum(axis=1).ravel()
    return k


def by_the_neighbour(confidence: FloatArray) -> IntArray:
    """Each of two by the other's second position."""
    return np.where(confidence[:, 1].reshape(-1, 2)[:, ::-1].ravel() > 0.5, 2, 0)


@pytest.mark.parametrize(
    ("name", "engine"),
    [
        ("goodput", "K and depth free"),
        ("regression", "K and depth free"),
        ("vllm_adaptive_verification", "K per request"),
    ],
)
def test_a_policy_draws_what_the_target_draws(name: str, engine: str) -> None:
    draws, found = drawn(shipped(name), engines(2)[engine])
    assert min(found) > FALSE_ALARM
    # It would mean little if the signal had seldom made a difference between requests.
    assert (np.ptp(draws.verified, axis=1) > 0).mean() > 0.5


def test_a_threshold_on_the_drafted_tokens_probability_is_caught() -> None:
    assert min(drawn(Planted(threshold), VERIFY)[1]) > FALSE_ALARM
    assert drawn(Planted(threshold), VERIFY, "token")[1].single < FALSE_ALARM


def test_tetris_by_the_drafted_tokens_probability_is_caught() -> None:
    assert drawn(Tetris(StaticOptions()), VERIFY, "token")[1].single < FALSE_ALARM


def test_a_budget_from_live_deeper_confidences_is_caught() -> None:
    assert drawn(Planted(two_share_a_budget), VERIFY)[1].single < FALSE_ALARM


def test_a_bias_that_only_pairs_of_requests_have_is_caught_by_pairs() -> None:
    found = drawn(Planted(by_the_neighbour), VERIFY, draws=MANY)[1]
    assert found.single > FALSE_ALARM
    assert found.pairs < FALSE_ALARM


@pytest.mark.parametrize("engine", ["K per request", "K and depth free"])
def test_two_sources_draw_what_the_target_draws(engine: str) -> None:
    draws, found = drawn(shipped("goodput"), engines(2)[engine], copies="one-hot")
    assert min(found) > FALSE_ALARM
    both = draws.copied.any(axis=1) & ~draws.copied.all(axis=1)
    assert both.mean() > 0.2


def test_a_source_chosen_by_the_drafted_tokens_probability_is_caught() -> None:
    policy = TwoSources(lambda context: context.confidence[:, 0] < 0.5)
    assert min(drawn(policy, VERIFY, copies="one-hot")[1]) > FALSE_ALARM
    found = drawn(policy, VERIFY, "token", copies="one-hot")[1]
    assert found.single < FALSE_ALARM


@pytest.mark.long
@pytest.mark.parametrize("engine", engines(2))
@pytest.mark.parametrize("name", NAMES)
def test_every_policy_draws_what_the_target_draws(name: str, engine: str) -> None:
    draws, found = drawn(shipped(name), engines(2)[engine], draws=MANY)
    assert min(found) > FALSE_ALARM
    # One K for 512 requests is the least that any of them wants: it may well be 0.
    assert draws.verified.any() or name not in LIVE or engine == "one K for all"
