"""Drafts of two sources in one batch: outputs stay those without speculation."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from engines import PATIENT, RANDOM, Job, check_same
from recording import record_steps
from scenarios import SCENARIOS, prompts

from adaptive_spec import check_adapter
from adaptive_spec.adapters.vllm import copied_drafts
from adaptive_spec.engines.driver import StepClock

pytest.importorskip("arctic_inference", reason="drafts are looked up by arctic-inference")
pytestmark = pytest.mark.engine

COPYING = {"max_tokens": 120}


def copying(count: int) -> list[Job]:
    """Texts that were begun twice already, so that much of the rest has been said before."""
    return [
        Job(f"copy-{index}", text * 2, index, COPYING)
        for index, text in enumerate(prompts(count, 17))
    ]


def penalised() -> list[Job]:
    """The same, every other one with a penalty."""
    return [
        Job(f"penalised-{index}", text * 2, index, COPYING | {"presence_penalty": index % 2 / 2})
        for index, text in enumerate(prompts(6, 17))
    ]


@pytest.fixture(scope="module")
def plain(shelf: Any) -> dict[str, Any]:
    """What both are answered without speculation."""
    answers = shelf.get().run(copying(6)) | shelf.get().run(penalised())
    return {name: answer.tokens for name, answer in answers.items()}


@pytest.mark.parametrize(
    ("method", "others", "asynchronous"),
    [
        ("draft_model", True, True),
        pytest.param("draft_model", True, False, marks=pytest.mark.long),
        pytest.param("draft_model", False, False, marks=pytest.mark.long),
        pytest.param("eagle", True, False, marks=pytest.mark.long),
        pytest.param("eagle", False, True, marks=pytest.mark.long),
    ],
)
def test_tokens_are_those_without_speculation_whatever_the_source(
    method: str,
    others: bool,
    asynchronous: bool,
    reference: dict[str, Any],
    plain: dict[str, Any],
    shelf: Any,
) -> None:
    adaptive = RANDOM | {"second_source": {"other_requests": others}}
    engine = shelf.get(method, adaptive=adaptive, asynchronous=asynchronous)
    record = record_steps(engine)
    before = engine.preemptions
    answers = engine.run(SCENARIOS["crowded"]())
    copied = engine.run(copying(6))
    check_same(answers, reference["crowded"])
    for name, answer in copied.items():
        assert answer.tokens == plain[name], name
    assert engine.preemptions - before >= 5
    counters = engine.controller.counters
    assert counters.failures == {}
    assert not counters.events.keys() & {"lookup_failed", "lookup_not_copied", "lookup_slow"}
    counts = counters.lookup
    assert counts["verified"] > 300
    assert 100 < counts["accepted"] <= counts["verified"] < counts["found"]
    mixed = [
        plan
        for _, plan, outcome in record
        if outcome and 0 < plan.from_lookup.sum() < len(plan.verify)
    ]
    assert len(mixed) > 20, "requests of a batch should have had different sources"
    check_adapter(record, live_requests=len(engine.controller.slots))


@pytest.mark.parametrize("scenario", ["with_logprobs", "with_aborts", "with_stops"])
@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.long
def test_tokens_of_other_traffic_are_those_without_speculation(
    scenario: str, asynchronous: bool, reference: dict[str, Any], shelf: Any
) -> None:
    adaptive = RANDOM | {"second_source": {}}
    engine = shelf.get("draft_model", adaptive=adaptive, asynchronous=asynchronous)
    before = engine.controller.counters.lookup["verified"]
    answers = engine.run(SCENARIOS[scenario]())
    for name, answer in reference[scenario].items():
        if name in answers and answer.reasons != ["abort"]:
            assert answers[name].tokens == answer.tokens, name
    assert engine.controller.counters.failures == {}
    assert engine.controller.counters.lookup["verified"] > before


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.long
def test_goodput_takes_copied_drafts_where_text_copies(
    shelf: Any, plain: dict[str, Any], asynchronous: bool
) -> None:
    adaptive = {"policy": "goodput", "second_source": {}, "fail_open": PATIENT}
    engine = shelf.get("draft_model", adaptive=adaptive, asynchronous=asynchronous)
    for _ in range(3):
        for name, answer in engine.run(copying(6)).items():
            assert answer.tokens == plain[name], name
    counts = engine.controller.counters.lookup
    assert counts["accepted"] > 0.5 * counts["verified"] > 0
    assert engine.controller.counters.failures == {}


def test_penalties_hold_for_copied_drafts_with_asynchronous_scheduling(
    shelf: Any, plain: dict[str, Any]
) -> None:
    adaptive = RANDOM | {"second_source": {"other_requests": True}}
    engine = shelf.get("draft_model", adaptive=adaptive, asynchronous=True)
    before = engine.controller.counters.lookup["verified"]
    engine.runner.draft_token_ids_cpu.fill_(2**40)  # as memory may be that nobody wrote
    for name, answer in engine.run(penalised()).items():
        assert answer.tokens == plain[name], name
    assert engine.controller.counters.lookup["verified"] > before


def test_a_worker_that_does_not_copy_is_found_out(
    shelf: Any,
    plain: dict[str, Any],
    said: Callable[[], list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nothing_is_copied(expected: Any, emitted: Any, own: Any) -> Any:
        raise RuntimeError("planted")

    adaptive = RANDOM | {"second_source": {"other_requests": True}}
    engine = shelf.get("draft_model", adaptive=adaptive, asynchronous=True)
    events = engine.controller.counters.events
    monkeypatch.setattr(copied_drafts, "following", nothing_is_copied)
    for name, answer in engine.run(copying(6)).items():
        assert answer.tokens == plain[name], name
    assert events["lookup_not_copied"] >= 1
    assert sum("drafts are not copied: RuntimeError: planted" in line for line in said()) == 1


def test_the_worker_is_told_of_every_draft_that_its_drafter_did_not_sample(
    shelf: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever fails on the way, and where a step has no room for all requests."""
    engine = shelf.get(
        "draft_model",
        adaptive=RANDOM | {"second_source": {"other_requests": True}},
        speculation={"draft_sample_method": "probabilistic"},
        max_num_batched_tokens=14,
        num_gpu_blocks_override=64,
    )
    scheduler, counters = engine.scheduler, engine.controller.counters
    schedule, update = scheduler.schedule, scheduler.update_draft_token_ids
    sampled: dict[str, list[int]] = {}
    copied, without_room = 0, 0

    def record(drafts: Any) -> None:
        sampled.update(zip(drafts.req_ids, map(list, drafts.draft_token_ids), strict=True))
        update(drafts)

    def check(*throttled: bool) -> Any:
        nonlocal copied, without_room
        output = schedule(*throttled)
        told = getattr(output, copied_drafts.MESSAGE, None)
        for name, tokens in output.scheduled_spec_decode_tokens.items():
            if told is None or name not in told.names:
                assert tokens == sampled.get(name, [])[: len(tokens)], name
            else:
                copied += 1
        running = {request.request_id for request in scheduler.running}
        without_room += len(running - output.num_scheduled_tokens.keys())
        return output

    class FailsNowAndThen(StepClock):
        calls = 0

        def launched(self, now: float, *, under_way: int) -> float:
            self.calls += 1
            if self.calls % 40 == 0:
                raise RuntimeError("planted")
            return super().launched(now, under_way=under_way)

    monkeypatch.setattr(scheduler, "update_draft_token_ids", record)
    monkeypatch.setattr(scheduler, "schedule", check)
    monkeypatch.setattr(scheduler.adaptive_spec, "_step_clock", FailsNowAndThen())
    options = {"max_tokens": 60, "temperature": 0.8}
    jobs = [Job(f"row-{row}", [20 + row, 21, 22, 23, 24] * 2, 0, options) for row in range(12)]
    engine.run(jobs)
    assert copied > 50, copied
    assert without_room > 5, without_room
    assert counters.failures
    # A worker that could not be prepared says nothing, and is handed nothing.
    worker = engine.core.model_executor.driver_worker.worker
    monkeypatch.setattr(worker, "_adaptive_spec_copies", None)
    before = copied
    engine.run(jobs)
    assert copied == before


def test_drafts_that_vllm_fills_up_for_an_admitted_request_weigh_nothing() -> None:
    """vLLM puts -1 in their place, and its sampler draws in theirs from the target."""
    import torch

    class Runner:
        num_spec_tokens = 2
        _draft_token_ids = draft_token_ids_cpu = None
        _draft_probs = torch.tensor([[[0.5, 0.5, 0.0]] * 2] * 2)
        _draft_prob_req_ids = ("copies", "drafts")
        input_batch = SimpleNamespace(req_ids=("copies", "drafts", "admitted"))

        def propose_draft_token_ids(self) -> None: ...

        def _get_spec_decode_draft_probs(self, metadata: Any) -> None: ...

    runner = Runner()
    copies = copied_drafts.copies_for(runner)
    copies.before(copied_drafts.Copied(["copies"], [], []))
    scheduled = SimpleNamespace(
        draft_token_ids=torch.tensor([2, 1, 0, 1, -1, -1]), num_draft_tokens=[2, 2, 2]
    )
    found: Any = runner._get_spec_decode_draft_probs(scheduled)
    assert found.tolist() == [
        *([0, 0, 1], [0, 1, 0]),
        *([0.5, 0.5, 0], [0.5, 0.5, 0]),
        *([0, 0, 0], [0, 0, 0]),
    ]


def test_what_the_setup_does_not_allow_is_said_and_left_out(
    shelf: Any, said: Callable[[], list[str]]
) -> None:
    engine = shelf.get("ngram", adaptive=RANDOM | {"second_source": {}})
    (line,) = [line for line in said() if "mode=on" in line]
    assert "second_source=no (ngram" in line
    engine.run(copying(2))
    assert engine.controller.counters.lookup["found"] == 0
    assert engine.controller.counters.failures == {}
