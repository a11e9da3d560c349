"""What the table of `confidence_quality` says is what the records hold."""

from __future__ import annotations

import json

import numpy as np
import pytest

from adaptive_spec.sim.acceptance.data import AcceptanceData
from adaptive_spec.sim.acceptance.files import load_acceptance
from benchmarks.confidence_quality import batches, main, predictions, quality, report, text


def telling_data(*, tells: bool, requests: int = 60, steps: int = 30) -> AcceptanceData:
    """One draft a step; with `tells` the confidence is nearly its chance of being accepted."""
    random = np.random.default_rng(0)
    chance = random.choice([0.1, 0.9], size=(requests, steps))
    kept = random.random((requests, steps)) < chance
    shown = chance if tells else random.choice([0.1, 0.9], size=chance.shape)
    lengths = (kept + 1).sum(axis=1)
    accepted, confidence = [], []
    for row in range(requests):
        for step in range(steps):
            accepted += [1, 0] if kept[row, step] else [0]
            confidence += [shown[row, step]] + ([np.nan] if kept[row, step] else [])
    return AcceptanceData(
        name="made up",
        source="made up",
        accepted=np.array(accepted, dtype=np.uint8),
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        prompt_tokens=np.zeros(requests, dtype=np.int64),
        labels=tuple("even" if row % 2 == 0 else "odd" for row in range(requests)),
        depth=1,
        confidence=np.array(confidence, dtype=np.float32)[:, None],
    )


def test_every_step_of_every_record_runs_once_in_its_order():
    data = telling_data(tells=True)
    by_record: dict[int, list[int]] = {}
    for step in batches(data, concurrency=4, seed=0):
        assert len(set(step.slots.tolist())) == len(step.slots)
        for record, accepted in zip(step.record.tolist(), step.accepted.tolist(), strict=True):
            by_record.setdefault(record, []).append(accepted)
    assert sorted(by_record) == list(range(60))
    for record, ran in by_record.items():
        begin, end = data.offsets[record], data.offsets[record + 1]
        position, wanted = int(begin), []
        while position < end:
            wanted.append(int(data.accepted[position]))
            position += wanted[-1] + 1
        assert ran == wanted


def test_a_slot_is_given_up_when_its_request_has_ended():
    data = telling_data(tells=True, requests=6)
    ended = [slot for step in batches(data, concurrency=2, seed=0) for slot in step.ended.tolist()]
    assert len(ended) == 6
    assert set(ended) == {0, 1}


def test_only_confidence_that_tells_is_used():
    telling = report("a", telling_data(tells=True), predictions(telling_data(tells=True), 4, 0))
    mute = report("b", telling_data(tells=False), predictions(telling_data(tells=False), 4, 0))
    assert telling["all"]["both"]["auc"] > 0.85
    assert telling["all"]["history"]["auc"] < 0.6
    assert abs(mute["all"]["both"]["auc"] - 0.5) < 0.08
    assert mute["all"]["raw"]["ece"] > 0.3 > mute["all"]["both"]["ece"]


def test_kinds_and_positions_add_up_to_all_drafts():
    data = telling_data(tells=True)
    found = report("a", data, predictions(data, 4, 0))
    for part in ("kind", "position", "temperature"):
        assert sum(row["drafts"] for row in found[part].values()) == found["all"]["drafts"]
    assert text(found).count("\n") == 5


def test_quality_of_no_drafts_is_unknown():
    seen = predictions(telling_data(tells=True), 4, 0)
    row = quality(seen, np.zeros(len(seen.accepted), dtype=np.bool_))
    assert row["accepted"] is None
    assert row["both"] == {"auc": None, "ece": None, "loss": None}


def test_results_are_given_by_temperature(tmp_path):
    main(["--acceptance", "record:good_t0:json,record:good_t0.8:json", "--results", str(tmp_path)])
    saved = json.loads((tmp_path / "confidence_quality.json").read_text())
    assert set(saved["sets"][0]["temperature"]) == {"0", "0.8"}


@pytest.mark.parametrize(
    ("acceptance", "said"), [("model:good", "no confidence"), ("nowhere.npz", "No such file")]
)
def test_what_has_no_confidence_or_is_not_there_is_said_in_one_line(acceptance, said, capsys):
    with pytest.raises(SystemExit):
        main(["--acceptance", acceptance])
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("record", "least"),
    [("good_t0.8", -0.01), ("poor_t0.8", 0.03), ("good_t0", 0.1), ("good-greedy-drafts_t0.8", 0.3)],
)
def test_confidence_never_predicts_much_worse_than_history(record: str, least: float):
    """By log loss, as a share of history's; sampled drafts are those it tells least of."""
    data = load_acceptance([f"record:{record}"], drafter_list="", seed=0, kmax=6)
    everything = report(record, data, predictions(data, 8, 0))["all"]
    history = everything["history"]["loss"]
    assert everything["both"]["loss"] < (1.0 - least) * history
