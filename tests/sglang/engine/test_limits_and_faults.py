"""A full KV pool takes K to 0 and back."""

from dataclasses import replace
from typing import Any

import pytest
from records import outcomes, plans, read_settled
from serving import KMAX, PATIENT
from traffic import long_ones, mixed_lengths

pytestmark = [pytest.mark.engine, pytest.mark.long]

LARGEST = {"policy": "recorded_policies:LargestPolicy", "fail_open": PATIENT}
CONFIDENCE = {"ADAPTIVE_SPEC_SGLANG_CONFIDENCE": "1"}


MOST_FILLINGS = 24
"""Where the pool gets full depends on when requests arrive; one in a few takes K down to 0."""


@pytest.fixture(scope="module")
def guarded(shelf: Any) -> tuple[Any, dict[str, Any], list[dict[str, Any]]]:
    """The engine, its answers until K was taken to 0, and what its policy saw and was told."""
    engine = shelf.get("EAGLE", adaptive=LARGEST, variables=CONFIDENCE)
    answers = engine.run(mixed_lengths()) | engine.run(long_ones())
    for turn in range(MOST_FILLINGS):
        jobs = [*long_ones(), *long_ones()][turn % 8 :][: 7 - turn % 3]
        answers |= engine.run([replace(job, name=f"{job.name}.{turn}") for job in jobs])
        record = read_settled(engine.record_file)
        if any(line["k"] == 0 for line in under_pressure(record)):
            break
    answers |= engine.run([replace(long_ones()[0], name="long-0.after")])
    return engine, answers, read_settled(engine.record_file)


def under_pressure(record: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Steps in which cutting K helps: nobody waits, and bonus tokens have room but drafts don't."""
    return [
        line
        for line in plans(record)
        if not line["waiting"] and 0 <= line["kv_free"] - len(line["ids"]) < sum(line["possible"])
    ]


def test_kv_pressure_takes_k_to_zero_and_it_returns(guarded: Any, reference: Any) -> None:
    _, answers, record = guarded
    for name, answer in answers.items():
        assert answer.tokens == reference[name.partition(".")[0]].tokens, name
    pressed = under_pressure(record)
    for line in pressed:
        count = len(line["ids"])
        assert line["k"] <= (line["kv_free"] - count) // count, line
    ran = {line["step"]: max(line["verified"], default=0) for line in outcomes(record)}
    down = [line["step"] for line in pressed if line["k"] == 0]
    assert down
    assert {ran[step] for step in down} == {0}
    assert KMAX in [k for step, k in ran.items() if step < down[0]]
    assert KMAX in [k for step, k in ran.items() if step > down[0]], "K did not return"


def test_the_policy_sees_the_queue(guarded: Any) -> None:
    _, _, record = guarded
    assert max(line["waiting"] for line in plans(record)) >= 1


def test_the_drafters_confidence_arrives_if_asked_for(guarded: Any) -> None:
    _, _, record = guarded
    known = [
        value
        for line in plans(record)
        for row in line["confidence"] or ()
        for value in row
        if value is not None
    ]
    assert len(known) > 100
    assert all(0.0 < value <= 1.0 for value in known)
    assert len(set(known)) > 50
