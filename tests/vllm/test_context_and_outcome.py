"""Context and outcome from a fake scheduler: limits, labels, bookkeeping. No engine."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_scheduler import (
    KMAX,
    Request,
    arrive,
    hinted,
    learn_at_once,
    output_of,
    results_of,
    run_step,
    scheduler_with,
)

from adaptive_spec.adapters.vllm.steps import StepDriver
from adaptive_spec.config import Config
from adaptive_spec.controller.controller import Controller
from adaptive_spec.policies.static import StaticOptions, StaticPolicy
from adaptive_spec.step import Capability, Level, StepOutcome


def driver_for(scheduler: Any, *, k: int | None = None, level: Level = Level.FULL) -> StepDriver:
    capability = Capability(level=level, max_draft_tokens=KMAX)
    controller = Controller(StaticPolicy(StaticOptions(k=k)), capability, Config(policy="static"))
    return StepDriver(scheduler, controller)


def planned(driver: StepDriver) -> Any:
    """The context of the step that the driver plans now."""
    driver.before_schedule()
    assert driver.controller.counters.failures == {}
    return driver._planned.context


def context_of(*requests: Request, **changes: Any) -> Any:
    return planned(driver_for(scheduler_with(*requests, **changes)))


@pytest.mark.parametrize(
    ("changes", "available", "possible"),
    [
        ({}, 4, 4),
        ({"spec_token_ids": [7]}, 1, 4),
        ({"max_tokens": 13}, 2, 1),
        ({"max_tokens": 11}, 0, 0),
        # Scheduling ahead: one token at least is on its way.
        ({"max_tokens": 14, "num_output_placeholders": 3, "num_computed_tokens": 22}, 2, 1),
        ({"sampling_params": hinted(adaptive_spec_k_cap=1)}, 1, 1),
        ({"sampling_params": hinted(adaptive_spec_off=1)}, 0, 0),
        # Placeholders whose tokens vLLM asks the grammar about only while their step is under way.
        ({"spec_token_ids": [-1] * KMAX}, 4, 4),
        ({"spec_token_ids": [-1] * KMAX, "use_structured_output": True}, 0, 4),
        ({"spec_token_ids": [7] * KMAX, "use_structured_output": True}, 4, 4),
        ({"spec_token_ids": [], "use_structured_output": True}, 0, 4),
        (
            {
                "spec_token_ids": [-1] * KMAX,
                "use_structured_output": True,
                "num_output_placeholders": 3,
                "num_computed_tokens": 22,
            },
            4,
            4,
        ),
    ],
)
def test_drafts_are_limited(changes: dict[str, Any], available: int, possible: int) -> None:
    context = context_of(Request("a", **changes))
    assert context.draft_available.tolist() == [available]
    assert context.draft_possible.tolist() == [possible]


@pytest.mark.parametrize("changes", [{"resumable": True}, {"lora_request": "unreadable"}])
def test_an_end_that_moves_or_could_not_be_read_limits_drafts(changes: dict[str, Any]) -> None:
    request = Request("a", **changes)
    driver = driver_for(scheduler_with(request))
    for most, available in ((100, KMAX), (13, 2)):
        request.max_tokens = most
        assert planned(driver).draft_available.tolist() == [available]


def test_a_cap_does_not_make_drafting_shallower_for_others() -> None:
    capped = Request("capped", sampling_params=hinted(adaptive_spec_k_cap=1))
    out = Request("out", sampling_params=hinted(adaptive_spec_off=1))
    context = context_of(capped, out, Request("a"))
    assert context.draft_available.tolist() == [1, 0, 4]
    assert context.draft_possible.tolist() == [4, 0, 4]


def test_only_clients_who_want_no_drafts_have_opted_out() -> None:
    lost = Request("lost")
    out = Request("out", sampling_params=hinted(adaptive_spec_off=1))
    driver = driver_for(scheduler_with(lost, out, Request("a")))
    context = planned(driver)
    slots = context.slots
    driver._builder._table.stop_drafting(slots[:1])  # as for a request without the drafter's state
    rows_of = driver._builder._table.rows_of
    again = rows_of(["lost", "out", "a"], [lost, out, None])
    for opted_out in (context.opted_out, again.opted_out):
        assert opted_out.tolist() == [False, True, False]
    assert rows_of(["lost", "a"], [lost, None]).opted_out is None


def test_model_length_counts_what_is_on_its_way() -> None:
    request = Request("a", num_tokens=20, num_output_placeholders=3, num_computed_tokens=22)
    context = context_of(request, max_model_len=26)
    assert context.draft_available.tolist() == [2]
    assert context.draft_possible.tolist() == [1]


def test_only_decoding_requests_are_in_the_batch() -> None:
    prefill = Request("p", is_prefill_chunk=True, num_tokens=90, num_computed_tokens=30)
    surely_done = Request("d", max_tokens=11, num_output_placeholders=1)
    new = Request("w", num_tokens=40, num_computed_tokens=0)
    context = context_of(prefill, Request("a"), surely_done, waiting=[new])
    assert context.request_ids == ["a"]
    assert context.waiting == 1
    assert context.prefill_tokens == 60 + 40
    assert context.kv_free_tokens == 50 * 16
    assert context.temperature.tolist() == [0.8]


def test_requests_whose_turn_in_the_pipeline_comes_later_are_left_alone() -> None:
    now, later = (Request(name, next_decode_eligible_step=at) for name, at in (("a", 6), ("b", 7)))
    driver = driver_for(scheduler_with(now, later, decode_stagger=2, current_step=5), k=1)
    assert planned(driver).request_ids == ["a"]
    assert [len(request.spec_token_ids) for request in (now, later)] == [1, KMAX]


def test_drafts_are_cut_into_new_lists() -> None:
    shared = [-1] * KMAX
    first, second = Request("a", spec_token_ids=shared), Request("b", spec_token_ids=shared)
    driver = driver_for(scheduler_with(first, second), k=1)
    driver.before_schedule()
    assert first.spec_token_ids == second.spec_token_ids == [-1]
    assert shared == [-1] * KMAX


def test_static_without_k_takes_vllms_table_by_all_requests_of_the_step() -> None:
    prompt = Request("b", is_prefill_chunk=True, num_computed_tokens=4, spec_token_ids=[])
    scheduler = scheduler_with(Request("a"), prompt, dynamic_sd_lookup=[4, 4, 1, 0])
    driver = driver_for(scheduler)
    assert planned(driver).engine_k == 1
    assert driver._planned.plan.draft_depth == 1


@pytest.mark.parametrize("table", [None, [0, 3, 3]])
def test_placeholder_padding_is_off_only_while_drafts_are_trimmed(table: Any) -> None:
    scheduler = scheduler_with(Request("a"), dynamic_sd_lookup=table)
    driver = driver_for(scheduler, k=1)
    driver.before_schedule()
    if table is None:
        assert scheduler.dynamic_sd_lookup[1] == KMAX
    driver.after_schedule()
    assert scheduler.dynamic_sd_lookup is table
    scheduler.running[0].spec_token_ids = [7] * KMAX
    whole = driver_for(scheduler, k=KMAX)
    whole.before_schedule()
    assert scheduler.dynamic_sd_lookup is table


def outcome_of(scheduler: Any, output: Any, results: Any, appended: dict[str, int]) -> Any:
    """Outcome of a step; vLLM appends so many of the tokens of each request, and cuts the rest."""
    driver = driver_for(scheduler)
    seen: list[StepOutcome] = []
    driver.controller.observe = seen.append
    run_step(driver, output)
    driver.after_schedule()
    arrive(driver, output, results, appended)
    learn_at_once(driver)
    assert driver.controller.counters.failures == {}
    assert len(driver._pending) == 0
    return seen[0] if seen else None


def test_labels_count_what_ran() -> None:
    scheduler = scheduler_with(Request("a"), Request("b"), Request("c"))
    output = output_of({"a": 4, "b": 2, "c": 0}, {"new": 30}, num_invalid_spec_tokens={"b": 1})
    outcome = outcome_of(
        scheduler, output, results_of(a=3, b=2, c=1, new=1), {"a": 1, "b": 2, "c": 1}
    )
    # Of `a`, vLLM keeps one token, a draft: a stop cuts off what follows.
    assert outcome.verified.tolist() == [1, 1, 0]
    assert outcome.accepted.tolist() == [1, 1, 0]
    assert outcome.emitted.tolist() == [1, 2, 1]
    assert outcome.batch_size == 3
    assert outcome.batch_tokens == 5 + 3 + 1
    assert outcome.prefill_tokens == 30
    assert outcome.ragged
    assert outcome.context_tokens == 3 * 19


def test_preempted_ended_and_unscheduled_requests_give_no_label() -> None:
    scheduler = scheduler_with(Request("a"), Request("b"), Request("c"))
    output = output_of({"a": 2, "b": 2})
    driver = driver_for(scheduler)
    seen: list[StepOutcome] = []
    driver.controller.observe = seen.append
    run_step(driver, output)
    run_step(driver, output_of({"c": 2}, preempted_req_ids={"a"}))
    driver.freed("b")
    arrive(driver, output, results_of(a=2, b=1))
    learn_at_once(driver)
    assert len(seen[0].slots) == 0
    assert seen[0].batch_size == 2
    assert seen[0].batch_tokens == 6
    assert seen[0].context_tokens == 2 * 19  # `c` was in the batch and did not run


def test_padded_admissions_are_not_labels() -> None:
    scheduler = scheduler_with(Request("a"))
    output = output_of({"a": 1}, {"new": 5})
    output.scheduled_spec_decode_tokens["new"] = [-1] * KMAX
    scheduler.requests["new"] = Request("new")
    outcome = outcome_of(scheduler, output, results_of(a=2, new=1), {"a": 2})
    assert outcome.verified.tolist() == [1]
    assert outcome.batch_size == 1
    assert outcome.prefill_tokens == 5


def test_a_step_without_decoding_requests_is_not_observed() -> None:
    request = Request("p", is_prefill_chunk=True, num_tokens=30, num_computed_tokens=0)
    output = output_of({}, {"p": 30})
    assert outcome_of(scheduler_with(request), output, results_of(p=1), {"p": 1}) is None


def test_fixed_depth_engines_keep_their_depth() -> None:
    scheduler = scheduler_with(Request("a"))
    driver = driver_for(scheduler, k=1, level=Level.VERIFY)
    output = output_of({"a": 1})
    driver.before_schedule()
    driver.scheduled(output)
    driver.after_schedule()
    assert output.num_spec_tokens_to_schedule == KMAX
    free = driver_for(scheduler, k=1)
    free.before_schedule()
    free.scheduled(output)
    assert output.num_spec_tokens_to_schedule == 1


def test_steps_that_never_ended_are_dropped() -> None:
    driver = driver_for(scheduler_with(Request("a")))
    lost, found = output_of({"a": 1}), output_of({"a": 1})
    for output in (lost, found):
        run_step(driver, output)
    driver.read(found, results_of(a=1))
    assert len(driver._pending) == 0
    assert len(driver._unlearned) == 1
    driver.read(lost, results_of(a=1))
    assert len(driver._unlearned) == 1


def test_ended_requests_are_forgotten_after_their_last_outcome() -> None:
    scheduler = scheduler_with(Request("a"))
    driver = driver_for(scheduler)
    output = output_of({"a": 2})
    run_step(driver, output)
    driver.read(output, results_of(a=1))
    driver.freed("a")
    assert len(driver.controller.slots) == 1
    learn_at_once(driver)
    assert len(driver.controller.slots) == 0
    driver.freed("unknown")
    assert driver.controller.counters.failures == {}


def test_constants_of_a_slot_belong_to_its_present_request() -> None:
    scheduler = scheduler_with()
    driver = driver_for(scheduler)
    for turn in range(100):
        name = f"r{turn}"
        hints = hinted(adaptive_spec_k_cap=turn % 3)
        scheduler.running = [Request(name, sampling_params=hints)]
        context = planned(driver)
        assert context.draft_available.tolist() == [turn % 3]
        driver.freed(name)
    assert driver.controller.slots.capacity < 40
    assert isinstance(context.slots, np.ndarray)


def test_a_request_with_the_name_of_one_that_has_ended_is_read_anew() -> None:
    scheduler = scheduler_with(Request("a"))
    driver = driver_for(scheduler)
    for cap in (KMAX, 1):
        assert planned(driver).draft_available.tolist() == [cap]
        driver.freed("a")
        scheduler.running = [Request("a", sampling_params=hinted(adaptive_spec_k_cap=1))]


def test_arrays_are_contiguous() -> None:
    """Compiled policies are made for contiguous arrays."""
    scheduler = scheduler_with(Request("a"), Request("b"))
    context = context_of(*scheduler.running)
    outcome = outcome_of(scheduler, output_of({"a": 1, "b": 2}), results_of(a=1, b=1), {})
    for value in (context, outcome):
        for name in value.__struct_fields__:
            array = getattr(value, name)
            if isinstance(array, np.ndarray):
                assert array.flags.c_contiguous, name


def test_an_unreadable_request_shows_no_earlier_owners_cap() -> None:
    scheduler = scheduler_with()
    driver = driver_for(scheduler)
    for number in range(20):  # enough ended requests for their rows to be used again
        capped = Request(f"capped-{number}", sampling_params=hinted(adaptive_spec_k_cap=1))
        scheduler.running = [capped]
        driver.before_schedule()
    for number in range(20):
        driver.freed(f"capped-{number}")
    late = Request("late", sampling_params=SimpleNamespace(extra_args=None))  # no temperature yet
    scheduler.running = [late]
    # Read with defaults: one odd request must not stop the plans of all others.
    assert planned(driver).draft_possible.tolist() == [KMAX]


def test_lora_adapters_and_structured_output_are_told_apart() -> None:
    def task_of(adapter: str | None, structured: bool = False, **hints: Any) -> int:
        lora = None if adapter is None else SimpleNamespace(lora_name=adapter)
        name = f"{adapter}-{structured}-{hints}"
        request = Request(name, lora_request=lora, sampling_params=hinted(**hints))
        request.use_structured_output = structured
        scheduler.running = [request]
        [task] = planned(driver).task.tolist()
        driver.freed(name)
        return int(task)

    scheduler = scheduler_with()
    driver = driver_for(scheduler)
    code = {"adaptive_spec_task": "code"}
    kinds = [task_of(None), task_of("a"), task_of("b"), task_of(None, **code), task_of("a", **code)]
    kinds += [task_of(None, True), task_of("a", True), task_of(None, True, **code)]
    assert len(set(kinds)) == 8
    assert kinds[0] == -1
    assert task_of("a") == kinds[1]
    for number in range(300):
        task_of(f"adapter {number}")
        assert task_of("b") == kinds[2], "an adapter in use keeps its number"
    assert len({task_of("adapter 299"), task_of("adapter 299", **code), *kinds}) == 10
