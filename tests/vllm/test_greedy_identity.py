"""Greedy output is token-identical to no speculation while K changes at every step."""

import json
from typing import Any

import pytest
from engines import RANDOM, check_same
from recording import record_steps
from scenarios import SCENARIOS, SCHEMA

from adaptive_spec import check_adapter

pytestmark = pytest.mark.engine
TRAFFIC = [
    pytest.param(name, marks=[pytest.mark.every_version] if name == "crowded" else [])
    for name in SCENARIOS
]

CONFIGURATIONS = [
    ("draft_model", False),
    ("draft_model", True),
    ("eagle", False),
    ("eagle", True),
    ("ngram", False),
    ("suffix", False),
]
"""(method, asynchronous); vLLM has no asynchronous scheduling for ngram and suffix."""


@pytest.fixture(
    scope="module",
    params=CONFIGURATIONS,
    ids=[f"{method}-{'async' if ahead else 'sync'}" for method, ahead in CONFIGURATIONS],
)
def adaptive(request: pytest.FixtureRequest, reference: dict[str, Any], shelf: Any) -> Any:
    method, asynchronous = request.param
    if method == "suffix":
        pytest.importorskip("arctic_inference", reason="suffix decoding needs arctic-inference")
    return shelf.get(method, adaptive=RANDOM, asynchronous=asynchronous)


@pytest.mark.parametrize("scenario", TRAFFIC)
def test_tokens_are_those_without_speculation(
    adaptive: Any, reference: dict[str, Any], scenario: str
) -> None:
    record = record_steps(adaptive)
    before = adaptive.preemptions
    answers = adaptive.run(SCENARIOS[scenario]())
    expected = reference[scenario]
    check_same(answers, expected)
    kinds = {int(k) for _, plan, outcome in record if outcome for k in plan.verify}
    assert len(kinds) > 2, "K did not vary"
    assert adaptive.controller.counters.failures == {}
    check_adapter(record, live_requests=len(adaptive.controller.slots))
    if scenario == "structured":
        check_structured(answers)
    if scenario == "with_logprobs":
        check_logprobs(answers, expected)
    if scenario == "crowded":
        assert adaptive.preemptions - before >= 5
        assert any(outcome.prefill_tokens for _, _, outcome in record if outcome)
        mixed = [plan for _, plan, outcome in record if outcome and outcome.ragged]
        assert len(mixed) > 10, "requests of a batch should have run with different K"


def check_structured(answers: dict[str, Any]) -> None:
    for name, answer in answers.items():
        if name.startswith("json-") and answer.reasons == ["stop"]:
            assert set(json.loads(answer.text[0])) == set(SCHEMA["properties"])


def check_logprobs(answers: dict[str, Any], expected: dict[str, Any]) -> None:
    for name, wanted in expected.items():
        for place, other in zip(answers[name].logprobs[0], wanted.logprobs[0], strict=True):
            assert place == pytest.approx(other, abs=1e-3)


def test_nothing_is_left_of_ended_requests(adaptive: Any) -> None:
    driver = adaptive.scheduler.adaptive_spec
    assert len(adaptive.controller.slots) == 0
    assert len(driver._pending) == 0
    assert not driver._ended
    assert not adaptive.scheduler.requests
