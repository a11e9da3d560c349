"""Drafts of two sources in one batch: outputs stay those without speculation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from engines import KMAX, Job
from recording import record_steps
from scenarios import SCENARIOS, prompts

from adaptive_spec import check_adapter
from adaptive_spec.adapters.vllm.lookup import LookUp, agreement
from adaptive_spec.config import SecondSource

pytest.importorskip("arctic_inference", reason="drafts are looked up by arctic-inference")
pytestmark = pytest.mark.engine

COPYING = {"max_tokens": 120}


def copying(count: int) -> list[Job]:
    """Texts that were begun twice already, so that much of the rest has been said before."""
    return [
        Job(f"copy-{index}", text * 2, index, COPYING)
        for index, text in enumerate(prompts(count, 17))
    ]


@pytest.mark.parametrize("method", ["draft_model", pytest.param("eagle", marks=pytest.mark.long)])
@pytest.mark.parametrize("others", [pytest.param(False, marks=pytest.mark.long), True])
def test_tokens_are_those_without_speculation_whatever_the_source(
    method: str,
    others: bool,
    reference: dict[str, Any],
    shelf: Any,
    random_policy: dict[str, Any],
) -> None:
    plain = shelf.get().run(copying(6))
    adaptive = random_policy | {"second_source": {"other_requests": others}}
    engine = shelf.get(method, adaptive=adaptive)
    record = record_steps(engine)
    before = engine.preemptions
    answers = engine.run(SCENARIOS["crowded"]())
    copied = engine.run(copying(6))
    for name, answer in reference["crowded"].items():
        assert answers[name].tokens == answer.tokens, name
    for name, answer in plain.items():
        assert copied[name].tokens == answer.tokens, name
    assert engine.preemptions - before >= 10
    counters = engine.controller.counters
    assert counters.failures == {}
    assert not counters.events.keys() & {"lookup_failed", "lookup_slow"}
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


@pytest.mark.long
def test_goodput_takes_copied_drafts_where_text_copies(shelf: Any) -> None:
    plain = shelf.get().run(copying(6))
    adaptive = {"policy": "goodput", "second_source": {}, "fail_open": {"max_decision_ms": 60_000}}
    engine = shelf.get("draft_model", adaptive=adaptive)
    for _ in range(3):
        answers = engine.run(copying(6))
        assert {name: answer.tokens for name, answer in answers.items()} == {
            name: answer.tokens for name, answer in plain.items()
        }
    counts = engine.controller.counters.lookup
    assert counts["accepted"] > 0.5 * counts["verified"] > 0
    assert engine.controller.counters.failures == {}


def test_what_the_setup_does_not_allow_is_said_and_left_out(
    shelf: Any, random_policy: dict[str, Any], said: Callable[[], list[str]]
) -> None:
    engine = shelf.get(
        "draft_model", adaptive=random_policy | {"second_source": {}}, asynchronous=True
    )
    (line,) = [line for line in said() if "mode=on" in line]
    assert "second_source=no (asynchronous scheduling" in line
    engine.run(copying(2))
    assert engine.controller.counters.lookup["found"] == 0
    assert engine.controller.counters.failures == {}


class Request:
    """The part of vLLM's request that a look-up reads."""

    def __init__(self, name: str, prompt: list[int], output: list[int]) -> None:
        self.request_id = name
        self.prompt_token_ids = prompt
        self.all_token_ids = prompt + output


def test_a_look_up_that_fails_is_left_out_counted_and_said_once(
    said: Callable[[], list[str]],
) -> None:
    events: list[str] = []
    lookup = LookUp(SecondSource(), events.append)
    request = Request("a", [1, 2, 3, 4, 1, 2], [3])
    lookup.take_up([request])
    most = np.array([KMAX])
    found = lookup.find([request], most)
    assert found is not None
    assert found.tokens[0][:1] == [4]
    lookup._trees = None  # as broken as can be
    assert lookup.find([request], most) is None
    assert events == ["lookup_failed"]
    assert lookup.find([request], most) is None, "it is not asked again at once"
    lookup.take_up([request])
    lookup.forget(["a"])
    assert events == ["lookup_failed"]
    assert sum("not looked up" in line for line in said()) == 1


def test_drafts_agree_up_to_the_first_wrong_one_or_the_end_of_what_was_emitted() -> None:
    found = [[1, 2, 3], [1, 2, 3], [], [5]]
    assert agreement(found, [[1, 2, 9, 9], [1, 2], [7], [6, 5]]).tolist() == [2, 2, 0, 0]


def test_prompts_are_taken_up_a_bounded_number_of_tokens_at_a_time() -> None:
    lookup = LookUp(SecondSource(), lambda event: None)
    long = [[place % 1000 + 5000 * which for place in range(30_000)] for which in range(3)]
    requests = [Request(str(which), prompt, prompt[:3]) for which, prompt in enumerate(long)]
    most = np.full(3, KMAX)
    found = []
    for _ in range(3):
        lookup.take_up(requests)
        now = lookup.find(requests, most)
        assert now is not None
        found.append(np.count_nonzero(now.available))
    assert found == [1, 2, 3]
