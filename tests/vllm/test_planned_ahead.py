"""Plans made while the device works: when they are used, and what is looked up as they are applied.

A fake scheduler, no engine.
"""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_scheduler import KMAX, Request, arrive, output_of, results_of, run_step, scheduler_with

from adaptive_spec.adapters.vllm.draft_signal.values import ATTRIBUTE, DraftSignals
from adaptive_spec.adapters.vllm.lookup import LookUp
from adaptive_spec.adapters.vllm.steps import StepDriver
from adaptive_spec.config import Config, SecondSource
from adaptive_spec.controller.controller import Controller
from adaptive_spec.operation.run_time_switch import SwitchRequest
from adaptive_spec.policies.static import StaticOptions, StaticPolicy
from adaptive_spec.step import Capability, Level, SpecPlan, StepContext


class Recording(StaticPolicy):
    """A fixed K; keeps the contexts it was asked about."""

    def __init__(self, k: int) -> None:
        super().__init__(StaticOptions(k=k))
        self.asked: list[StepContext] = []

    def plan(self, context: StepContext) -> SpecPlan:
        self.asked.append(context)
        return super().plan(context)


def driver_with(scheduler: Any, k: int = 1) -> tuple[StepDriver, Recording]:
    policy = Recording(k)
    capability = Capability(level=Level.FULL, max_draft_tokens=KMAX)
    return StepDriver(scheduler, Controller(policy, capability, Config())), policy


def launch(driver: StepDriver, *names: str) -> Any:
    """Schedule a step, hand it to the device, and let the adapter think."""
    output = output_of(dict.fromkeys(names, 1))
    run_step(driver, output)
    driver.after_schedule()
    for request in driver._scheduler.running:
        request.num_computed_tokens += 2
        request.spec_token_ids = []
    driver.think()
    return output


def finish(driver: StepDriver, output: Any, tokens: int = 1) -> None:
    """Its results arrive, and new drafts."""
    names = list(output.num_scheduled_tokens)
    arrive(driver, output, results_of(**dict.fromkeys(names, tokens)))
    for request in driver._scheduler.running:
        request.num_tokens += tokens
        request.num_computed_tokens -= 2 - tokens
        request.spec_token_ids = [7] * KMAX
    driver.drafted(SimpleNamespace())


def drafts(scheduler: Any) -> list[int]:
    return [len(request.spec_token_ids) for request in scheduler.running]


def test_a_plan_made_while_the_device_works_is_applied_as_it_is() -> None:
    scheduler = scheduler_with(Request("a"), Request("b"))
    driver, policy = driver_with(scheduler)
    finish(driver, launch(driver, "a", "b"))
    asked = len(policy.asked)
    driver.before_schedule()
    assert len(policy.asked) == asked
    assert drafts(scheduler) == [1, 1]
    assert driver.controller.counters.failures == {}


def test_the_plan_waits_for_drafts_that_may_not_be_found() -> None:
    scheduler = scheduler_with(Request("a"), Request("b"))
    scheduler.vllm_config.speculative_config.method = "suffix"
    driver, policy = driver_with(scheduler)
    finish(driver, launch(driver, "a", "b"))
    scheduler.running[0].spec_token_ids = []  # nothing matches
    driver.before_schedule()
    assert policy.asked[-1].draft_available.tolist() == [0, KMAX]
    assert drafts(scheduler) == [0, 1]
    assert driver.controller.counters.failures == {}


@pytest.mark.engine
def test_text_is_looked_up_for_the_newest_tokens_where_they_are_known() -> None:
    pytest.importorskip("arctic_inference", reason="drafts are looked up by arctic-inference")
    prompt = [1, 2, 3, 4, 5, 1, 2, 6, 7, 8]
    request = Request(
        "a",
        prompt_token_ids=prompt,
        all_token_ids=[*prompt, 1, 2],
        num_tokens=12,
        num_computed_tokens=11,
    )
    capability = Capability(level=Level.FULL, max_draft_tokens=KMAX)
    controller = Controller(Recording(1), capability, Config())
    lookup = LookUp(SecondSource(), controller.counters.event)
    driver = StepDriver(scheduler_with(request), controller, lookup=lookup)
    output = launch(driver, "a")
    request.all_token_ids.append(6)  # the text before went on with 3 and with 6
    finish(driver, output)
    driver.before_schedule()
    assert driver._planned.found.drafts() == [[7, 8, 1]]


def test_it_learns_and_plans_only_after_the_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = scheduler_with(Request("a"))
    driver, policy = driver_with(scheduler)
    learned: list[int] = []
    monkeypatch.setattr(policy, "observe", lambda step: learned.append(step.outcome.step))
    finish(driver, launch(driver, "a"))
    assert learned == []
    launch(driver, "a")
    assert len(learned) == 1


def test_a_plan_made_ahead_knows_nothing_of_the_drafts_that_it_trims() -> None:
    scheduler = scheduler_with(Request("a"))
    driver, policy = driver_with(scheduler)
    finish(driver, launch(driver, "a"))
    driver.before_schedule()
    ahead = policy.asked[-1]
    assert ahead.confidence is None
    assert ahead.entropy is None
    assert driver._planned.context is ahead


def with_signals(driver: StepDriver) -> None:
    shown = np.full((1, KMAX), 0.5)
    driver.drafted(SimpleNamespace(**{ATTRIBUTE: DraftSignals(["a"], shown, shown)}))


def switched(driver: StepDriver) -> None:
    driver.controller.switch(SwitchRequest(mode="shadow"))


def forgotten(driver: StepDriver) -> None:
    driver.controller.start_over("weights are new")


def out_of_memory(driver: StepDriver) -> None:
    manager = driver._scheduler.kv_cache_manager
    manager.block_pool.get_num_free_blocks = lambda: 0
    manager.get_blocks = lambda name: SimpleNamespace(blocks=[[0] * 50])


@pytest.mark.parametrize("event", [with_signals, switched, forgotten, out_of_memory])
def test_a_plan_made_ahead_is_void_after(event: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = scheduler_with(Request("a"))
    driver, _ = driver_with(scheduler)
    finish(driver, launch(driver, "a"))
    planned: list[StepContext] = []
    plan = driver.controller.plan

    def counted(context: StepContext) -> SpecPlan:
        planned.append(context)
        return plan(context)

    monkeypatch.setattr(driver.controller, "plan", counted)
    event(driver)
    driver.before_schedule()
    assert len(planned) == 1
    assert driver.controller.counters.failures == {}


def test_an_engine_that_announces_no_launch_is_planned_for(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = scheduler_with(Request("a"))
    driver, policy = driver_with(scheduler)
    learned: list[int] = []
    monkeypatch.setattr(policy, "observe", lambda step: learned.append(step.outcome.step))
    for turn in range(3):
        scheduler.running[0].spec_token_ids = [7] * KMAX
        output = output_of({"a": 1})
        run_step(driver, output)
        assert drafts(scheduler) == [1]
        assert len(learned) == turn
        arrive(driver, output, results_of(a=1))
    assert len(policy.asked) == 3


@pytest.mark.parametrize(("emitted", "left"), [(1, 2), (2, 1), (3, 0)])
def test_no_draft_is_verified_that_a_request_near_its_end_cannot_use(
    emitted: int, left: int
) -> None:
    # 10 + 14 - 20: four tokens to go when the step is launched.
    scheduler = scheduler_with(Request("a", max_tokens=14))
    driver, _ = driver_with(scheduler, k=KMAX)
    finish(driver, launch(driver, "a"), tokens=emitted)
    driver.before_schedule()
    assert drafts(scheduler) == [left]


def test_drafts_that_escape_the_grammar_are_left_out() -> None:
    scheduler = scheduler_with(Request("a", use_structured_output=True), Request("b"))
    driver, _ = driver_with(scheduler, k=2)
    finish(driver, launch(driver, "a", "b"))
    for request in scheduler.running:
        request.spec_token_ids = [-1] * KMAX
    driver.before_schedule()
    assert drafts(scheduler) == [0, 2]


def test_requests_that_came_or_went_since_the_plan_do_no_harm() -> None:
    scheduler = scheduler_with(Request("a"), Request("b"), Request("c"))
    driver, _ = driver_with(scheduler)
    finish(driver, launch(driver, "a", "b", "c"))
    aborted, preempted, other = scheduler.running
    new = Request("new")
    driver.freed("a")
    preempted.spec_token_ids = []
    scheduler.running = [other, new]
    driver.before_schedule()
    assert drafts(scheduler) == [1, KMAX]
    assert preempted.spec_token_ids == []
    output = output_of({"c": 1, "new": 4})
    driver.scheduled(output)
    driver.think()
    arrive(driver, output, results_of(c=2, new=1))
    driver.before_schedule()
    assert driver.controller.counters.failures == {}
    assert len(aborted.spec_token_ids) <= KMAX


def test_a_name_that_is_used_again_at_once_starts_anew() -> None:
    scheduler = scheduler_with(Request("a"))
    driver, _ = driver_with(scheduler)
    output = launch(driver, "a")
    driver.freed("a")
    scheduler.running = [Request("a")]
    arrive(driver, output, results_of(a=1))
    launch(driver, "a")
    assert driver.controller.counters.failures == {}
    assert len(driver.controller.slots) == 1
