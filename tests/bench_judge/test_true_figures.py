"""Gain over the engine's own K, in `top` and in metrics, against the count of scripted vLLM.

vLLM's scheduler and our adapter decide; the truth is a second run of the same clients in which
vLLM's own K runs.
"""

import importlib.util
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

from adaptive_spec.commands.top import _facts, _since
from adaptive_spec.operation.metrics import families
from adaptive_spec.operation.run_time_switch import SwitchRequest
from benchmarks.judge.arms import GOODPUT, parse_arm
from benchmarks.judge.records import lines
from benchmarks.judge.scripted_vllm import ENVIRONMENT, ScriptedVllm
from tests.bench_judge.scripted import DEVICE, Made, engines

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(not importlib.util.find_spec("vllm"), reason="vLLM is not installed"),
]

KMAX, WARM_UP, STEPS = 5, 350, 350
NEAR = {"ngram": 0.05, "eagle": 0.3}
"""Largest distance of the estimated ratio from the true one; docs/operate.md, Live."""


@pytest.fixture(scope="module")
def engine_of() -> Iterator[Made]:
    with engines(ScriptedVllm, ENVIRONMENT) as made:
        yield made


class Counted(NamedTuple):
    """Tokens per second after the warm-up; the gain in `top`, and its means by two doors."""

    per_second: float
    shown: str = ""
    status: float = 0.0
    gauges: float = 0.0


def gauges(status: dict[str, Any]) -> dict[str, float]:
    """The estimated tokens per second as Prometheus gets them, by set-up."""
    return {
        sample.labels["setup"]: sample.value
        for family in families([(("m", "0"), status)])
        for sample in family.samples
        if sample.name == "adaptive_spec_estimated_tokens_per_second"
    }


def served(engine: Any, arm: str, clients: int, mode: str = "on") -> Counted:
    """Serve closed-loop clients; the mode is switched after the warm-up."""
    engine.use(parse_arm(arm), DEVICE)
    played = lines("model:mixed", engine.kind.method, KMAX)
    clock, live, sent = engine.recorder.clock, set[str](), 0
    emitted, began, before = 0, 0.0, {}
    estimates: list[dict[str, float]] = []
    told: list[dict[str, float]] = []
    for step in range(WARM_UP + STEPS):
        if step == WARM_UP:
            if arm == GOODPUT and mode != "on":
                engine.controller.switch(SwitchRequest(mode=mode))
            emitted, began, before = 0, clock(), engine.status()
        while len(live) < clients:
            engine.submit(f"q{sent}", 40, 200, played, 101 * sent)
            live.add(f"q{sent}")
            sent += 1
        for name, tokens, finished in engine.step():
            emitted += tokens
            if finished:
                live.discard(name)
        if arm == GOODPUT and step >= WARM_UP and step % 10 == 9:
            found = engine.status()
            estimates.append(found["estimates"])
            told.append(gauges(found))
    seconds, after = clock() - began, engine.status()
    while live:
        live.difference_update(each.name for each in engine.step() if each.finished)
    engine.drain()
    engine.recorder.pop_steps()
    if arm != GOODPUT:
        return Counted(emitted / seconds)
    facts = dict(_facts(after, _since(after, before), seconds))
    return Counted(emitted / seconds, facts["gain (estimate)"], over_own(estimates), over_own(told))


def over_own(estimates: list[dict[str, float]]) -> float:
    """Mean of what is planned over the engine's own K."""
    return float(np.mean([each["planned"] / each["engine_k"] for each in estimates]))


@pytest.mark.parametrize("clients", [4, 32])
@pytest.mark.parametrize("method", NEAR)
def test_the_gain_over_the_engines_own_k_is_near_the_counted_one(
    engine_of: Made, method: str, clients: int
) -> None:
    engine = engine_of(method=method, kmax=KMAX)
    own, ours = (served(engine, arm, clients) for arm in (f"k{KMAX}", GOODPUT))
    true = ours.per_second / own.per_second
    assert ours.status == pytest.approx(true, rel=NEAR[method])
    assert ours.gauges == pytest.approx(ours.status)
    shown = re.search(r"([+-]\d+)% over engine's own K", ours.shown)
    assert shown, ours.shown
    assert 1.0 + int(shown[1]) / 100.0 == pytest.approx(true, rel=NEAR[method] + 0.05)


@pytest.mark.parametrize("mode", ["off", "shadow"])
@pytest.mark.parametrize("method", NEAR)
def test_where_vllms_own_k_runs_nothing_is_gained(engine_of: Made, method: str, mode: str) -> None:
    engine = engine_of(method=method, kmax=KMAX)
    own, ours = served(engine, f"k{KMAX}", 8), served(engine, GOODPUT, 8, mode)
    assert ours.per_second / own.per_second == pytest.approx(1.0, abs=0.06)
    assert ours.status == ours.gauges == 1.0
    assert "+0% over engine's own K" in ours.shown
    assert f"mode {mode}" in ours.shown
