import logging

import numpy as np
import pytest

from adaptive_spec.config import Trace
from adaptive_spec.controller.plan_validation import engine_plan
from adaptive_spec.controller.steps_in_flight import finished_step
from adaptive_spec.errors import DataError
from adaptive_spec.operation.status import Counters
from adaptive_spec.operation.trace import StepTrace
from adaptive_spec.sim.acceptance import request_rows
from adaptive_spec.sim.acceptance.data import steps_of
from adaptive_spec.sim.acceptance.imputation import MANY, UNKNOWN
from adaptive_spec.sim.acceptance.recorded import read_recorded_npz, read_step_trace
from adaptive_spec.sim.step_trace import read_steps
from adaptive_spec.step import Level
from tests import steps as made
from tests.refused import refused
from tests.sim.recorded_steps import step_row as step
from tests.sim.recorded_steps import write_steps as write

from .fake_records import emitted_by_record


def test_steps_of_a_trace_are_gathered_by_request(tmp_path):
    write(
        tmp_path / "steps-1-000000.jsonl",
        step(1, ["a", "b"], [3, 2], [2, 0]),
        step(2, ["b"], [2], [1]),
    )
    data = read_step_trace(tmp_path)
    assert data.accepted.tolist() == [2, 1, 0, 0, 1, 0]
    assert data.offsets.tolist() == [0, 3, 6]
    assert data.depth == 3
    assert data.labels == (tmp_path.name,) * 2


def test_a_single_segment_reads_as_its_folder_does(tmp_path):
    path = write(tmp_path / "steps-1-000000.jsonl", step(1, ["a"], [3], [1]), end='\n{"schema"')
    assert read_step_trace(path).accepted.tolist() == read_step_trace(tmp_path).accepted.tolist()


def test_the_same_name_in_another_process_is_another_request(tmp_path):
    write(tmp_path / "steps-1-000000.jsonl", step(1, ["a"], [2], [1]), step(2, ["a"], [2], [0]))
    write(tmp_path / "steps-2-000000.jsonl", step(1, ["a"], [2], [1]))
    assert read_step_trace(tmp_path).lengths.tolist() == [3, 2]


def test_tokens_that_a_stop_cut_off_are_left_out(tmp_path):
    write(tmp_path / "steps-1-000000.jsonl", step(1, ["a", "b"], [3, 3], [2, 1], [1, 0]))
    assert read_step_trace(tmp_path).lengths.tolist() == [1]


@pytest.mark.parametrize("signal", [False, True])
def test_of_a_long_trace_every_other_request_is_kept(tmp_path, monkeypatch, signal):
    rows = [
        step(
            number,
            [f"r{number}", f"s{number // 3}"],
            [2, 2],
            [number % 3, 1],
            **({"confidence": [[number / 40, None], [0.5, 0.25]]} if signal else {}),
        )
        for number in range(30)
    ]
    write(tmp_path / "steps-1-000000.jsonl", *rows)
    whole = read_step_trace(tmp_path)
    assert "of 40 requests" not in whole.source
    monkeypatch.setattr(request_rows, "MOST_ROWS", 40)
    half = read_step_trace(tmp_path)
    assert "20 of 40 requests" in half.source
    assert half.lengths.tolist() == whole.lengths[::2].tolist()
    assert (half.confidence is None) is not signal
    kept = np.concatenate([np.arange(*whole.offsets[n : n + 2]) for n in range(0, 40, 2)])
    if signal:
        first = half.offsets[:-1]
        assert half.confidence[first, 0].tolist() == whole.confidence[kept][first, 0].tolist()


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (step(2, ["a"], [2], [3]), "accepted 3"),
        (step(2, ["a"], [2], [1], [3]), "emitted 3"),
        (step(2, ["a"], [2, 2], [1]), "2 k for 1 ids"),
        (step(2, ["a"], [-2], [1]), "step 2"),
        (step(2, ["a"], [10**12], [1]), "step 2"),
        ({**step(2, ["a"], [2], [1]), "schema": 9}, "schema 9"),
        ({"schema": 1, "step": 2}, "step 2"),
        (step(2, ["a"], [2], [1], confidence=[[0.5, 1.5]]), "confidence leaves 0..1"),
        (step(2, ["a"], [2], [1], confidence=[[0.5], [0.5]]), "2 confidence for 1 ids"),
        (step(2, ["a"], [2], [1], confidence=[["x"]]), "confidence"),
        (step(2, ["a"], [2], [1], temperature=[]), "0 temperature for 1 ids"),
    ],
)
def test_a_bad_step_is_named(tmp_path, record, said):
    path = write(tmp_path / "steps-1-000000.jsonl", step(1, ["a"], [2], [1]), record)
    for source in (tmp_path, path):
        with refused(DataError, str(tmp_path), match=said):
            read_step_trace(source)


@pytest.mark.parametrize(
    ("rows", "said"),
    [([step(1, ["a"], [0], [0])], "no step verified a draft"), ([], "without steps-")],
)
def test_a_trace_without_steps_or_drafts_is_refused(tmp_path, rows, said):
    if rows:
        write(tmp_path / "steps-1-000000.jsonl", *rows)
    with pytest.raises(DataError, match=said):
        read_step_trace(tmp_path)


def test_what_the_trace_writer_writes_replays_as_it_ran(tmp_path):
    trace = StepTrace(Trace(directory=str(tmp_path)), Counters(), logging.getLogger("test"))
    ran = [(3, 2), (0, 0), (3, 3), (1, 0)]
    for number, (verified, accepted) in enumerate(ran):
        context = made.context(1, 3, step=number, request_ids=["a"], context_tokens=0)
        plan = engine_plan(context)
        outcome = made.outcome(context, verified, accepted, draft_depth=3)
        trace.write(finished_step(context, plan, outcome), plan)
    trace.close(0.0)
    data = read_step_trace(tmp_path)
    position = 0
    for verified, accepted in ran:
        assert min(data.accepted[position], verified) == accepted
        position += accepted + 1
    assert position == len(data.accepted)


def test_drafts_that_were_not_found_are_told_from_those_that_were_not_wanted(tmp_path):
    looks_up = {"level": Level.FULL, "max_draft_tokens": 3, "off_pass": False}

    def row(number, k, accepted, available, depth=3, **columns):
        known = {"available": [available], "possible": [9], "depth": depth}
        return step(number, ["a"], [k], [accepted], **known, **columns)

    write(
        tmp_path / "steps-1-000000.jsonl",
        row(1, 3, 1, 3, capability=looks_up),  # nobody knows how many there were
        row(2, 0, 0, 0),  # asked for 3, none found
        row(3, 1, 0, 2),  # two found, one of them verified
        row(4, 2, 2, 2, planned_k=[3]),  # planned before they were looked up
        row(5, 3, 0, 3, depth=0),  # all that were wanted
        row(6, 0, 0, 0),  # not asked
    )
    rows = request_rows.RequestRows()
    for found in read_steps(tmp_path):
        rows.add(found)
    proposed = rows.steps("a test").proposed
    assert proposed.tolist() == [UNKNOWN, 0, 2, 2, MANY, UNKNOWN]
    data = read_step_trace(tmp_path, depth=3)
    # Steps begin at 0, 2, 3, 4, 7 and 8.
    assert data.proposed[[2, 3, 4, 5, 7]].tolist() == [0, 2, 2, 1, 3]
    assert data.accepted[2] == 0


def test_confidence_and_temperature_of_a_trace_are_kept(tmp_path):
    write(
        tmp_path / "steps-1-000000.jsonl",
        step(1, ["a"], [2], [1], confidence=[[0.9, 0.5]]),
        step(
            2,
            ["a", "b"],
            [2, 1],
            [0, 1],
            confidence=[[0.25, None], [0.75, 0.5]],
            temperature=[0.0, 0.8],
        ),
        step(3, ["b"], [2], [0], late_confidence=[[0.125, 0.5]]),
        step(4, ["b"], [2], [0]),
    )
    data = read_step_trace(tmp_path)
    # Request a: steps at 0 and 2; b: at 0, 2 and 3, of which the last one showed nothing.
    assert data.offsets.tolist() == [0, 3, 7]
    assert data.confidence[5].tolist() == [0.125, 0.5]
    np.testing.assert_allclose(
        data.confidence[[0, 2, 3]], [[0.9, 0.5], [0.25, np.nan], [0.75, 0.5]]
    )
    assert np.isnan(data.confidence[6]).all()
    assert data.temperatures.tolist() == [0.0, 0.8]
    assert data.temperature == 0.8


def arrays(**changed):
    given = {
        "accepted": np.array([1, 2, 0, 1], dtype=np.int8),
        "request": np.array([7, 3, 7, 3], dtype=np.int16),
        "max_prob": np.arange(8, dtype=np.float16).reshape(4, 2) / 10,
    }
    return {**given, **changed}


def test_steps_of_an_npz_are_gathered_by_request_with_their_confidence(tmp_path):
    np.savez(tmp_path / "code_t0.8.npz", **arrays())
    data = read_recorded_npz(tmp_path / "code_t0.8.npz")
    # Requests in order of number: 3 accepts 2 of 2, then 1; 7 accepts 1, then 0.
    assert data.lengths.tolist() == [5, 3]
    assert data.accepted[3:].tolist() == [1, 0, 1, 0, 0]
    assert data.temperature == 0.8
    np.testing.assert_allclose(data.confidence[0], [0.2, 0.3], atol=1e-3)
    np.testing.assert_allclose(data.confidence[5], [0.0, 0.1], atol=1e-3)
    np.testing.assert_allclose(data.confidence[6], [0.1, np.nan], atol=1e-3)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"accepted": np.array([1, 3, 0, 1])}, "row 1: accepted is 3"),
        ({"accepted": np.array([1, 2, -1, 1])}, "row 2: accepted is -1"),
        ({"accepted": np.array([1.0, 2, 0, 1])}, "accepted must be one whole number"),
        ({"accepted": np.array([1, 2, 0])}, "accepted has 3 rows"),
        ({"accepted": np.array([{}, 1, 2, 3])}, "[Pp]ickle"),
        ({"max_prob": np.full((4, 2), 1.5)}, "row 0: max_prob"),
        ({"max_prob": np.zeros(4)}, "max_prob must be floats"),
        ({"label": np.array(["a", "b"])}, "label names requests 0 to 1"),
        ({"label": np.arange(8)}, "one text per request"),
        (
            {
                "accepted": np.zeros(0, int),
                "request": np.zeros(0, int),
                "max_prob": np.zeros((0, 2)),
            },
            "empty",
        ),
    ],
)
def test_a_bad_npz_is_refused(tmp_path, changed, said):
    path = tmp_path / "steps.npz"
    np.savez(path, **arrays(**changed))
    with pytest.raises(DataError, match=said) as caught:
        read_recorded_npz(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_a_missing_array_is_named_with_those_there_are(tmp_path):
    np.savez(tmp_path / "a.npz", accepted=np.zeros(1, int), other=np.zeros(1))
    with pytest.raises(DataError, match="no array request, max_prob; arrays there are: accepted, "):
        read_recorded_npz(tmp_path / "a.npz")


@pytest.mark.parametrize("keep", [0, 2, 40, 0.5, 0.95, "damaged"])
def test_a_damaged_npz_is_refused(tmp_path, keep):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, **arrays(max_prob=np.random.default_rng(0).random((4, 2))))
    whole = bytearray(path.read_bytes())
    if keep == "damaged":
        whole[50:70] = bytes(20)
    else:
        del whole[keep if isinstance(keep, int) else int(len(whole) * keep) :]
    path.write_bytes(bytes(whole))
    with pytest.raises(DataError, match=r"a\.npz: "):
        read_recorded_npz(path)


def test_labels_of_an_npz_go_to_their_requests(tmp_path):
    labels = np.array([f"kind {number}" for number in range(8)])
    np.savez(tmp_path / "steps.npz", **arrays(), label=labels)
    assert read_recorded_npz(tmp_path / "steps.npz").labels == ("kind 3", "kind 7")


@pytest.mark.parametrize("name", ["draft_code_t0.8", "draft_json_t0.0", "poor_random_t0.8"])
def test_our_own_recordings_replay_as_recorded_at_their_k(data, name):
    path = data / "own" / f"bench_{name}.npz"
    acceptance = read_recorded_npz(path)
    with np.load(path, allow_pickle=False) as archive:
        recorded = archive["accepted"].astype(int)
    _, accepted = steps_of(acceptance, 6)
    assert sorted(accepted.tolist()) == sorted(recorded.tolist())
    for k in (0, 1, 4):
        assert emitted_by_record(acceptance, k) == acceptance.lengths.tolist()
