"""goodput finds good K without being told costs or acceptance."""

import json
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from adaptive_spec import Capability, Level, build_policy
from adaptive_spec.errors import PolicyError
from adaptive_spec.policy import Policy
from tests.policies.closed_loop import GPU, LAPTOP, alike, mixed, run
from tests.policies.no_exploration import without_exploration


def goodput(**options: Any) -> Policy:
    return build_policy("goodput", options, seed=1)


def laptop(hazards: Any, concurrency: int, steps: int, **more: Any) -> dict[str, Any]:
    """A small machine that serves so many requests of six drafts."""
    setting = {"concurrency": concurrency, "machine": LAPTOP, "steps": steps}
    return setting | {"hazards": lambda random: hazards(random)[:6]} | more


def best_static(**setting: Any) -> float:
    return max(run(build_policy("static", {"k": k}), **setting).tokens_per_second for k in range(7))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hazard", "concurrency"), [(0.1, 1), (0.1, 16), (0.5, 4), (0.8, 16), (0.95, 1)]
)
def test_it_reaches_the_best_fixed_k_for_alike_requests(hazard: float, concurrency: int) -> None:
    setting = laptop(alike(hazard), concurrency, 1500)
    reached = run(goodput(), warmup=800, **setting)
    assert reached.tokens_per_second >= 0.97 * best_static(**setting)


@pytest.mark.parametrize("machine", [LAPTOP, GPU], ids=["laptop", "gpu"])
@pytest.mark.parametrize("level", list(Level))
def test_cold_start_loses_little(machine: Any, level: Level) -> None:
    setting = laptop(alike(0.6), 16, 500, machine=machine, level=level)
    assert run(goodput(), **setting).tokens_per_second >= 0.93 * best_static(**setting)


@pytest.mark.slow
def test_mixed_requests_in_one_batch_beat_every_fixed_k() -> None:
    setting = laptop(mixed, 16, 2000)
    reached = run(goodput(), warmup=800, **setting)
    assert reached.tokens_per_second >= 1.01 * best_static(**setting)


@pytest.mark.slow
@pytest.mark.parametrize("delay", [1, 2])
def test_late_outcomes_do_no_harm(delay: int) -> None:
    setting = laptop(alike(0.7), 8, 1500, delay=delay)
    reached = run(goodput(), warmup=500, **setting)
    assert reached.tokens_per_second >= 0.97 * best_static(**setting)


@pytest.mark.slow
def test_hopeless_drafts_are_switched_off() -> None:
    reached = run(goodput(), warmup=500, **laptop(alike(0.05), 16, 1500))
    assert reached.off_fraction > 0.9


@pytest.mark.slow
def test_without_exploration_k_can_lock_in() -> None:
    """The reason exploration exists: acceptance that rises is never seen without it."""

    def rises() -> Any:
        # The first requests have hopeless drafts, all later ones good ones.
        born = iter(range(10**9))
        return lambda random: np.full(6, 0.05 if next(born) < 8 else 0.9)

    results = {}
    for explore in (True, False):
        with nullcontext() if explore else without_exploration():
            setting = laptop(rises(), 4, 1000, warmup=2000, length=400)
            results[explore] = run(goodput(), **setting).tokens_per_second
    assert results[True] > 1.3 * results[False], results


def test_state_round_trips_and_skips_the_cold_start() -> None:
    setting = laptop(alike(0.05), 16, 200)
    policy = goodput()
    run(policy, **{**setting, "steps": 1500})
    state = json.loads(json.dumps(policy.state()))
    warm = goodput()
    warm.restore(state)
    assert run(warm, **setting).tokens_per_second > run(goodput(), **setting).tokens_per_second


@pytest.mark.parametrize(
    "state",
    [{"schema": 2}, {"acceptance": {}}, {"schema": 1, "acceptance": {}, "profile": {"tokens": 1}}],
)
def test_a_state_that_does_not_fit_is_refused(state: dict[str, Any]) -> None:
    with pytest.raises(PolicyError):
        goodput().restore(state)


def test_a_state_of_another_kmax_is_refused_when_the_engine_is_known() -> None:
    policy = goodput()
    run(policy, concurrency=2, hazards=lambda r: alike(0.5)(r)[:6], machine=GPU, steps=20)
    other = goodput()
    run(other, concurrency=2, hazards=lambda r: alike(0.5)(r)[:3], machine=GPU, steps=20, kmax=3)
    with pytest.raises(PolicyError, match="Kmax"):
        other.restore(policy.state())
    assert Capability(level=Level.FULL, max_draft_tokens=3).uniform_values == (0, 1, 2, 3)
