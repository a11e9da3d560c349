"""What the table of `confidence_quality` says is what the records hold."""

import json

import pytest

from adaptive_spec.sim.acceptance.files import load_acceptance
from benchmarks.confidence_quality import batches, main, report


def test_every_step_of_every_record_runs_once_in_its_order():
    data = load_acceptance(["record:good_t0.8:json"], drafter_list="", seed=0, kmax=6)
    by_record: dict[int, list[int]] = {}
    for step in batches(data, concurrency=4, seed=0):
        assert len(set(step.slots.tolist())) == len(step.slots)
        for record, accepted in zip(step.record.tolist(), step.accepted.tolist(), strict=True):
            by_record.setdefault(record, []).append(accepted)
    assert sorted(by_record) == list(range(data.records))
    for record, ran in by_record.items():
        begin, end = data.offsets[record], data.offsets[record + 1]
        position, wanted = int(begin), []
        while position < end:
            wanted.append(int(data.accepted[position]))
            position += wanted[-1] + 1
        assert ran == wanted


def test_results_are_given_by_temperature(tmp_path):
    main(["--acceptance", "record:good_t0:json,record:good_t0.8:json", "--results", str(tmp_path)])
    saved = json.loads((tmp_path / "confidence_quality.json").read_text())
    assert {"all", "T = 0", "T = 0.8", "position 6"} <= set(saved["sets"][0]["rows"])


@pytest.mark.parametrize(
    ("record", "least"),
    [("good_t0.8", -0.01), ("poor_t0.8", 0.03), ("good_t0", 0.1), ("real_text_t0.7", 0.1)],
)
def test_confidence_never_predicts_much_worse_than_history(record: str, least: float):
    """By log loss, as a share of history's; sampled drafts are those it tells least of."""
    data = load_acceptance([f"record:{record}"], drafter_list="", seed=0, kmax=6)
    everything = report(record, data, 8, 0)["rows"]["all"]
    history = everything["history"]["loss"]
    assert everything["both"]["loss"] < (1.0 - least) * history
