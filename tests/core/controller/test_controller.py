"""The controller never raises and never hands out a plan the engine cannot run."""

import itertools
import logging
import time
import tracemalloc
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from adaptive_spec import Capability, Config, Controller, Level, Mode, SpecPlan, build_policy
from adaptive_spec.config import FailOpen, Trace
from adaptive_spec.controller.faults import FORGIVEN_AFTER, Breaker
from adaptive_spec.controller.kv_guard import affordable_drafts, limit_to_memory
from adaptive_spec.operation.segments import read_trace
from adaptive_spec.policies.static import StaticOptions, StaticPolicy
from adaptive_spec.step import FinishedStep, StepContext
from tests import steps
from tests.core.controller.answers import FULL, Answer, context, controller, outcome, plan


def raises(_: StepContext) -> SpecPlan:
    raise RuntimeError("boom")


def sleeps(context: StepContext) -> SpecPlan:
    time.sleep(0.25)
    return plan(context)


def burns(context: StepContext) -> SpecPlan:
    began = time.thread_time()
    while time.thread_time() < began + 0.03:
        pass
    return plan(context)


FAULTS = {
    "raises": raises,
    "sleeps": sleeps,
    "burns": burns,
    "none": None,
    "a string": "K = 3",
    "nan": lambda c: plan(c, verify=np.array([np.nan, 1.0, 0.0])),
    "floats": lambda c: plan(c, verify=np.array([1.0, 1.0, 0.0])),
    "wrong length": lambda c: plan(c, verify=np.array([1])),
    "a list": lambda c: plan(c, verify=[1, 1, 0]),
    "too many": lambda c: plan(c, verify=np.array([1, 3, 0])),
    "negative": lambda c: plan(c, verify=np.array([1, -1, 0])),
    "depth too deep": lambda c: plan(c, draft_depth=5),
    "depth negative": lambda c: plan(c, draft_depth=-1),
    "depth nan": lambda c: plan(c, draft_depth=float("nan")),
    "a note of another batch": lambda c: plan(c, notes=(np.zeros(2),)),
    "infinite prediction": lambda c: plan(c, predicted_seconds=float("inf")),
    "infinite tokens": lambda c: plan(c, predicted_tokens=float("inf")),
    "no prediction": lambda c: plan(c, predicted_tokens=None),
    "no reason": lambda c: plan(c, reason=None),
    "mode as text": lambda c: plan(c, mode="on"),
    "depth of numpy": lambda c: plan(c, draft_depth=np.float32(2)),
    "depth true": lambda c: plan(c, draft_depth=True),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_policy_leaves_the_engines_own_k(
    fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    broken = controller(FAULTS[fault])
    with caplog.at_level(logging.WARNING):
        for step in range(3):
            got = broken.plan(context(step))
            assert got.mode is Mode.ENGINE
            assert got.verify.tolist() == [3, 2, 0]
            assert got.draft_depth == 3
    assert sum(broken.status()["fail_opens"].values()) == 3
    assert len([r for r in caplog.records if "own K" in r.getMessage()]) == 1


@pytest.mark.parametrize("place", ["decision_seconds", "count_plan"])
def test_what_fails_around_the_policy_is_counted_not_raised(
    monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    built = controller(lambda seen: plan(seen))

    def fails(*_: Any) -> None:
        raise OSError("disk")

    with monkeypatch.context() as patch:
        patch.setattr(built._counters, place, fails)
        for step in range(20):
            decided = built.plan(context(step))
            assert decided.mode is Mode.ENGINE
            built.observe(outcome(step))
    assert built.counters.failures == {"decision raised OSError": 20}
    assert not built.status()["benched"]
    assert built.plan(context(20)).mode is Mode.ON


def test_a_policy_that_ends_the_process_while_it_prepares_is_counted() -> None:
    class Ends(Answer):
        @staticmethod
        def prepare() -> None:
            raise SystemExit(1)

    of = Controller(Ends(plan), FULL, Config())
    assert sum(of.counters.failures.values()) == 1
    assert of.plan(context(0)).mode is Mode.ON


def test_a_good_plan_is_handed_on_unchanged() -> None:
    good = controller(plan)
    got = good.plan(context(0))
    assert (got.mode, got.verify.tolist(), got.draft_depth) == (Mode.ON, [1, 1, 0], 2)
    assert good.status()["fail_opens"] == {}


def test_a_policy_that_keeps_failing_is_benched_and_tried_again() -> None:
    policy = Answer(raises)
    bench = Controller(
        policy, FULL, Config(fail_open=FailOpen(failures_to_bench=3, bench_seconds=10.0))
    )
    for step in range(20):
        bench.plan(context(step, now=1.0))
    assert policy.asked == 3
    assert bench.status()["benched"]
    policy.answer = plan
    assert bench.plan(context(21, now=5.0)).mode is Mode.ENGINE
    assert bench.plan(context(22, now=11.5)).mode is Mode.ON
    assert not bench.status()["benched"]


def test_a_clock_that_jumps_back_does_not_bench_for_ever() -> None:
    policy = Answer(raises)
    bench = Controller(
        policy, FULL, Config(fail_open=FailOpen(failures_to_bench=1, bench_seconds=10.0))
    )
    bench.plan(context(0, now=1e6))
    policy.answer = plan
    assert bench.plan(context(1, now=0.0)).mode is Mode.ON


class UnspeakableError(Exception):
    """An error that cannot be told."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize("error", [ValueError("no"), UnspeakableError()])
def test_observe_and_forget_that_raise_are_counted_not_raised(error: Exception) -> None:
    class Forgetful(Answer):
        def observe(self, step: FinishedStep) -> None:
            raise error

        def forget(self, slots: np.ndarray) -> None:
            raise error

    forgetful = Controller(Forgetful(plan), FULL)
    forgetful.slots.assign("a")
    forgetful.plan(context(0))
    forgetful.observe(outcome(0))
    forgetful.finish(["a", "unknown"])
    assert sum(forgetful.status()["fail_opens"].values()) == 2
    assert len(forgetful.slots) == 0


def test_shadow_runs_the_engines_k_and_records_what_was_wanted(tmp_path: Path) -> None:
    shadow = controller(plan, mode="shadow", trace=Trace(directory=str(tmp_path)))
    got = shadow.plan(context(0))
    assert (got.mode, got.verify.tolist(), got.draft_depth) == (Mode.SHADOW, [3, 2, 0], 3)
    shadow.observe(outcome(0))
    shadow.close()
    [record] = read_trace(tmp_path)
    assert record["wanted_k"] == [1, 1, 0]
    assert record["k"] == [3, 2, 0]


@pytest.mark.slow
def test_shadow_runs_another_k_in_the_stated_share_of_steps(tmp_path: Path) -> None:
    folder = Trace(directory=str(tmp_path))
    shadow = controller(plan, mode="shadow", shadow_share=0.25, trace=folder)
    plans = []
    for step in range(4_000):
        plans.append(shadow.plan(context(step)))
        shadow.observe(outcome(step))
    tried = [each for each in plans if each.acts]
    assert 0.2 < len(tried) / len(plans) < 0.3
    assert {each.draft_depth for each in tried} == {0, 1, 2, 3, 4}
    assert all(each.verify.tolist() == [min(n, each.draft_depth) for n in (4, 2, 0)]
               for each in tried)  # fmt: skip
    again = controller(plan, mode="shadow", shadow_share=0.25)
    assert [again.plan(context(step)).draft_depth for step in range(800)] == [
        each.draft_depth for each in plans[:800]
    ]


def test_shadow_forced_by_the_engine_never_runs_another_k() -> None:
    config = Config(mode="shadow", shadow_share=1.0)
    target = Controller(Answer(plan), FULL, config, only_watch="pipelines")
    assert not any(target.plan(context(step)).acts for step in range(100))


class Listener(Answer):
    """Notes the step's number for each request, and keeps what comes back."""

    def __init__(self) -> None:
        super().__init__(lambda c: plan(c, notes=(np.full(3, c.step),), memo=c.step))
        self.heard: list[FinishedStep] = []

    def observe(self, step: FinishedStep) -> None:
        self.heard.append(step)


def test_a_policy_gets_back_its_plan_for_requests_still_alive() -> None:
    policy = Listener()
    target = Controller(policy, FULL)
    for number in range(4):
        target.plan(context(number))
    alive = msgspec.structs.replace(
        outcome(2),
        slots=np.array([2, 0]),
        verified=np.array([0, 1]),
        accepted=np.array([0, 1]),
        emitted=np.array([1, 2]),
    )
    target.observe(alive)
    [step] = policy.heard
    assert (step.plan.memo, step.plan.notes[0].tolist()) == (2, [2, 2])
    assert step.context.request_ids == ["c", "a"]
    assert step.plan.verify.tolist() == [0, 1]


def test_in_shadow_a_policy_gets_its_own_plan_back() -> None:
    policy = Listener()
    target = Controller(policy, FULL, Config(mode="shadow"))
    target.plan(context(0))
    target.observe(outcome(0))
    [step] = policy.heard
    assert (step.plan.memo, step.plan.verify.tolist()) == (0, [1, 1, 0])
    assert step.outcome.verified.tolist() == [3, 2, 0]


def test_a_policy_sees_the_drafts_that_memory_left_it() -> None:
    policy = Listener()
    policy.answer = lambda c: plan(c, verify=np.zeros(3, dtype=np.int64))
    target = Controller(policy, FULL)
    target.plan(context(0, kv_free_tokens=3 + 3))
    target.observe(outcome(0))
    assert policy.heard[0].context.draft_available.tolist() == [1, 1, 0]


def test_a_step_nobody_planned_is_counted_and_not_learned_from() -> None:
    policy = Listener()
    target = Controller(policy, FULL)
    target.observe(outcome(5))
    assert policy.heard == []
    assert target.status()["accepted_tokens"] == 3


def test_after_a_fault_the_plan_that_comes_back_is_the_engines_own() -> None:
    policy = Listener()
    policy.answer = lambda c: plan(c, draft_depth=99, memo="kept")
    target = Controller(policy, FULL)
    target.plan(context(0))
    target.observe(outcome(0))
    [step] = policy.heard
    assert (step.plan.mode, step.plan.memo) == (Mode.ENGINE, None)


def test_switched_off_at_run_time_the_policy_is_not_asked() -> None:
    policy = Answer(plan)
    switched = Controller(policy, FULL)
    switched.mode = "off"
    assert switched.plan(context(0)).mode is Mode.ENGINE
    assert policy.asked == 0


BY_BLOCKS = np.array([0, 4, 4])


@pytest.mark.parametrize(
    ("seen", "k"),
    [
        ({"kv_free_tokens": 1000}, [4, 2, 0]),
        ({"kv_free_tokens": 3 + 3}, [1, 1, 0]),  # bonus positions, and one draft each
        ({"kv_free_tokens": 3}, [0, 0, 0]),
        # Giving them up would prevent no preemption.
        ({"kv_free_tokens": 2}, [4, 2, 0]),
        ({"kv_free_tokens": 6, "waiting": 5}, [4, 2, 0]),
        # The engine knows its blocks: only requests without one are cut.
        ({"kv_free_tokens": 3, "kv_draft_limit": BY_BLOCKS}, [0, 2, 0]),
        ({"kv_free_tokens": 3, "kv_draft_limit": np.array([4, 4, 4])}, [4, 2, 0]),
        ({"kv_draft_limit": BY_BLOCKS, "waiting": 1}, [0, 2, 0]),
    ],
)
def test_drafts_are_given_up_before_the_kv_pool_runs_out(
    seen: dict[str, Any], k: list[int]
) -> None:
    policy = StaticPolicy(StaticOptions(k=4))
    guarded = Controller(policy, FULL)
    assert guarded.plan(context(0, **seen)).verify.tolist() == k
    assert guarded.status()["events"] == ({} if k == [4, 2, 0] else {"steps_cut_for_memory": 1})
    unguarded = Controller(policy, FULL, Config(memory_guard=False))
    assert unguarded.plan(context(0, **seen)).verify.tolist() == [4, 2, 0]


def test_copied_drafts_need_memory_too() -> None:
    seen = context(
        0,
        draft_available=np.zeros(3, dtype=np.int64),
        lookup_available=np.array([4, 4, 0]),
        lookup_match=np.array([9, 9, 0]),
        kv_free_tokens=3 + 3,
    )
    assert limit_to_memory(seen).lookup_available.tolist() == [1, 1, 0]


@pytest.mark.parametrize(("free", "k"), [(3 + 3 * 4, 4), (3 + 3 * 4 - 1, 3)])
def test_memory_is_short_from_one_token_below_kmax_for_everybody(free: int, k: int) -> None:
    guarded = Controller(StaticPolicy(StaticOptions(k=4)), FULL, Config())
    seen = context(0, draft_available=np.full(3, 4), kv_free_tokens=free)
    assert guarded.plan(seen).verify.tolist() == [k] * 3


def test_a_policy_that_waits_for_the_processor_is_not_late(monkeypatch: pytest.MonkeyPatch) -> None:
    wall = itertools.count(step=0.1)
    monkeypatch.setattr("time.perf_counter", lambda: next(wall))
    good = controller(plan)
    for step in range(20):
        assert good.plan(context(step)).mode is Mode.ON


def test_an_engines_k_that_its_ladder_lacks_is_rounded_for_the_policy() -> None:
    uniform = Capability(level=Level.UNIFORM, max_draft_tokens=4, ladder=(0, 2, 4))
    for name in ("static", "goodput"):
        cold = Controller.from_config(Config(policy=name), uniform)
        for step in range(5):
            got = cold.plan(context(step, capability=uniform, draft_available=np.full(3, 4)))
            assert got.mode is not Mode.ENGINE, name


def test_uniform_engines_refuse_ragged_plans() -> None:
    uniform = Capability(level=Level.UNIFORM, max_draft_tokens=4, ladder=(0, 2, 4))
    c = context(0, capability=uniform, draft_available=np.array([4, 4, 1]))
    for verify, fine in (([2, 2, 1], True), ([2, 1, 1], False), ([3, 3, 1], False)):
        got = Controller(Answer(plan(c, verify=np.array(verify))), uniform).plan(c)
        assert (got.mode is Mode.ON) is fine


def test_failures_are_forgiven_after_many_good_decisions() -> None:
    breaker = Breaker(FailOpen(failures_to_bench=3))
    for _ in range(4):
        assert not breaker.failed(0.0)
        assert not breaker.failed(0.0)
        for _ in range(FORGIVEN_AFTER):
            breaker.succeeded()
    assert [breaker.failed(0.0) for _ in range(3)] == [False, False, True]


def test_a_fault_in_counting_the_end_of_a_request_neither_raises_nor_keeps_its_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policy, forgotten = StaticPolicy(StaticOptions()), []
    of = Controller(policy, FULL, Config())
    slot = of.slots.assign("a")

    def broken(slots: Any) -> None:
        raise ValueError(f"slots {slots}")

    monkeypatch.setattr(of._counters, "ending", broken)
    monkeypatch.setattr(policy, "forget", forgotten.append)
    of.finish(["a"])
    assert [slots.tolist() for slots in forgotten] == [[slot]]
    assert sum(of.counters.failures.values()) == 1
    assert not len(of.slots)


@pytest.mark.parametrize(("free", "k"), [(2, 1), (6, 1), (9, 3), (12, 5)])
def test_trimming_stays_on_the_ladder(free: int, k: int) -> None:
    context = steps.context(
        2,
        Capability(level=Level.UNIFORM, max_draft_tokens=5, ladder=(1, 3, 5)),
        context_tokens=[10, 20],
        kv_free_tokens=free,
    )
    assert affordable_drafts(context) == k


LIVE, BATCH, KMAX = 100_000, 250, 6
MOST_BYTES = 100e6


@pytest.mark.slow
def test_a_hundred_thousand_live_requests_hold_less_than_100_mb() -> None:
    """With confidence, labels, targets and look-ups, so that every array per request is in use."""
    capability = Capability(max_draft_tokens=KMAX, level=Level.FULL)
    random, row = np.random.default_rng(0), np.ones(BATCH, dtype=np.int64)
    tracemalloc.start()
    controller = Controller(build_policy("goodput", seed=1), capability)
    for step in range(LIVE // BATCH):
        names = [f"cmpl-{step}-{number}" for number in range(BATCH)]
        slots = np.array([controller.slots.assign(name) for name in names])
        context = steps.context(
            capability=capability,
            step=step,
            request_ids=names,
            slots=slots,
            context_tokens=500,
            tpot_target=0.01 * row,
            task=slots % 5 - 1,
            confidence=random.random((BATCH, KMAX)),
            lookup_available=3 * row,
            lookup_match=5 * row,
            now=0.02 * step,
        )
        plan = controller.plan(context)
        accepted = np.minimum(random.geometric(0.3, BATCH) - 1, plan.verify)
        controller.observe(
            steps.outcome(
                context,
                plan.verify,
                accepted,
                draft_depth=plan.draft_depth,
                seconds=0.02,
                now=0.02 * step + 0.02,
                lookup_agreed=np.minimum(accepted, 3),
            )
        )
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(controller.slots) == LIVE
    assert held < MOST_BYTES
