"""Acceptance that changes at a time, for all requests at once."""

import dataclasses

import numpy as np
import pytest

from adaptive_spec.errors import ConfigError
from adaptive_spec.policy import build_policy
from adaptive_spec.sim.acceptance.data import AcceptanceData
from adaptive_spec.sim.engine.loop import Engine
from adaptive_spec.sim.engine.options import EngineOptions
from adaptive_spec.sim.load.base import ClosedLoad
from adaptive_spec.sim.scenario import Phase, Scenario
from tests.sim.small_server import PlainDrafter, PlainHardware, endless


def flat(accepted: int, positions: int = 400) -> AcceptanceData:
    """Every step accepts so many drafts."""
    return AcceptanceData(
        name="flat",
        source="made up",
        accepted=np.full(positions, accepted, dtype=np.uint8),
        offsets=np.array([0, positions]),
        prompt_tokens=np.array([10]),
        labels=("",),
        depth=4,
    )


def run(phases, first=3, seconds=30.0, policy="static", **options):
    engine = Engine(
        ClosedLoad(endless(10, 400), 4, endless=True),
        flat(first),
        PlainDrafter(),
        PlainHardware(),
        build_policy(policy, options, seed=0),
        EngineOptions(max_draft_tokens=4),
        phases=phases,
    )
    return engine.run(max_seconds=seconds)


def test_all_requests_change_at_the_moment_of_the_phase():
    # A request-step emits what is accepted and one more token.
    result = run([(10.0, flat(0)), (20.0, flat(4))], k=4)
    steps = {k: run([], first=k, seconds=10.0, k=4).tokens for k in (0, 3, 4)}
    assert result.tokens == pytest.approx(sum(steps.values()), rel=0.01)


def test_data_shorter_than_the_records_is_read_over_and_over():
    long = run([(10.0, flat(1, positions=5_000))], k=4).tokens
    assert run([(10.0, flat(1, positions=7))], k=4).tokens == long


def test_a_phase_without_confidence_hides_it():
    shown = dataclasses.replace(flat(3), confidence=np.full((400, 4), 0.9, dtype=np.float32))
    seen = []

    class Watching:
        def __init__(self, inner):
            self._inner = inner

        def __getattr__(self, name):
            return getattr(self._inner, name)

        def plan(self, context):
            if context.batch_size and (context.draft_available > 0).all():
                seen.append((context.now, context.confidence[0, 0]))
            return self._inner.plan(context)

    engine = Engine(
        ClosedLoad(endless(10, 400), 2, endless=True),
        shown,
        PlainDrafter(),
        PlainHardware(),
        Watching(build_policy("static", {"k": 2}, seed=0)),
        EngineOptions(max_draft_tokens=4),
        phases=[(5.0, flat(3))],
    )
    engine.run(max_seconds=10.0)
    assert all(value == pytest.approx(0.9) for now, value in seen if now < 5.0)
    assert all(np.isnan(value) for now, value in seen if now >= 5.0)
    assert {now < 5.0 for now, _ in seen} == {True, False}


def test_chains_and_trees_do_not_follow_each_other():
    tree = dataclasses.replace(flat(2), tree_sizes=np.full((400, 4), 2, dtype=np.uint8))
    with pytest.raises(ConfigError, match="all be chains, or all token trees"):
        run([(10.0, tree)])


def test_phases_must_ascend():
    with pytest.raises(ValueError, match="ascend"):
        Scenario(
            load="closed:1",
            acceptance=("model:good",),
            phases=(Phase(at=5.0, files=("model:poor",)), Phase(at=5.0, files=("model:good",))),
            drafter="eagle",
            hardware="h100-llama-8b",
        )


def test_switches_between_off_and_on_are_counted():
    from adaptive_spec.sim.engine.measurements import Measurements
    from adaptive_spec.step import Mode

    measured = Measurements()
    for mode in (Mode.ON, Mode.OFF_WARM, Mode.OFF_COLD, Mode.ON, Mode.ON, Mode.OFF_COLD):
        measured.decode(mode, [0, 1], 1, 10, 0.0)
    assert measured.result("any", 1.0, 0).switches == 3
