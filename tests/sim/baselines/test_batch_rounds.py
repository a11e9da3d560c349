"""Rounds of batch-uniform baselines: what runs when K changes, and what a step is credited to."""

import msgspec
import pytest

from adaptive_spec import Level, Mode
from adaptive_spec.errors import ConfigError
from adaptive_spec.sim.baselines.parts.batch_rounds import BatchRounds
from adaptive_spec.sim.baselines.parts.start_up_profile import StartUpProfile
from tests.sim.baselines.tiny_engine import TinyEngine, linear, profile_file


def engine(**options: object) -> TinyEngine:
    return TinyEngine(None, **options)


def context_of(machine: TinyEngine, step: int, drafted: int):
    machine.depth = drafted
    return msgspec.structs.replace(machine.context(), step=step)


def test_the_next_round_verifies_what_was_drafted_and_drafts_the_new_k() -> None:
    rounds, machine = BatchRounds(), engine()
    first = rounds.next_round(context_of(machine, 0, 5), 2, "")
    assert (first.verify.tolist(), first.draft_depth) == ([5] * 4, 2)
    second = rounds.next_round(context_of(machine, 1, 2), 4, "")
    assert (second.verify.tolist(), second.draft_depth) == ([2] * 4, 4)
    assert (first.memo, second.memo) == (5, 2)


def test_this_round_is_credited_only_if_enough_was_drafted() -> None:
    rounds, machine = BatchRounds(), engine()
    first = rounds.this_round(context_of(machine, 0, 5), 1, "")
    context = context_of(machine, 1, 1)
    assert not rounds.prepared(context, 3)
    second = rounds.this_round(context, 3, "")
    third = rounds.this_round(context_of(machine, 2, 3), 3, "")
    assert [plan.verify.tolist() for plan in (first, second, third)] == [[1] * 4, [1] * 4, [3] * 4]
    assert [plan.memo for plan in (first, second, third)] == [1, None, 3]


def test_where_depth_is_fixed_k_takes_effect_at_once() -> None:
    rounds, machine = BatchRounds(), engine(level=Level.VERIFY)
    for step, k in enumerate((1, 4)):
        plan = rounds.next_round(context_of(machine, step, 5), k, "")
        assert plan.verify.tolist() == [k] * 4
        assert plan.memo == k


def test_where_depth_is_fixed_a_k_after_off_is_verified_one_step_later() -> None:
    rounds, machine = BatchRounds(), engine(level=Level.VERIFY)
    planned = [3, 0, 4, 0, 2, 2]
    ran = []
    for step, k in enumerate(planned):
        plan = rounds.next_round(context_of(machine, step, 5), k, "")
        ran.append((plan.verify.tolist()[0], plan.memo))
    assert ran == [(3, 3), (0, 0), (0, 0), (4, 4), (0, 0), (2, 2)]


@pytest.mark.parametrize(("cold", "mode"), [(True, Mode.OFF_COLD), (False, Mode.OFF_WARM)])
def test_off_is_cold_only_if_asked_for(cold: bool, mode: Mode) -> None:
    rounds, machine = BatchRounds(cold=cold), engine(cold_off=True)
    assert rounds.this_round(context_of(machine, 0, 5), 0, "").mode is mode


def test_a_profile_gives_the_seconds_of_a_round(tmp_path) -> None:
    times = StartUpProfile(profile_file(tmp_path, fixed=0.01, token=1e-4, draft_pass=1e-3))
    machine = engine()
    times.start(machine.capability)
    wanted = [linear(0.01, 1e-4, 1e-3)(4 * (k + 1), k) for k in range(6)]
    assert times.round_seconds(4, 400) == pytest.approx(wanted)
    assert times.unmeasured(machine.context()) is None
    without = times.round_seconds(4, 400, off_without_drafter=True)
    assert without[0] == pytest.approx(wanted[0] - 1e-3)
    assert without[1:] == pytest.approx(wanted[1:])


def test_without_a_profile_each_new_load_is_measured_and_then_left_alone() -> None:
    machine = engine(seconds=linear(0.01, 1e-4, 1e-3))
    times, rounds = StartUpProfile(None), BatchRounds()
    times.start(machine.capability)

    asked: list[int | None] = []

    class Profiling:
        def plan(self, context):
            k = times.unmeasured(context)
            asked.append(k)
            return rounds.next_round(context, 2 if k is None else k, "")

        def observe(self, step) -> None:
            times.record(step.outcome)

    machine.policy = Profiling()
    machine.run(60)
    assert {0, 5} <= set(asked)
    assert asked[-20:] == [None] * 20
    wanted = [linear(0.01, 1e-4, 1e-3)(4 * (k + 1), k) for k in range(6)]
    assert times.round_seconds(4, 400) == pytest.approx(wanted, rel=0.03)
    machine.batch = 16
    machine.run(1)
    assert asked[-1] is not None


def test_a_profile_that_cannot_be_read_is_named(tmp_path) -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        StartUpProfile(str(tmp_path / "nowhere.json"))
