"""A full KV pool takes K to 0 and back; a policy that fails leaves the server as it was."""

from __future__ import annotations

from typing import Any

import pytest
from records import plans, read, status
from serving import KMAX, PATIENT
from traffic import SCENARIOS, long_ones, mixed_lengths

pytestmark = pytest.mark.engine

LARGEST = {"policy": "recorded_policies:LargestPolicy", "fail_open": PATIENT}
CONFIDENCE = {"ADAPTIVE_SPEC_SGLANG_CONFIDENCE": "1"}


@pytest.fixture(scope="module")
def guarded(shelf: Any) -> tuple[Any, dict[str, Any], list[dict[str, Any]]]:
    """An engine with the memory guard, its answers, and what its policy saw."""
    engine = shelf.get("EAGLE", adaptive=LARGEST, variables=CONFIDENCE)
    answers = engine.run(long_ones())
    answers |= engine.run(mixed_lengths())
    return engine, answers, plans(read(engine.record_file))


def test_kv_pressure_takes_k_to_zero_and_it_returns(guarded: Any, reference: Any) -> None:
    _, answers, record = guarded
    for name, answer in answers.items():
        assert answer.tokens == reference[name].tokens, name
    ks = [line["k"] for line in record]
    assert ks[0] == KMAX
    assert 0 in ks
    first = ks.index(0)
    assert KMAX in ks[first:], "K did not return"
    # A request near its end has no use for drafts; with several, memory is the reason.
    crowded = [line for line in record if len(line["ids"]) >= 4]
    for line in crowded:
        share = line["kv_free"] / len(line["ids"])
        if line["k"] == 0:
            assert share < 2 * 2, line
        elif line["k"] == KMAX:
            assert share >= 2 * (KMAX + 1), line
    assert sum(line["k"] == 0 for line in crowded) >= 5


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


def test_a_raising_policy_leaves_the_server_correct(shelf: Any, reference: Any) -> None:
    engine = shelf.get("EAGLE", adaptive={"policy": "recorded_policies:RaisingPolicy"})
    accepted = 0
    for make in SCENARIOS.values():
        answers = engine.run(make())
        for name, answer in answers.items():
            assert answer.tokens == reference[name].tokens, name
            accepted += answer.meta.get("spec_num_correct_drafts", 0)
    assert accepted > 100, "SGLang's own speculation should go on"
    assert engine.log.count("planned failure") <= 3, "said at every step"
    assert "planned failure" in engine.log
    found = status(engine.status_file)
    assert sum(found["fail_opens"].values()) >= 5
    assert set(found["steps_by_mode"]) == {"engine"}
