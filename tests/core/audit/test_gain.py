"""The measured gain is the true one, whatever stalls, prompts and loads come between."""

import math
from typing import Any

import pytest

from adaptive_spec.audit.auditor import ERROR
from adaptive_spec.config import Audit
from tests.core.audit.modelled import LENGTH, Server

pytestmark = pytest.mark.slow

GAIN = 0.08
STEADY: Any = {"gain": lambda *_: GAIN}


def wave(step: int) -> int:
    """Requests that come and go within a few blocks."""
    return 30 + round(10.0 * math.sin(step / 60.0))


def jumps(step: int) -> int:
    return 8 if step // 1500 % 2 else 64


def bursts(step: int) -> int:
    """Requests that mostly wander, and now and then are four times as many for a while."""
    return wave(step) // 4 * (4 if step // 70 * 7919 % 11 < 2 else 1)


WORLDS: dict[str, dict[str, Any]] = {
    "steady": {"prompts": 0.0},
    "noise": {"noise": 0.3},
    "prompts": {"prompts": 0.5},
    "stalls": {"stalls": 0.01},
    "load wanders": {"load": wave},
    "load jumps": {"load": jumps},
    "bursts": {"load": bursts},
    "one request": {"load": lambda _: 1},
}


def shown(server: Server) -> dict[str, Any]:
    return dict(server.auditor.status()["arms"]["engine"])


def share_of_decoding(server: Server, options: dict[str, Any]) -> float:
    """Seconds of a step without prompts, as a share, where the policy runs."""
    load = options.get("load", lambda _: 32)(0)
    decoding = (0.01 + 1e-4 * load) * math.exp(-GAIN)
    return decoding / (decoding + options.get("prompts", 0.1) * 0.01)


@pytest.mark.parametrize("world", WORLDS)
def test_the_interval_holds_the_true_gain_of_whole_runs(world: str) -> None:
    options = STEADY | WORLDS[world]
    server = Server(**options)
    server.run(24_000)
    found = shown(server)
    decoding = share_of_decoding(server, options)
    truth = math.log(1.0 - decoding + decoding * math.exp(GAIN))
    if world not in ("stalls", "load jumps"):
        assert math.log1p(found["gain"]) == pytest.approx(truth, abs=0.02)
    assert math.log1p(found["low"]) < truth < math.log1p(found["high"])
    assert found["blocks"] > (12 if world in ("load wanders", "bursts") else 50)


def test_the_interval_misses_the_truth_no_more_often_than_stated() -> None:
    missed = 0
    for seed in range(16):
        server = Server(**STEADY, seed=seed, prompts=0.0)
        server.run(7000)
        found = shown(server)
        missed += not found["low"] < math.expm1(GAIN) < found["high"]
    assert missed <= max(ERROR * 16, 1)


def test_a_gain_of_nothing_is_not_told_as_one() -> None:
    server = Server(lambda *_: 0.0)
    server.run(12_000)
    assert abs(shown(server)["gain"]) < 0.015


def test_loads_are_told_apart() -> None:
    server = Server(lambda requests, _: 0.2 if requests == 8 else -0.1, jumps, prompts=0.0)
    server.run(40_000)
    by_load = shown(server)["by_load"]
    assert by_load.keys() == {"5-8", "33-64"}
    assert by_load["5-8"]["gain"] == pytest.approx(math.expm1(0.2), abs=0.02)
    assert by_load["33-64"]["gain"] == pytest.approx(math.expm1(-0.1), abs=0.02)


def test_pairs_are_left_out_for_their_load_alone() -> None:
    kept = []
    for gain in (0.0, 1.0):
        server = Server(lambda *_, gain=gain: gain, lambda step: 8 if step // 150 % 2 else 64)
        server.run(10_000)
        kept.append(server.auditor.status()["left_out"])
    assert kept[0] == kept[1]
    assert kept[0]["load differs"] > 20


def test_both_arms_are_measured_apart() -> None:
    server = Server(**STEADY, config=Audit(share=0.2, arms=("engine", "none")))
    server.run(20_000)
    arms = server.auditor.status()["arms"]
    assert arms.keys() == {"engine", "none"}
    # The modelled server takes the same time for both.
    assert all(abs(each["gain"] - math.expm1(GAIN)) < 0.03 for each in arms.values())


def test_another_share_keeps_what_has_been_measured_and_a_proof_ends_by_itself() -> None:
    server = Server(**STEADY)
    server.run(9000)
    before = shown(server)["blocks"]
    server.auditor.prove(Audit(share=0.25), 80.0)
    server.run(2000)
    status = server.auditor.status()
    assert status["share"] == 0.25
    assert 0.0 < status["proof_seconds_left"] < 80.0
    assert 5 < status["proof"]["engine"]["blocks"] < before
    server.run(8000)
    after = server.auditor.status()
    assert after["share"] == 0.2
    assert after["proof_seconds_left"] == 0.0
    assert after["arms"]["engine"]["blocks"] > before


@pytest.mark.parametrize("world", ["steady", "load wanders"])
def test_requests_that_an_arm_leaves_out_count_and_a_wave_of_the_load_does_not(world: str) -> None:
    def waits(arm: str, requests: int) -> int:
        """Return the requests in a step: a tenth waits for its turn where the engine's K runs."""
        return requests if arm == "policy" else round(0.9 * requests)

    options = WORLDS[world] | {"prompts": 0.0, "waits": waits}
    gains = []
    for seed in range(4):
        server = Server(lambda *_: 0.0, seed=seed, **options)
        server.run(24_000)
        gains.append(math.log1p(shown(server)["gain"]))
    # Of 32, a step of 13.2 ms answers one tenth more than one of 12.9 ms.
    truth = math.log(1.0 / 0.9) - math.log(13.2 / 12.9)
    assert sum(gains) / len(gains) == pytest.approx(truth, abs=0.02)


def test_prompts_that_share_a_batch_count_for_the_arm_that_lets_them() -> None:
    """An arm that emits more in a step has more prompts in each of fewer batches."""
    batch, truth = 0.02, []
    for emitted in (2.0 * 32, 4.0 * 32):
        batches = -math.expm1(-emitted / LENGTH)
        seconds = 0.0132 + batch * batches + 1e-3 * emitted / LENGTH
        truth.append(math.log(emitted / seconds))
    server = Server(lambda *_: 0.0, prompts=0.0, noise=0.02, deeper=2, batch=batch)
    server.run(24_000)
    found = shown(server)
    assert math.log1p(found["low"]) < truth[1] - truth[0] < math.log1p(found["high"])
    assert math.log1p(found["high"]) - math.log1p(found["low"]) < 0.04
