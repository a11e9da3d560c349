"""The life of a step: what is learned, what is forgotten, and when the engine's own K runs."""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_spec.config import Config
from adaptive_spec.controller.controller import Controller
from adaptive_spec.engines.driver import Ahead, Step, StepDriver
from adaptive_spec.operation.run_time_switch import SwitchRequest
from adaptive_spec.policies.static import StaticOptions, StaticPolicy
from adaptive_spec.step import Capability, Level, StepOutcome
from tests import steps

LOG = logging.getLogger("adaptive_spec.test_driver")
CAPABILITY = Capability(level=Level.FULL, max_draft_tokens=3)
NAMES = ["a", "b"]


class Results(NamedTuple):
    step: Step
    seconds: float
    now: float


class Engine(StepDriver[Step, Results, str]):
    """Two requests decode for ever; time goes on by a hundredth of a second with each look."""

    controller: Controller

    def __init__(self, ranks: Any = None) -> None:
        policy = StaticPolicy(StaticOptions(k=2))
        super().__init__(Controller(policy, CAPABILITY, Config()), LOG, ranks=ranks, clock=self)
        self.time = 0.0
        self.asked: list[int] = []
        self.broken = False

    def __call__(self) -> float:
        self.time += 0.01
        return self.time

    def step(self) -> Step:
        context = steps.context(
            capability=CAPABILITY,
            step=self.next_step(),
            request_ids=NAMES,
            slots=[self.controller.slots.assign(name) for name in NAMES],
            context_tokens=2,
            draft_available=2,
            draft_possible=2,
            engine_k=3,
            kv_free_tokens=1000,
            kv_total_tokens=1000,
            now=self.time,
        )
        self.controller.plan(context)
        return Step(context)

    def arrive(self, step: Step) -> bool:
        found = self.completed(lambda pending: pending is step)
        if found is not None:
            self._unlearned.append(Results(*found))
        return found is not None

    def outcome_of(self, results: Results) -> StepOutcome | None:
        if self.broken:
            raise ValueError("planted")
        context = results.step.context
        self.asked.append(context.step)
        return steps.outcome(context, 2, 1, seconds=results.seconds, now=results.now)


@given(st.lists(st.sampled_from(["launch", "arrive", "arrive late", "learn"]), max_size=60))
def test_each_result_is_learned_once_and_in_order(turns: list[str]) -> None:
    driver = Engine()
    launched: list[Step] = []
    due: list[int] = []
    for turn in turns:
        if turn == "launch":
            launched.append(driver.step())
            driver.launch(launched[-1], driver.clock())
        elif turn == "learn":
            driver.learn_from_results()
        elif launched:
            step = launched[-1 if turn == "arrive late" else 0]
            # Results before those that arrive are lost: the engine dropped their steps.
            del launched[: launched.index(step) + 1]
            assert driver.arrive(step)
            due.append(step.context.step)
        assert len(driver._pending) == len(launched)
    driver.learn_from_results()
    assert driver.asked == due == sorted(due)
    assert driver.controller.counters.accepted == 2 * len(due)


def test_results_without_a_step_change_nothing() -> None:
    driver = Engine()
    step = driver.step()
    driver.launch(step, driver.clock())
    assert not driver.arrive(Step())
    assert driver.arrive(step)


def test_requests_are_forgotten_after_their_results_are_learned() -> None:
    driver = Engine()
    step = driver.step()
    driver.launch(step, driver.clock())
    driver.arrive(step)
    driver._ended += NAMES
    assert len(driver.controller.slots) == 2
    driver.learn_from_results()
    assert driver.controller.counters.accepted == 2
    assert len(driver.controller.slots) == 0


def test_requests_are_forgotten_though_their_results_cannot_be_read() -> None:
    driver = Engine()
    step = driver.step()
    driver.launch(step, driver.clock())
    driver.arrive(step)
    driver._ended += NAMES
    driver.broken = True
    with pytest.raises(ValueError, match="planted"):
        driver.learn_from_results()
    assert len(driver.controller.slots) == 0
    driver.broken = False
    driver.learn_from_results()
    assert driver.asked == []


def test_a_plan_made_ahead_is_taken_once() -> None:
    driver = Engine()
    driver._ahead = Ahead("plan", driver.controller.decides_since)
    assert driver.take_ahead() == "plan"
    assert driver.take_ahead() is None


def test_a_plan_made_ahead_ends_with_the_operators_change() -> None:
    driver = Engine()
    driver._ahead = Ahead("plan", driver.controller.decides_since)
    driver.controller.switch(SwitchRequest(mode="shadow"))
    assert driver.take_ahead() is None


def test_ranks_that_cannot_agree_are_asked_no_more() -> None:
    class Broken:
        def settle(self, proposal: int) -> int:
            raise OSError("a rank is gone")

    driver = Engine(Broken())
    assert driver.settle(2) is None
    assert driver.detached
    assert driver.controller.status()["fail_opens"] == {"hook settle raised OSError": 1}


def test_only_what_the_engine_still_has_is_kept() -> None:
    driver = Engine()
    driver.step()
    driver.sweep({"b"})
    assert list(driver.controller.slots) == ["b"]
