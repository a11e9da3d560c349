"""TensorRT-LLM's schedule and gates as baselines: their rules, with their faults."""

from typing import Any

import numpy as np
import pytest

from adaptive_spec import Capability, Level, Mode, SpecPlan
from adaptive_spec.policy import Policy
from adaptive_spec.step import FinishedStep, StepContext
from tests import steps
from tests.sim.baselines.baseline_support import build_baseline, finished

MODULE = "adaptive_spec.sim.baselines.engines.tensorrt_llm_gates"
WINDOW_GATE = f"{MODULE}:TensorRTLLMWindowGatePolicy"
REQUEST_GATE = f"{MODULE}:TensorRTLLMRequestGatePolicy"
SCHEDULE = "adaptive_spec.sim.baselines.engines.tensorrt_llm_schedule:TensorRTLLMSchedulePolicy"
WINDOW = {"acceptance_rate_window_size": 3, "acceptance_rate_threshold": 0.5}
REQUESTS = {"acceptance_window": 3, "acceptance_length_threshold": 1.0}


def context(batch: int = 2, *, ladder: tuple[int, ...] = (0, 1, 2, 3, 5)) -> StepContext:
    return steps.context(
        batch,
        Capability(level=Level.UNIFORM, max_draft_tokens=5, ladder=ladder, cold_off=True),
        context_tokens=10,
    )


def plan(policy: Policy, **changes: Any) -> SpecPlan:
    return policy.plan(context(**changes))


def ended(policy: Policy, accepted: list[int], slot: int = 0) -> None:
    """A request of so many steps, with these accepted drafts, comes and goes."""
    for count in accepted:
        policy.observe(finished([5], [count], slots=np.array([slot])))
    policy.forget(np.array([slot]))


@pytest.mark.parametrize(
    ("batch", "k"), [(1, 5), (4, 5), (5, 2), (8, 2), (9, 1), (32, 1), (33, 0), (256, 0)]
)
def test_a_key_of_the_schedule_is_the_largest_batch_of_its_k(batch: int, k: int) -> None:
    chosen = plan(build_baseline(SCHEDULE, {"schedule": [[4, 5], [8, 2], [32, 1]]}), batch=batch)
    assert (chosen.draft_depth, chosen.verify.tolist()) == (k, [k] * batch)
    assert chosen.mode is (Mode.ON if k else Mode.OFF_COLD)


NONE, ALL = finished([5], [0]), finished([5], [5])


@pytest.mark.parametrize(
    ("ran", "open_"),
    [
        pytest.param([NONE] * 2, True, id="the window is not full"),
        pytest.param([NONE] * 3, False, id="the window is full"),
        pytest.param([finished([2, 2], [2, 0])] * 3, True, id="at the threshold"),
        pytest.param(
            [*[finished([2, 2], [2, 0])] * 3, finished([4, 4], [2, 1])], False, id="below it"
        ),
        pytest.param([*[ALL] * 50, NONE, NONE], False, id="old iterations leave the window"),
        pytest.param([*[NONE] * 3, *[ALL] * 1000], False, id="once closed, closed for ever"),
        pytest.param([finished([0, 0], [0, 0])] * 10, True, id="without drafts, no sample"),
        pytest.param(
            [finished([5] * 64, [5] * 64), NONE, NONE], False, id="whatever its batch, one sample"
        ),
    ],
)
def test_the_window_gate(ran: list[FinishedStep], open_: bool) -> None:
    policy = build_baseline(WINDOW_GATE, {**WINDOW, "k": 3})
    for step in ran:
        policy.observe(step)
    made = plan(policy)
    expected = (3, [3, 3], Mode.ON) if open_ else (0, [0, 0], Mode.OFF_COLD)
    assert (made.draft_depth, made.verify.tolist(), made.mode) == expected


def test_the_request_gate_only_learns_from_requests_that_have_ended() -> None:
    policy = build_baseline(REQUEST_GATE, {**REQUESTS, "k": 3})
    for _ in range(100):
        policy.observe(finished([3, 3, 3, 3], [0, 0, 0, 0]))
    assert plan(policy).draft_depth == 3
    policy.forget(np.array([0, 1]))
    assert plan(policy).draft_depth == 3
    policy.forget(np.array([2]))
    assert plan(policy).draft_depth == 0


def test_the_prompts_pass_counts_as_an_iteration_of_the_request() -> None:
    # 3 steps accept 4 drafts: 8 tokens in 4 iterations is a length of 1, not 4 / 3.
    at_threshold = build_baseline(REQUEST_GATE, REQUESTS)
    below = build_baseline(REQUEST_GATE, {**REQUESTS, "acceptance_length_threshold": 1.01})
    for policy in (at_threshold, below):
        for _ in range(3):
            ended(policy, [2, 2, 0])
    assert plan(at_threshold).mode is Mode.ON
    assert plan(below).mode is Mode.OFF_COLD


def test_a_slot_that_is_used_again_starts_from_nothing() -> None:
    policy = build_baseline(REQUEST_GATE, REQUESTS)
    ended(policy, [5] * 50, slot=7)
    for _ in range(2):
        ended(policy, [0], slot=7)
    # (250 / 51 + 0 + 0) / 3 is above 1; carried over, the later ones would be longer still.
    assert plan(policy).mode is Mode.ON
    ended(policy, [0], slot=7)
    assert plan(policy).mode is Mode.OFF_COLD


def test_a_schedule_with_k_0_closes_the_request_gate_only() -> None:
    schedule = {"schedule": [[2, 5]]}
    requests = build_baseline(REQUEST_GATE, {**REQUESTS, **schedule})
    window = build_baseline(WINDOW_GATE, {**WINDOW, **schedule})
    for policy in (requests, window):
        for _ in range(3):
            for _ in range(20):
                policy.observe(finished([0, 0, 0], [0, 0, 0]))
            policy.forget(np.array([0, 1, 2]))
    assert plan(requests, batch=2).draft_depth == 0
    assert plan(window, batch=2).draft_depth == 5


@pytest.mark.parametrize("name", [WINDOW_GATE, REQUEST_GATE])
def test_a_gate_runs_the_schedule_while_it_is_open(name: str) -> None:
    own = WINDOW if name == WINDOW_GATE else REQUESTS
    policy = build_baseline(name, {**own, "schedule": [[2, 5], [8, 2]]})
    assert [plan(policy, batch=size).draft_depth for size in (2, 3, 9)] == [5, 2, 0]


def test_off_is_the_smallest_k_where_the_engine_cannot_run_none() -> None:
    policy = build_baseline(WINDOW_GATE, WINDOW)
    for _ in range(3):
        policy.observe(finished([5], [0]))
    least = plan(policy, ladder=(1, 2, 3, 5))
    assert (least.draft_depth, least.mode) == (1, Mode.ON)
