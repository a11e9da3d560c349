"""Why a decision is as it is, in words, and the history of ten minutes."""

import re
from typing import Any

import numpy as np
import pytest

from adaptive_spec.operation.segments import read_trace
from adaptive_spec.operation.status import COLUMNS, History
from adaptive_spec.operation.why import sentence
from adaptive_spec.sim.engine.loop import Engine
from adaptive_spec.step import Kind, Mode, SpecPlan
from tests.sim.small_server import PlainDrafter, PlainHardware, closed_load, independent, server

NUMBERS: dict[str, Any] = {
    "batch": 16,
    "k": 2.0,
    "most_k": 2,
    "accepted": [0.82, 0.61],
    "step_ms": 88.0,
    "tokens": 36.8,
    "of_none": 1.18,
    "untimed_k": [],
    "next": {"position": 3, "accepted": 0.44, "ms": 3.1, "tokens": 7.04},
}


def planned(mode: Mode = Mode.ON, reason: str = "planned", *, measures: bool = False) -> SpecPlan:
    verify = np.zeros(1, dtype=np.int64)
    return SpecPlan(
        step=0, verify=verify, draft_depth=0, mode=mode, reason=reason, measures=measures
    )


def test_an_on_decision_names_what_is_accepted_and_what_one_more_costs():
    assert sentence(planned(), NUMBERS, 0.0) == (
        "K = 2: drafts 1, 2 are accepted 82%, 61%; draft 3 (44% accepted) would cost 3.1 ms "
        "for 7 tokens, 0.44 ms each; a token costs 2.4 ms now"
    )


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ("kmax", "the server allows no more"),
        ("possible", "hints, lengths or grammar allow no more"),
        ("drafted", "no more were drafted for this step"),
    ],
)
def test_without_a_further_draft_the_words_say_what_limits_k(limit, words):
    limited = {name: value for name, value in NUMBERS.items() if name != "next"}
    text = sentence(planned(), limited | {"limit": limit}, 0.0)
    assert text == f"K = 2: drafts 1, 2 are accepted 82%, 61%; {words}"


def test_of_requests_with_different_k_one_draft_more_each_is_priced():
    mixed = NUMBERS | {"k": 1.5, "next": NUMBERS["next"] | {"position": None}}
    text = sentence(planned(), mixed, 0.0)
    assert text.startswith("mean K = 1.5, at most 2: drafts 1, 2 are accepted 82%, 61%; one more ")
    assert "one more draft for every request (44% accepted) would cost 3.1 ms" in text


@pytest.mark.parametrize(
    ("ms", "tokens", "words"),
    [
        (162.0, 2.52, "160 ms for 2.5 tokens, 64 ms each"),
        (12_345.0, 0.00321, "12,000 ms for 0.0032 tokens, 3,800,000 ms each"),
        (0.00002, 10.0, "0.00002 ms for 10 tokens, 0.000002 ms each"),
        (0.0, 3.0, "no time for 3 tokens"),
        (1.0, 0.0, "1 ms for 0 tokens;"),
    ],
)
def test_prices_have_two_digits_and_no_exponent(ms, tokens, words):
    priced = NUMBERS | {"next": NUMBERS["next"] | {"ms": ms, "tokens": tokens}}
    assert words in sentence(planned(), priced, 0.0)


@pytest.mark.parametrize(
    ("kept", "words"),
    [
        ("credit", "speculation has gained 0.5 s so far"),
        ("stake", "0.24 s of the requests alive are at stake, should the load fall"),
    ],
)
def test_what_keeps_the_drafter_running_is_named(kept, words):
    switch = {"credit": 0.5, "stake": 0.24, "kept": kept}
    plain = sentence(planned(), NUMBERS, 0.0)
    text = sentence(planned(), NUMBERS | {"switch": switch}, 0.0)
    assert text == f"{plain}. The drafter runs on, as {words}"
    assert sentence(planned(), NUMBERS | {"switch": switch | {"kept": ""}}, 0.0) == plain


def test_an_off_decision_names_since_when_and_the_return():
    off = NUMBERS | {
        "off_seconds": 71.0,
        "best": {"k": 1, "of_none": 0.94},
        "back_seconds": 12.4,
    }
    assert sentence(planned(Mode.OFF_COLD), off, 1_000_071.0) == (
        "OFF since 13:46:40 UTC, 16 requests: the best K = 1 would give 0.94 of no speculation; "
        "the drafter comes back in 12 s"
    )


@pytest.mark.parametrize(
    ("situation", "words"),
    [
        ("learning", "Learning this load. K = 2: "),
        ("steady", "Steady. K = 2: "),
        ("full batch", "Full batch. K = 2: "),
        ("changed", "Step times have changed. K = 2: "),
        ("of another policy", "K = 2: "),
    ],
)
def test_the_situation_comes_first(situation, words):
    assert sentence(planned(), NUMBERS | {"situation": situation}, 0.0).startswith(words)


def test_a_policy_without_numbers_keeps_its_own_words():
    assert sentence(planned(reason="static 3"), {}, 0.0) == "static 3"


@pytest.mark.parametrize(
    ("mode", "measures", "kind"),
    [
        (Mode.ON, False, Kind.PLANNED),
        (Mode.ON, True, Kind.MEASURING),
        (Mode.OFF_WARM, True, Kind.MEASURING),
        (Mode.OFF_WARM, False, Kind.OFF),
        (Mode.OFF_COLD, False, Kind.OFF),
        (Mode.SHADOW, False, Kind.ENGINE),
        (Mode.ENGINE, False, Kind.ENGINE),
    ],
)
def test_steps_are_of_four_kinds_whatever_the_reason_says(mode, measures, kind):
    assert planned(mode, "measuring by name", measures=measures).kind is kind


@pytest.mark.parametrize(
    ("plan", "begins"),
    [
        (planned(reason="probe 7", measures=True), "This step runs to learn (probe 7). The plan "),
        (planned(Mode.SHADOW, "as is"), "The engine's own K runs (as is). The plan would be: K = "),
    ],
)
def test_a_step_that_does_not_run_the_plan_says_so(plan, begins):
    assert sentence(plan, NUMBERS, 0.0).startswith(begins)


def ran(hazard: float, pass_seconds: float, *, tokens: int = 6000, **options: Any) -> Engine:
    engine = server(
        closed_load(4),
        data=independent(hazard, 10_000, depth=4, records=50),
        hardware=PlainHardware(token=3e-4),
        drafter=PlainDrafter(pass_=pass_seconds),
        max_draft_tokens=4,
        counts=True,
        **options,
    )
    engine.run(max_tokens=tokens)
    return engine


def test_goodput_explains_the_k_that_runs_with_what_it_has_learned(tmp_path):
    engine = ran(0.7, 0.5e-3, trace_directory=str(tmp_path))
    for tokens in range(6000, 7000, 20):  # at the end of its output a request has no next draft
        engine.run(max_tokens=tokens)
        status = engine.controller.status()
        numbers = status["explanation"]
        if "next" in numbers:
            break
    assert numbers["batch"] == 4
    k, more = numbers["most_k"], numbers["next"]
    assert numbers["accepted"] == pytest.approx([0.7**j for j in range(1, k + 1)], abs=0.06)
    # One token more for each request: 4 times .3 ms, and a pass of the drafter.
    assert more["ms"] == pytest.approx(4 * 0.3 + 0.5, rel=0.2)
    # The plan is the best one, so the draft that it leaves out is dearer than a token is now.
    assert more["ms"] / more["tokens"] >= 0.99 * numbers["step_ms"] / numbers["tokens"]
    assert re.search(r"K = [\d.]+", status["why"])
    engine.controller.close()
    told = [record["why"] for record in read_trace(tmp_path) if "why" in record]
    assert len(told) > 10
    assert any("are accepted" in each or "is accepted" in each for each in told)


def test_goodput_that_is_off_says_what_the_best_k_would_give():
    status = ran(0.05, 5e-3).controller.status()
    assert status["last_mode"].startswith("off")
    assert 0.0 < status["explanation"]["best"]["of_none"] < 1.0
    assert status["why"].startswith("OFF since")


def test_history_keeps_ten_minutes_of_seconds():
    engine = ran(0.7, 0.5e-3, tokens=1000)
    history, status = History(), engine.controller.status()
    for second in range(1, 1001):
        assert history.due(1.01 * second)
        history.add(1.01 * second, status)
        assert not history.due(1.01 * second + 0.5)
    kept = history.snapshot()
    assert kept["columns"] == list(COLUMNS)
    assert len(kept["rows"]) == 600
    row = dict(zip(COLUMNS, kept["rows"][-1], strict=True))
    assert row["emitted"] == status["emitted_tokens"] > 0
    assert row["requests"] == sum(status["requests_by_k"].values())
    assert len(engine.controller.history()["rows"]) >= 1


def test_steps_that_measure_are_counted_and_traced(tmp_path):
    engine = ran(0.7, 0.5e-3, trace_directory=str(tmp_path))
    kinds = engine.controller.status()["steps_by_kind"]
    assert sum(kinds.values()) == engine.controller.status()["steps"]
    assert 0 < kinds["measuring"] < kinds["planned"]
    engine.controller.close()
    records = list(read_trace(tmp_path))
    measured = [record for record in records if record.get("measures")]
    assert len(measured) == kinds["measuring"]
    reasons = {record["reason"] for record in measured}
    assert "no step measured yet" in reasons
    assert len(reasons) > 1  # those that time another K
