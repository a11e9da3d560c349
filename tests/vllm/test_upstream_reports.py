"""Public bug reports: drafts that no drafter has made are neither verified nor learned."""

from __future__ import annotations

import random
from typing import Any

import pytest
from engines import Job
from scenarios import prompts

pytestmark = pytest.mark.engine

PATIENT = {"max_decision_ms": 60_000}
GOODPUT = {"policy": "goodput", "kernel": "numpy", "fail_open": PATIENT}
RANDOM = {
    "policy": "switchable_policies:RandomPolicy",
    "seed": 5,
    "memory_guard": False,
    "fail_open": PATIENT,
}
CROWDED = {"max_num_batched_tokens": 16, "max_num_seqs": 12, "num_gpu_blocks_override": 80}


def crowd() -> list[Job]:
    """Twelve requests that 16 tokens a step cannot all serve."""
    draw = random.Random(4)
    texts: list[Any] = [
        [draw.randrange(3, 2048) for _ in range(5)] if number % 2 else prompt[:24]
        for number, prompt in enumerate(prompts(12, 21))
    ]
    return [Job(f"r{n}", text, 0, {"max_tokens": 40}) for n, text in enumerate(texts)]


@pytest.mark.parametrize("adaptive", [GOODPUT, RANDOM], ids=["goodput", "random"])
def test_a_request_left_out_of_a_step_verifies_no_stale_placeholder(
    shelf: Any, adaptive: dict[str, Any]
) -> None:
    """vllm#46899: with an exhausted token budget, V1 verified -1."""
    engine = shelf.get("draft_model", adaptive=adaptive, asynchronous=True, **CROWDED)
    runner, scheduler = engine.runner, engine.scheduler
    prepare, schedule = runner._prepare_input_ids, scheduler.schedule
    impossible = left_out = 0

    def prepared(output: Any, requests: int, total: int, *args: Any, **kwargs: Any) -> Any:
        nonlocal impossible
        done = prepare(output, requests, total, *args, **kwargs)
        impossible += int((runner.input_ids.gpu[:total] < 0).sum())
        return done

    def scheduled(*args: Any, **kwargs: Any) -> Any:
        nonlocal left_out
        output = schedule(*args, **kwargs)
        if output.total_num_scheduled_tokens:
            running = {request.request_id for request in scheduler.running}
            left_out += len(running - set(output.num_scheduled_tokens))
        return output

    runner._prepare_input_ids, scheduler.schedule = prepared, scheduled
    answers = engine.run(crowd())
    shelf.clear()
    assert left_out, "the budget was never exhausted"
    assert impossible == 0
    want = shelf.get(**CROWDED).run(crowd())
    assert {name: each.tokens for name, each in answers.items()} == {
        name: each.tokens for name, each in want.items()
    }


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_beside_a_request_beyond_the_drafter_nothing_is_verified_or_learned(
    shelf: Any, asynchronous: bool
) -> None:
    """vllm#52762: V1 then drafts for nobody in the batch and hands out zeros as drafts."""
    texts = prompts(10, 33)
    short = [Job(f"s{n}", text[:60], n, {"max_tokens": 60}) for n, text in enumerate(texts[:3])]
    long = Job("long", texts[5] + texts[6] + texts[7], 0, {"max_tokens": 120})
    beside = [long, *(Job(job.name, job.prompt, job.arrives + 2, job.options) for job in short)]
    engine = shelf.get(
        "draft_model",
        adaptive=GOODPUT,
        asynchronous=asynchronous,
        speculation={"max_model_len": 150},
        num_gpu_blocks_override=64,
    )
    counters = engine.controller.counters
    engine.run(short)
    before = engine.controller.counters.verified, counters.accepted
    assert before[1] > 0.5 * before[0]
    engine.run(beside)
    verified = engine.controller.counters.verified - before[0]
    accepted = engine.controller.counters.accepted - before[1]
    # Some steps run without the long request, before it is too long or after its end.
    assert accepted >= 0.4 * verified
    again = engine.controller.counters.verified
    engine.run(short)
    assert engine.controller.counters.verified - again > 0.5 * before[0], "it drafts again"
    assert not counters.failures


def test_drafts_behind_a_stop_are_no_labels(shelf: Any) -> None:
    """vllm#56101: vLLM counts drafts as accepted that it cuts off behind a stop."""
    options = {"max_tokens": 30, "ignore_eos": False, "stop_token_ids": list(range(300, 700))}
    jobs = [Job(f"s{n}", text, n, options) for n, text in enumerate(prompts(12, 33))]
    static = {"policy": "static", "options": {"k": 4}, "kernel": "numpy", "fail_open": PATIENT}
    engine = shelf.get("draft_model", adaptive=static)
    counters = engine.controller.counters
    before = counters.accepted, counters.emitted
    vllm_accepted = 0
    own = engine.scheduler.make_spec_decoding_stats

    def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal vllm_accepted
        vllm_accepted += kwargs["num_accepted_tokens"]
        return own(*args, **kwargs)

    engine.scheduler.make_spec_decoding_stats = counted
    engine.run(jobs)
    shelf.clear()
    counters.count()
    accepted, emitted = counters.accepted - before[0], counters.emitted - before[1]
    assert accepted < vllm_accepted, "no stop fell into an accepted prefix"
    assert accepted <= emitted
