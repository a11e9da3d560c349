"""Modes of the simulated engine: off, with and without a drafter pass, and back."""

import msgspec
import numpy as np
import pytest

from adaptive_spec.policy_helpers import StatelessPolicy
from adaptive_spec.step import Mode, SpecPlan
from tests.sim.small_server import PlainDrafter, PlainHardware, RandomK, open_load, server


def test_off_costs_what_a_server_without_a_drafter_costs():
    hardware = PlainHardware(fixed=0.01, token=0.001, context=0.0)
    result = server(open_load([(0.0, 1, 101)]), "off", hardware=hardware).run()
    # A step for the prompt, which emits the first token, and one for each of the others.
    assert result.seconds == pytest.approx(101 * 0.011)
    assert result.mode_fraction == {"off_cold": 1.0}


def test_off_warm_pays_one_drafter_pass_and_off_cold_none():
    hardware = PlainHardware(fixed=0.01, token=0.0, context=0.0)

    def seconds(mode):
        engine = server(
            open_load([(0.0, 1, 101)]),
            RandomK(0, (mode,)),
            hardware=hardware,
            drafter=PlainDrafter(pass_=0.002),
        )
        return engine.run().seconds

    assert seconds(Mode.OFF_WARM) == pytest.approx(101 * 0.012)
    assert seconds(Mode.OFF_COLD) == pytest.approx(101 * 0.010)


class ColdThenOn(StatelessPolicy):
    """Ten cold steps, then always K = 4."""

    name = "cold_then_on"

    def plan(self, context):
        cold = context.step < 10
        k = 0 if cold else 4
        return SpecPlan(
            step=context.step,
            verify=np.minimum(context.draft_available, k),
            draft_depth=k,
            mode=Mode.OFF_COLD if cold else Mode.ON,
            reason="",
        )


@pytest.mark.parametrize(("stale", "speculates"), [(True, False), (False, True)])
def test_requests_that_lived_through_off_cold_are_not_drafted_for(stale, speculates):
    engine = server(open_load([(0.0, 1, 100)]), ColdThenOn(), drafter=PlainDrafter(stale=stale))
    assert (engine.run().mean_k > 0) == speculates


def test_requests_that_come_after_off_cold_are_drafted_for():
    rows = [(0.0, 1, 100), (0.5, 1, 100)]
    assert server(open_load(rows), ColdThenOn()).run().mean_k > 1.0


def test_coming_back_from_off_costs_what_was_set():
    def seconds(cost):
        engine = server(
            open_load([(0.0, 1, 100)]),
            ColdThenOn(),
            drafter=PlainDrafter(stale=False),
            reentry_seconds=cost,
        )
        return engine.run().seconds

    assert seconds(0.25) == pytest.approx(seconds(0.0) + 0.25)


def test_steps_of_prompts_alone_do_not_count_as_coming_back():
    class ColdOnlyWhenDecoding(RandomK):
        def plan(self, context):
            plan = super().plan(context)
            return plan if context.batch_size else msgspec.structs.replace(plan, mode=Mode.ON)

    def seconds(cost):
        rows = [(0.0, 1, 30), (5.0, 1, 30)]
        policy = ColdOnlyWhenDecoding(0, (Mode.OFF_COLD,))
        return server(open_load(rows), policy, reentry_seconds=cost).run().seconds

    assert seconds(0.25) == pytest.approx(seconds(0.0))


def test_a_prompt_that_ran_partly_while_off_cold_is_not_drafted_for():
    class ColdAtFirst(ColdThenOn):
        def plan(self, context):
            plan = super().plan(context)
            return plan if context.step < 10 else msgspec.structs.replace(plan, mode=Mode.ON)

    # 12 chunks of the prompt, ten of them cold.
    engine = server(open_load([(0.0, 1200, 100)]), ColdAtFirst(), max_batch_tokens=100)
    assert engine.run().mean_k == 0.0
