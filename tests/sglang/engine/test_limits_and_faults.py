"""A full KV pool takes K to 0 and back; a policy that fails leaves the server as it was."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from records import outcomes, plans, read, read_settled, settled_status
from serving import KMAX, PATIENT
from traffic import SCENARIOS, long_ones, mixed_lengths

pytestmark = pytest.mark.engine

FRAGILE = {"policy": "recorded_policies:FragilePolicy", "fail_open": PATIENT}
CONFIDENCE = {"ADAPTIVE_SPEC_SGLANG_CONFIDENCE": "1"}


MOST_FILLINGS = 24
"""Where the pool gets full depends on when requests arrive; one in a few takes K down to 0."""


@pytest.fixture(scope="module")
def fragile(shelf: Any) -> tuple[Any, dict[str, Any]]:
    """An engine with the memory guard, and its first answers."""
    engine = shelf.get("EAGLE", adaptive=FRAGILE, variables=CONFIDENCE)
    return engine, engine.run(mixed_lengths())


@pytest.fixture(scope="module")
def guarded(fragile: Any) -> tuple[Any, dict[str, Any], list[dict[str, Any]]]:
    """The engine, its answers until K was taken to 0, and what its policy saw and was told."""
    engine, answers = fragile
    answers = answers | engine.run(long_ones())
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


@pytest.mark.long
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


@pytest.mark.long
def test_the_policy_sees_the_queue(guarded: Any) -> None:
    _, _, record = guarded
    assert max(line["waiting"] for line in plans(record)) >= 1


@pytest.mark.long
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


def test_a_raising_policy_leaves_the_server_correct(fragile: Any, reference: Any) -> None:
    engine, _ = fragile
    planned = len(plans(read(engine.record_file)))
    before = settled_status(engine.status_file, planned)
    assert before["fail_opens"] == {}
    accepted = 0
    for make in SCENARIOS.values():
        jobs = make()
        answers = engine.run([replace(job, name=f"fails-{job.name}") for job in jobs])
        for job in jobs:
            answer = answers[f"fails-{job.name}"]
            assert answer.tokens == reference[job.name].tokens, job.name
            accepted += answer.meta.get("spec_num_correct_drafts", 0)
    assert accepted > 100, "SGLang's own speculation should go on"
    found = settled_status(engine.status_file, planned + 100)
    modes = Counter(found["steps_by_mode"]) - Counter(before["steps_by_mode"])
    assert set(modes) == {"engine"}, "a step without a plan runs SGLang's own K"
    assert set(found["fail_opens"]) == {
        f"{method} raised RuntimeError" for method in ("plan", "observe", "forget")
    }
    assert found["benched"]
    said = [line for line in engine.log.splitlines() if "planned failure" in line]
    assert len(said) == 3, "once for each method"
