"""The step driver in a scheduler loop: sync and overlapped, and with faults."""

import itertools
import math
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from policies_for_tests import RecordingPolicy
from scheduler_loop import LADDER, Batch, Loop, Request, Result

from adaptive_spec import check_adapter
from adaptive_spec.adapters.sglang.outcome import FOUND, Reading, RunningStep, build_outcome
from adaptive_spec.adapters.sglang.prompt_steps import PromptSteps
from adaptive_spec.config import Config, FailOpen
from adaptive_spec.engines.driver import StepClock
from adaptive_spec.operation.run_time_switch import SwitchRequest
from adaptive_spec.step import Capability, FinishedStep, Level, SpecPlan, StepContext
from tests.steps import context

OVERLAP = pytest.mark.parametrize("overlap", [False, True], ids=["sync", "overlap"])


@OVERLAP
def test_k_follows_the_plans_through_the_whole_ladder(overlap: bool) -> None:
    loop = Loop(overlap=overlap)
    policy = RecordingPolicy()
    loop.attach(policy, config=Config(memory_guard=False))
    loop.run(400)
    loop.drain()
    assert {k for _, k in loop.history} == set(LADDER)
    assert [(o.batch_size, o.draft_depth) for o in policy.outcomes] == loop.history
    for outcome in policy.outcomes:
        assert outcome.draft_depth <= policy.k_of(outcome.step, LADDER)


class WatchingPolicy(RecordingPolicy):
    """Notes whether the device works while it plans and learns."""

    def __init__(self, loop: Loop) -> None:
        super().__init__()
        self._loop = loop
        self.planned: dict[int, bool] = {}
        self.learned: list[bool] = []

    def plan(self, context: StepContext) -> SpecPlan:
        self.planned[context.step] = self._loop.device_works
        return super().plan(context)

    def observe(self, step: FinishedStep) -> None:
        self.learned.append(self._loop.device_works)
        super().observe(step)


def test_the_plain_loop_plans_and_learns_while_the_device_works() -> None:
    loop = Loop(seed=8)
    policy = WatchingPolicy(loop)
    loop.attach(policy, config=Config(memory_guard=False))
    loop.run(400)
    loop.drain()
    assert len(policy.learned) > 200
    assert sum(policy.learned) > 0.9 * len(policy.learned), "an idle loop learns at once"
    ran = [policy.planned[outcome.step] for outcome in policy.outcomes]
    assert sum(ran) > 0.9 * len(ran), "most plans that ran were made ahead"


@pytest.mark.parametrize(("strangers", "planned_anew"), [(1, False), (4, True)])
def test_a_plan_made_ahead_holds_for_a_batch_that_is_nearly_the_same(
    strangers: int, planned_anew: bool
) -> None:
    loop = Loop(seed=9)
    policy = WatchingPolicy(loop)
    driver = loop.attach(policy, config=Config(memory_guard=False))
    for _ in range(5):
        loop.arrive(most=50)
    for _ in range(8):
        loop.turn()
    more = [Request(f"stranger{number}", 5, 50) for number in range(strangers)]
    loop.running_batch.reqs = [*loop.running_batch.reqs, *more]
    policy.planned.clear()
    loop.turn()
    assert (False in policy.planned.values()) == planned_anew
    loop.turn()
    assert set(policy.contexts[-1].request_ids) > {request.rid for request in more}
    assert not driver.controller.counters.failures


def test_a_switch_voids_the_plan_made_ahead() -> None:
    loop = Loop(seed=10)
    driver = loop.attach(RecordingPolicy(), config=Config(memory_guard=False))
    loop.arrive(most=100)
    for _ in range(10):
        loop.turn()
    driver.controller.switch(SwitchRequest(mode="off"))
    own = [loop.own.get_steps_for_batch(1)]
    for _ in range(5):
        loop.turn()
        own.append(loop.own.get_steps_for_batch(1))
    assert [k for _, k in loop.history[-5:]] == own[:-1]


@OVERLAP
def test_labels_are_what_the_engine_counts_itself(overlap: bool) -> None:
    loop = Loop(overlap=overlap, seed=3)
    policy = RecordingPolicy()
    driver = loop.attach(policy)
    loop.run(600)
    loop.drain()
    counted = sum(r.counted for r in loop.all)
    assert driver.controller.counters.accepted == counted
    # Requests that join a batch whose plan is made are learned from one step later.
    learned = sum(int(o.accepted.sum()) for o in policy.outcomes)
    assert learned == counted if overlap else learned > 0.9 * counted
    most = [min(len(r.output_ids), r.sampling_params.max_new_tokens) for r in loop.all]
    decoded = sum(max(tokens - 1, 0) for tokens in most)
    assert decoded - 2 * len(loop.all) <= driver.controller.counters.emitted <= decoded
    for outcome in policy.outcomes:
        assert (outcome.accepted <= outcome.verified).all()
        assert outcome.batch_tokens == outcome.batch_size * (outcome.draft_depth + 1)
    steps = [outcome.step for outcome in policy.outcomes]
    assert steps == sorted(steps)


@OVERLAP
def test_what_is_recorded_passes_the_conformance_suite(overlap: bool) -> None:
    loop = Loop(overlap=overlap, seed=4)
    policy = RecordingPolicy()
    driver = loop.attach(policy, config=Config(memory_guard=False), dwell=3)
    loop.run(500)
    loop.drain()
    outcomes = {outcome.step: outcome for outcome in policy.outcomes}
    # Few requests: many a plan made ahead was for another batch.
    assert len(outcomes) > (0.9 if overlap else 0.7) * len(policy.contexts)
    # One K for all: a request near its end runs what the batch runs, as with the engine's own K.
    steps = [
        (context, plan, outcomes.get(context.step))
        for context, plan in zip(policy.contexts, policy.plans, strict=True)
    ]
    driver.sweep(())
    check_adapter(steps, live_requests=len(driver.controller.slots))


@OVERLAP
def test_no_request_is_remembered_after_it_has_gone(overlap: bool) -> None:
    loop = Loop(overlap=overlap, seed=5)
    driver = loop.attach(RecordingPolicy())
    loop.run(2000)
    # Aborted ones in the queue are only found by the sweep.
    assert len(driver.controller.slots) <= 2 * 6 + 64
    assert driver.controller.slots.capacity < 200
    loop.drain()
    loop.arrive(most=4)
    loop.drain()
    assert loop.all[-1].rid not in driver.controller.slots


def test_drafts_that_could_only_be_wasted_are_not_offered() -> None:
    loop = Loop()
    policy = RecordingPolicy()
    loop.attach(policy, config=Config(memory_guard=False))
    request = loop.arrive(most=5)
    loop.drain()
    assert len(request.output_ids) == 5
    lefts = [int(c.draft_available[0]) for c in policy.contexts]
    assert max(lefts) <= 3  # 4 to go after the prompt, one of them the bonus token
    assert (np.array([c.draft_possible[0] for c in policy.contexts]) <= 2).all()


def test_the_context_says_what_the_scheduler_knows() -> None:
    loop = Loop(most_running=1)
    policy = RecordingPolicy()
    loop.attach(policy, config=Config(memory_guard=False, hints=("k_cap", "task", "tpot_ms")))
    hints = {"adaptive_spec": {"k_cap": 1, "tpot_ms": 50, "task": "code"}}
    loop.arrive(hints, most=9)
    loop.arrive(most=9)
    for _ in range(3):
        loop.turn()
    context = policy.contexts[0]
    assert context.request_ids == ["r0"]
    # Planned ahead, while the prompt was read.
    assert context.context_tokens[0] == len(loop.all[0].origin_input_ids)
    assert context.waiting == 1
    assert context.kv_free_tokens == 5000
    assert context.kv_total_tokens == 8000
    assert context.tpot_target[0] == pytest.approx(0.05)
    assert context.task[0] == 0
    assert context.temperature[0] == 0.0
    assert max(int(c.draft_available.max()) for c in policy.contexts) == 1


def test_clients_who_want_no_drafts_have_opted_out() -> None:
    loop = Loop(most_running=2)
    policy = RecordingPolicy()
    loop.attach(policy, config=Config(memory_guard=False))
    loop.arrive({"adaptive_spec": {"off": True}}, most=9)
    loop.arrive(most=9)
    for _ in range(3):
        loop.turn()
    opted_out = policy.contexts[-1].opted_out
    assert opted_out.tolist() == [True, False]


def test_kv_pressure_takes_k_to_zero_and_back() -> None:
    loop = Loop(most_running=4)
    policy = RecordingPolicy(hold=10**6)
    policy.k_of = lambda step, ladder: ladder[-1]
    loop.attach(policy)
    for _ in range(4):
        loop.arrive(most=500)
    loop.run(20, arrivals=False)
    assert loop.history[-1][1] == LADDER[-1]
    loop.token_to_kv_pool_allocator.free = loop.tree_cache.evictable = 2
    loop.run(5, arrivals=False)
    assert loop.history[-1][1] == 0
    loop.token_to_kv_pool_allocator.free = 4000
    loop.run(5, arrivals=False)
    assert loop.history[-1][1] == LADDER[-1]


@OVERLAP
def test_a_raising_policy_runs_the_engines_own_k(overlap: bool) -> None:
    loop = Loop(overlap=overlap)
    policy = RecordingPolicy(fails=1)
    driver = loop.attach(policy, config=Config(fail_open=FailOpen(failures_to_bench=10**9)))
    stock = Loop(overlap=overlap)
    for each in (loop, stock):
        each.run(300)
        each.drain()
    assert loop.history == stock.history
    status = driver.controller.status()
    assert set(status["steps_by_mode"]) == {"engine"}
    assert status["steps_by_mode"]["engine"] >= len(loop.history)
    assert status["fail_opens"]["plan raised RuntimeError"] == status["steps_by_mode"]["engine"]


@pytest.mark.parametrize("broken", ["origin_input_ids", "sampling_params", "rid"])
def test_a_fault_of_a_hook_never_gets_out(broken: str) -> None:
    loop = Loop()
    driver = loop.attach(RecordingPolicy())
    loop.run(50)
    for _ in range(3):
        loop.arrive()
    delattr(loop.waiting_queue[0], broken)
    batch = Batch([loop.waiting_queue.pop(0)])
    driver.before_run(batch)
    # Constants that cannot be read have defaults; a request without a name has no place at all.
    assert (driver.decided_k(1) is None) == (broken == "rid")
    driver.read(Result([1], 1), batch)
    driver.read(object(), batch)
    driver.applied(batch)
    driver.applied(object())
    loop.run(200)
    assert driver.controller.counters.failures
    assert driver.controller.counters.steps > 100


def test_shadow_leaves_the_engines_schedule_as_it_was() -> None:
    loop, stock = Loop(seed=9), Loop(seed=9)
    policy = RecordingPolicy()
    driver = loop.attach(policy, config=Config(mode="shadow"), watching=True)
    for each in (loop, stock):
        each.run(300)
    assert loop.history == stock.history
    assert loop.own.fed == stock.own.fed
    assert len(policy.contexts) >= len(loop.history)
    engine_k = {context.step: context.engine_k for context in policy.contexts}
    assert policy.outcomes
    for outcome in policy.outcomes:
        assert outcome.draft_depth == engine_k[outcome.step], "the K that SGLang's schedule ran"
    driver.controller.switch(SwitchRequest(mode="on"))
    loop.run(100)
    assert {k for _, k in loop.history[-80:]} == set(LADDER)
    driver.controller.switch(SwitchRequest(mode="off"))
    loop.run(2)
    asked = len(policy.contexts)
    loop.run(50)
    assert len(policy.contexts) == asked


def test_the_control_file_switches_between_two_steps(tmp_path: Path) -> None:
    control, now = tmp_path / "control.json", [0.0]

    def clock() -> float:
        now[0] += 0.25
        return now[0]

    loop = Loop(seed=8)
    policy = RecordingPolicy()
    config = Config(memory_guard=False, control_file=str(control))
    driver = loop.attach(policy, config=config, clock=clock)
    loop.run(50)
    control.write_text('{"mode": "off"}')
    loop.run(30)
    asked = len(policy.contexts)
    assert driver.watching
    loop.run(50)
    assert len(policy.contexts) == asked
    control.write_text('{"mode": "on", "policy": "static"}')
    loop.run(30)
    assert driver.controller.policy.name == "static"
    assert not driver.watching


def test_the_own_schedule_learns_only_from_steps_that_ran_its_k() -> None:
    loop = Loop()
    loop.attach(RecordingPolicy())
    own_k = []
    own = loop.own.on_verify_complete
    loop.own.on_verify_complete = lambda correct, batch_size: (
        own_k.append(loop._k) or own(correct, batch_size)
    )
    before = loop.own.get_steps_for_batch
    loop.run(300)
    assert own_k
    assert len(own_k) < len(loop.history)
    assert before(1) in LADDER


@pytest.mark.parametrize("dwell", [1, 40])
def test_graphs_limit_k_to_what_was_captured(dwell: int) -> None:
    loop = Loop(most_running=4)
    loop.own.cuda_graph_bs_for_step = lambda step: {
        0: [4, 8],
        1: [1, 2, 4, 8],
        3: [1, 2],
        5: [1],
        7: [],
    }[step]
    loop.params.set_cuda_graph_bs([8, 1, 4, 2])
    for k in LADDER:
        loop.params.cuda_graph_bs_for_step(k)
    assert loop.params.runnable(1) == (1, 3, 5)
    assert loop.params.runnable(3) == (0, 1)
    assert loop.params.runnable(9) == LADDER
    loop.attach(RecordingPolicy(), config=Config(memory_guard=False), dwell=dwell)
    loop.run(400)
    assert all(k in loop.params.runnable(size) for size, k in loop.history)
    seen = {k for size, k in loop.history if size == 1}
    assert seen == {1, 3, 5} if dwell == 1 else seen <= {1, 3, 5}


def test_dwell_limits_the_rate_of_changes() -> None:
    loop = Loop(seed=2)
    driver = loop.attach(RecordingPolicy(), config=Config(memory_guard=False), dwell=10)
    loop.run(1000)
    ks = [k for _, k in loop.history]
    changes = sum(a != b for a, b in itertools.pairwise(ks))
    assert changes == driver.limit.changes
    assert 20 < changes <= len(ks) / 10 + 8
    assert driver.limit.held > 0


def test_a_batch_that_was_not_planned_runs_the_own_k_and_is_counted() -> None:
    loop = Loop()
    driver = loop.attach(RecordingPolicy(), config=Config(memory_guard=False))
    loop.run(30)
    driver.before_run(Batch(loop.running_batch.reqs[:1]))
    assert driver.decided_k(1) is not None
    assert driver.decided_k(2) is None
    assert driver.controller.counters.failures == {"hook decided_k raised ValueError": 1}


def test_filler_in_place_of_drafts_is_rejected_also_where_it_is_right() -> None:
    """An NGRAM tree without a match is filled up, and costs as much as one of drafts."""
    requests = [Request(f"r{number}", 5, 50) for number in range(4)]
    requests[1].aborted = True
    result = Result([1, 1, 3, 4], tokens=4)
    vars(result)[FOUND] = np.array([0, 2, 2, 1])
    step = RunningStep([request.rid for request in requests])
    capability = Capability(level=Level.UNIFORM, max_draft_tokens=3)
    step.context = context(4, capability, request_ids=step.names)
    reading = Reading(step, 0.01, 1.0, result, Batch(requests), lambda tokens: tokens - 1)
    outcome = build_outcome(reading, lambda name, request: 0)
    assert outcome.slots.tolist() == [0, 2, 3]
    assert outcome.verified.tolist() == [3, 3, 3]
    assert outcome.accepted.tolist() == [0, 2, 1]


FIXED, EACH = 0.007, 2e-5
"""Seconds of a batch of prompts, and of each of its tokens."""


def after(steps: int, prompts: list[int], pause: float = 0.0) -> PromptSteps:
    """Decode steps of 10 ms; before each of them as many prompts as listed, in turn."""
    chance, clock, now = random.Random(1), StepClock(), 100.0
    found = PromptSteps(clock)
    for step in range(steps):
        if count := prompts[step % len(prompts)]:
            now += pause
            tokens = count * chance.randint(200, 900)
            found.launched(now, under_way=0)
            now += FIXED + EACH * tokens
            found.record(now, count, tokens)
        not_before = clock.launched(now, under_way=0)
        now += 0.010
        clock.completed(not_before, now)
        found.decoded()
    return found


def shared(prompts: float) -> float:
    """Seconds that a step counts, with this mean number of prompts behind each."""
    return FIXED * (1.0 - (1.0 + prompts) * math.exp(-prompts))


@pytest.mark.parametrize("prompts", [[3], [0, 3], [1, 3, 2]])
def test_a_step_counts_the_fixed_time_that_prompts_share(prompts: list[int]) -> None:
    mean = sum(prompts) / len(prompts)
    assert after(400, prompts).shared_seconds == pytest.approx(shared(mean), rel=0.03)


def test_rare_prompts_cost_the_same_whatever_k_is() -> None:
    assert after(600, [1, *[0] * 19]).shared_seconds < 0.002 * FIXED


def test_a_pause_is_no_time_of_prompts() -> None:
    assert after(400, [2, 3], pause=60.0).shared_seconds == pytest.approx(shared(2.5), rel=0.03)


def test_batches_of_one_size_tell_nothing_of_their_fixed_time() -> None:
    clock = StepClock()
    found = PromptSteps(clock)
    for step in range(50):
        found.launched(step * 0.01, under_way=0)
        found.record(step * 0.01 + 0.008, 2, 100)
        found.decoded()
    assert found.shared_seconds == 0.0


def test_shadow_share_runs_other_k_in_blocks_and_counts_them() -> None:
    def ran(share: float) -> tuple[Loop, Counter[tuple[str, str]]]:
        loop = Loop(seed=3)
        driver = loop.attach(RecordingPolicy(), config=Config(mode="shadow", shadow_share=share))
        loop.run(2_000)
        return loop, driver.controller.counters.reasons

    stock = Loop(seed=3)
    stock.run(2_000)
    watched, reasons = ran(0.0)
    assert watched.history == stock.history
    assert not any("shadow tries" in reason for _, reason in reasons)
    shared, reasons = ran(0.5)
    tried = sum(count for (_, reason), count in reasons.items() if "shadow tries" in reason)
    assert 0.35 < tried / sum(reasons.values()) < 0.65
    assert {k for _, k in shared.history} == set(LADDER)
