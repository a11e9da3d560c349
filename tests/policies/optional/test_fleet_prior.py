"""Beliefs of replicas are averaged, and count less where replicas differ or are of another kind."""

import math

import msgspec
import numpy as np
import pytest

from adaptive_spec.policies.gaussian import saved_gaussian
from adaptive_spec.policies.goodput import GoodputOptions, GoodputPolicy
from adaptive_spec.policies.optional.fleet_prior import (
    TRAFFIC,
    averaged,
)
from adaptive_spec.policy import Peer
from adaptive_spec.step import Capability, Level
from adaptive_spec.testing.fake_engine import KMAX, FakeEngine
from tests.policies.saved_states import changed

FULL = Capability(level=Level.FULL, max_draft_tokens=KMAX)


def fleet_of(centres: list[float], sure: float = 400.0) -> tuple[float, float]:
    """Mean and variance of the belief of one more replica, by what each has found."""
    beliefs = [
        saved_gaussian(np.array([each]), np.array([[1.0 / sure]]), np.zeros(1), np.eye(1))
        for each in centres
    ]
    mean, covariance = averaged([(each, 1.0, TRAFFIC) for each in beliefs], np.eye(1))
    return float(mean[0]), float(covariance[0, 0])


def test_no_replica_outweighs_the_others_however_sure_it_is() -> None:
    honest, lied_to = fleet_of([0.5] * 7), fleet_of([0.5] * 7 + [-40.0], sure=1e8)
    assert abs(lied_to[0] - honest[0]) < 6.0
    assert lied_to[1] > 0.5  # one sees that something is wrong


def test_beliefs_that_agree_stay_as_they_are_also_where_a_jump_has_widened_them() -> None:
    prior = np.diag([1.0, 0.01])
    # A tight bend is believed, which jumps have widened beyond its prior.
    mean, covariance = np.array([2.0, 0.7]), np.array([[1e-4, 0.0], [0.0, 0.2]])
    # Units of a replica are its own: here half of the common ones.
    belief = saved_gaussian(2.0 * mean, 4.0 * covariance, np.zeros(2), 4.0 * prior)
    found, spread = averaged([(belief, 0.5, 0.0)] * 3, prior)
    np.testing.assert_allclose(found, mean)
    np.testing.assert_allclose(spread, covariance, atol=1e-12)
    _, doubted = averaged([(belief, 0.5, 0.1)] * 3, prior)
    np.testing.assert_allclose(doubted, covariance + 0.1 * prior, atol=1e-12)


def test_beliefs_that_contradict_each_other_are_less_sure() -> None:
    sure = [
        saved_gaussian(np.array([m]), np.array([[1e-4]]), *[np.ones((1, 1))] * 2) for m in (1, 2)
    ]
    mean, spread = averaged([(each, 1.0, 0.0) for each in sure], np.ones((1, 1)))
    assert mean[0] == pytest.approx(1.5)
    assert 0.3 < math.sqrt(spread[0, 0]) < 1.0


def served(policy: GoodputPolicy, steps: int, seed: int = 9) -> GoodputPolicy:
    """The policy after some steps of a server whose requests are drawn by the seed."""
    engine = FakeEngine(FULL)
    engine._random = np.random.default_rng(seed)
    engine.run(policy, steps)
    return policy


def state_after(steps: int, seed: int) -> dict:
    """State that a replica has learned."""
    policy = served(GoodputPolicy(GoodputOptions(), seed=seed), steps, seed)
    return msgspec.json.decode(msgspec.json.encode(policy.state()))


@pytest.fixture(scope="module")
def states() -> list[dict]:
    return [state_after(400, seed) for seed in range(4)]


def joined(peers: list[Peer]) -> tuple[GoodputPolicy, list[str]]:
    policy = GoodputPolicy(GoodputOptions(), seed=9)
    refused = policy.join_fleet(peers, FULL)
    return served(policy, 1), refused


def test_a_new_replica_believes_what_the_others_do(states: list[dict]) -> None:
    policy, refused = joined([Peer(name=str(n), state=each) for n, each in enumerate(states)])
    assert not refused
    found = policy.acceptance.mean
    each = np.array([state["acceptance"]["positions"]["mean"] for state in states])
    assert (each.min(axis=0) - 0.3 < found).all()
    assert (found < each.max(axis=0) + 0.3).all()
    units = [state["step_times"]["unit"] for state in states]
    assert min(units) * 0.5 < policy.times.scale < max(units) * 2.0
    alone = served(GoodputPolicy(GoodputOptions(), seed=9), 1)
    assert policy.acceptance.covariance[0, 0] < 0.5 * alone.acceptance.covariance[0, 0]
    # K that the others have timed need no trial.
    assert policy.times.steps_at(3).sum() >= alone.times.steps_at(3).sum()


def test_another_device_tells_of_acceptance_alone(states: list[dict]) -> None:
    peers = [Peer(name="a", state=each, doubt=0.1, alike=False) for each in states]
    policy, _ = joined(peers)
    assert abs(policy.acceptance.mean - policy.acceptance.prior_mean).max() > 0.1
    alone = served(GoodputPolicy(GoodputOptions(), seed=9), 1)
    np.testing.assert_array_equal(policy.times.mean, alone.times.mean)


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("schema",), 1, "schema 1"),
        (("acceptance", "positions", "covariance"), [[-1.0] * KMAX] * KMAX, "positive"),
        (("step_times", "timed"), {"3": [1.0]}, "Kmax"),
        (("step_times", "timed"), {"x" * 9: [1.0] * (KMAX + 1)}, "timed"),
        (("acceptance",), None, "acceptance"),
    ],
)
def test_a_damaged_state_is_left_out_by_one_line(
    states: list[dict], place: tuple[str, ...], value: object, said: str
) -> None:
    damaged = changed(states[0], place, value)
    peers = [Peer(name="bad", state=damaged), Peer(name="good", state=states[1])]
    policy, refused = joined(peers)
    without, _ = joined(peers[1:])
    [line] = refused
    assert line.startswith("bad: ")
    assert said in line
    assert "\n" not in line
    np.testing.assert_array_equal(policy.acceptance.mean, without.acceptance.mean)


def test_another_kmax_is_left_out(states: list[dict]) -> None:
    policy = GoodputPolicy(GoodputOptions())
    [line] = policy.join_fleet(
        [Peer(name="a", state=states[0])], Capability(level=Level.FULL, max_draft_tokens=2)
    )
    assert line == "a: of Kmax 5, the engine's is 2"
    assert not policy.state()
