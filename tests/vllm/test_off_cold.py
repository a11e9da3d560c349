"""OFF-cold: the drafter does not run, and requests it has lost are not drafted for."""

import pickle
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from engines import KMAX, RANDOM, Job, check_same
from scenarios import SCENARIOS, prompts
from switchable_policies import ColdForAWhile, CopiesWithoutDrafter, RandomPolicy

from adaptive_spec.adapters.vllm.drafter_state import LEAVE_OUT, DrafterState, LeaveOut
from adaptive_spec.adapters.vllm.requests import RequestReader
from adaptive_spec.engines.hints import NO_CAP
from adaptive_spec.engines.request_table import RequestTable
from adaptive_spec.operation.status import Counters
from adaptive_spec.per_request import RequestSlots
from adaptive_spec.step import Mode, SpecPlan


def test_leaving_out_is_a_zero_that_survives_the_way_to_a_worker() -> None:
    arrived = pickle.loads(pickle.dumps(LEAVE_OUT))
    assert isinstance(arrived, LeaveOut)
    assert arrived == 0
    assert [-1] * arrived == []


class Known:
    """A request as it enters the table."""

    sampling_params = lora_request = None
    use_structured_output = False
    num_prompt_tokens, max_tokens = 30, 40

    def __init__(self, name: str) -> None:
        self.request_id = name


def test_who_ran_without_the_drafter_is_not_drafted_for_again() -> None:
    slots, counters = RequestSlots(), Counters()
    table = RequestTable(slots, RequestReader(counters.ignored_hint).read)
    state = DrafterState(table, counters)
    requests = {name: Known(name) for name in "abc"}
    table.enter("a", requests["a"])
    table.enter("c", requests["c"])
    cold = SimpleNamespace(  # b reads its prompt
        num_scheduled_tokens={"a": 1, "b": 30}, num_spec_tokens_to_schedule=LEAVE_OUT
    )
    state.launched(_with_drafter(32), requests)
    assert counters.events == {}
    state.launched(cold, requests)
    state.launched(cold, requests)
    rows = table.rows_of(list("abc"), list(requests.values()))
    assert rows.draft_cap.tolist() == [0, 0, NO_CAP]
    assert counters.events["requests_not_drafted_after_off_cold"] == 2
    assert len(slots.without_drafter) == 2
    state.launched(_with_drafter(0, 32, 64), requests)
    assert counters.events["prefixes_reused_after_off_cold"] == 2
    for name in "abc":
        slots.release(name)
    assert not slots.without_drafter
    for turn in range(40):  # whoever gets the rows next is drafted for
        rows = table.rows_of([f"later-{turn}"], [Known(f"later-{turn}")])
        assert rows.draft_cap.tolist() == [NO_CAP]


def _with_drafter(*reused: int) -> Any:
    """A step whose drafter runs, and that admits requests with so many tokens in the cache."""
    admitted = [SimpleNamespace(num_computed_tokens=count) for count in reused]
    return SimpleNamespace(scheduled_new_reqs=admitted, num_spec_tokens_to_schedule=KMAX)


def cold_policy(cold_from: int, cold_to: int) -> ColdForAWhile:
    return ColdForAWhile(KMAX, cold_from, cold_to)


@pytest.fixture(
    params=[pytest.param(False, id="sync", marks=pytest.mark.long), pytest.param(True, id="async")]
)
def engine(request: pytest.FixtureRequest, reference: dict[str, Any], shelf: Any) -> Any:
    engine = shelf.get("draft_model", adaptive=RANDOM, asynchronous=request.param)
    controller = engine.controller
    policy, config = controller.policy, controller.config
    patient = msgspec.structs.replace(config.fail_open, max_decision_ms=60_000)
    controller.config = msgspec.structs.replace(config, fail_open=patient)
    controller.counters.__init__()
    yield engine
    controller.policy, controller.config = policy, config
    controller.counters.__init__()


def drafted(answer: Any) -> int:
    metrics = answer.metrics[0]
    return sum(metrics.per_step_drafted) if metrics else 0


@pytest.mark.engine
def test_the_drafter_does_not_run_while_cold(engine: Any, reference: dict[str, Any]) -> None:
    engine.controller.policy = cold_policy(1, 1 << 30)
    before = engine.drafter_passes
    answers = engine.run(SCENARIOS["with_logprobs"]())
    assert engine.drafter_passes == before
    check_same(answers, reference["with_logprobs"])
    assert engine.controller.counters.failures == {}
    assert engine.controller.counters.verified == 0


@pytest.mark.engine
def test_requests_of_a_cold_time_stay_undrafted(engine: Any, reference: dict[str, Any]) -> None:
    """Cold while the first requests run; the second ones come after it."""
    always = cold_policy(0, 0)
    texts = prompts(8, 77)
    later = [Job(f"later-{n}", text, 40, {"max_tokens": 64}) for n, text in enumerate(texts[4:])]
    engine.controller.policy = always
    expected = engine.run(later)
    engine.scheduler.reset_prefix_cache()
    engine.controller.counters.__init__()
    # A long enough time that nothing of the first requests' drafts is left.
    policy = engine.controller.policy = cold_policy(6, 30)
    first = [Job(f"first-{n}", text, 0, {"max_tokens": 120}) for n, text in enumerate(texts[:4])]
    counts: list[tuple[int, int]] = []

    def watch(step: int) -> None:
        counts.append((policy.steps, engine.drafter_passes))

    answers = engine.run([*first, *later], watch)
    during = {passes for steps, passes in counts if 8 <= steps < 30}
    assert len(during) == 1, "the drafter ran while it was cold"
    for job in later:
        assert answers[job.name].tokens == expected[job.name].tokens
    then, now = acceptance(expected, "later"), acceptance(answers, "later")
    assert now > 0.9 * then, (now, then)
    # Five steps of K = 4 at most, before it went cold.
    assert all(drafted(answers[job.name]) <= 5 * KMAX for job in first)
    events = engine.controller.counters.events
    assert events["requests_not_drafted_after_off_cold"] == len(first)
    assert engine.controller.counters.failures == {}
    assert len(engine.controller.slots) == 0


def acceptance(answers: dict[str, Any], begins: str) -> float:
    chosen = [answer.metrics[0] for name, answer in answers.items() if name.startswith(begins)]
    accepted = sum(sum(metrics.per_step_accepted) for metrics in chosen)
    return float(accepted / sum(sum(metrics.per_step_drafted) for metrics in chosen))


class OftenCold(RandomPolicy):
    """OFF_COLD in four steps of twenty, random K in the others."""

    def plan(self, context: Any) -> SpecPlan:
        plan = super().plan(context)
        if context.step % 20 >= 4:
            return plan
        return SpecPlan(
            step=context.step,
            verify=np.zeros_like(plan.verify),
            draft_depth=0,
            mode=Mode.OFF_COLD,
            reason="cold",
        )


@pytest.mark.engine
def test_tokens_are_those_without_speculation_while_it_comes_and_goes(
    engine: Any, reference: dict[str, Any]
) -> None:
    engine.controller.policy = OftenCold(seed=3)
    answers = engine.run(SCENARIOS["crowded"]())
    check_same(answers, reference["crowded"])
    counters = engine.controller.counters
    assert counters.failures == {}
    assert counters.modes["off_cold"] > 20
    assert counters.verified > 0
    assert counters.events["requests_not_drafted_after_off_cold"] > 0


@pytest.mark.engine
def test_suffix_trees_are_not_asked_while_it_is_cold(
    reference: dict[str, Any], shelf: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("arctic_inference", reason="suffix decoding needs arctic-inference")
    engine = shelf.get("suffix", adaptive=RANDOM)
    controller, trees = engine.controller, engine.runner.drafter.suffix_cache
    speculate, asked, mode = trees.speculate, [], []

    def counted(*args: Any, **options: Any) -> Any:
        asked.append(mode[-1])
        return speculate(*args, **options)

    class Watched(OftenCold):
        def plan(self, context: Any) -> SpecPlan:
            plan = super().plan(context)
            mode.append(plan.mode)
            return plan

    monkeypatch.setattr(trees, "speculate", counted)
    monkeypatch.setattr(controller, "policy", Watched(seed=3))
    controller.counters.__init__()
    answers = engine.run(SCENARIOS["crowded"]())
    check_same(answers, reference["crowded"])
    assert controller.counters.failures == {}
    assert mode.count(Mode.OFF_COLD) > 20
    assert set(asked) == {Mode.ON}
    assert controller.counters.verified > 0
    assert not controller.slots.without_drafter


@pytest.mark.engine
@pytest.mark.parametrize("asynchronous", [pytest.param(False, marks=pytest.mark.long), True])
def test_copied_drafts_go_on_without_the_drafter(
    asynchronous: bool, reference: dict[str, Any], shelf: Any
) -> None:
    pytest.importorskip("arctic_inference", reason="drafts are looked up by arctic-inference")
    adaptive = RANDOM | {"second_source": {"other_requests": True}}
    engine = shelf.get("draft_model", adaptive=adaptive, asynchronous=asynchronous)
    controller = engine.controller
    policy, controller.policy = controller.policy, CopiesWithoutDrafter(KMAX)
    try:
        engine.run(SCENARIOS["with_logprobs"]())  # to be looked up
        passes, verified = engine.drafter_passes, controller.counters.lookup["verified"]
        answers = engine.run(SCENARIOS["with_logprobs"]())
    finally:
        controller.policy = policy
    assert engine.drafter_passes == passes
    check_same(answers, reference["with_logprobs"])
    counters = controller.counters
    assert counters.failures == {}
    assert counters.lookup["verified"] - verified > 50
    assert "lookup_not_copied" not in counters.events
