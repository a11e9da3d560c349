"""A full KV pool takes K to 0 and back; a policy that fails leaves the server as it was."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from records import plans, read, settled_status
from serving import KMAX, PATIENT
from traffic import SCENARIOS, long_ones, mixed_lengths

pytestmark = pytest.mark.engine

FRAGILE = {"policy": "recorded_policies:FragilePolicy", "fail_open": PATIENT}
CONFIDENCE = {"ADAPTIVE_SPEC_SGLANG_CONFIDENCE": "1"}


@pytest.fixture(scope="module")
def guarded(shelf: Any) -> tuple[Any, dict[str, Any], list[dict[str, Any]]]:
    """An engine with the memory guard, its answers, and what its policy saw."""
    engine = shelf.get("EAGLE", adaptive=FRAGILE, variables=CONFIDENCE)
    answers = engine.run(long_ones())
    answers |= engine.run(mixed_lengths())
    for count in (7, 6, 5):  # the pool fills up at other steps
        jobs = [replace(job, name=f"{job.name}.{count}") for job in long_ones()[:count]]
        answers |= engine.run(jobs)
    return engine, answers, plans(read(engine.record_file))


def test_kv_pressure_takes_k_to_zero_and_it_returns(guarded: Any, reference: Any) -> None:
    """Only where cutting helps: nobody waits, and there is room for the bonus tokens."""
    _, answers, record = guarded
    for name, answer in answers.items():
        assert answer.tokens == reference[name.partition(".")[0]].tokens, name
    ks = [line["k"] for line in record]
    assert ks[0] == KMAX
    pressed = []
    for number, line in enumerate(record):
        room = line["kv_free"] - len(line["ids"])
        # With fewer requests, K may be small because they are near their ends.
        if not line["waiting"] and 0 <= room < KMAX * len(line["ids"]) and len(line["ids"]) >= 4:
            assert sum(line["available"]) <= room, line
            pressed.append(number)
    assert 0 in [ks[number] for number in pressed]
    assert KMAX in ks[pressed[0] :], "K did not return"


def test_the_policy_sees_the_queue(guarded: Any) -> None:
    _, _, record = guarded
    assert max(line["waiting"] for line in record) >= 1


def test_the_drafters_confidence_arrives_if_asked_for(guarded: Any) -> None:
    _, _, record = guarded
    known = [
        value
        for line in record
        for row in line["confidence"] or ()
        for value in row
        if value is not None
    ]
    assert len(known) > 100
    assert all(0.0 < value <= 1.0 for value in known)
    assert len(set(known)) > 50


def test_a_raising_policy_leaves_the_server_correct(guarded: Any, reference: Any) -> None:
    engine, _, _ = guarded
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
