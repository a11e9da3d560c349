import numpy as np
import pytest

from adaptive_spec.errors import DataError
from adaptive_spec.sim.acceptance.data import mean_accepted, steps_of
from adaptive_spec.sim.acceptance.step_lists import heuristic_draft_lengths, read_step_lists
from tests.refused import refused

from .fake_records import emitted_by_record

FOLDER = "acceptance"


def row(*turns, category="math", **fields):
    turns = [list(turn) for turn in turns]
    return {
        "question_id": 1,
        "category": category,
        "new_tokens": [sum(turn) for turn in turns],
        "steps": [len(turn) for turn in turns],
        "accept_lengths": turns,
        **fields,
    }


def test_each_turn_is_a_record_of_its_own(rows_file):
    data = read_step_lists(rows_file(row([3, 1], [2]), row([5])))
    assert data.accepted.tolist()[:6] == [2, 1, 0, 0, 1, 0]
    assert data.offsets.tolist() == [0, 4, 6, 11]
    assert data.labels == ("math", "math", "math")
    assert data.depth == 4


def test_the_heuristic_adds_two_after_all_accepted_and_else_takes_one():
    drafted = heuristic_draft_lengths(np.array([5, 2, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 1]))
    assert drafted.tolist() == [5, 7, 6, 5, 7, 6, 5, 4, 3, 2, 1, 1, 1]


@pytest.mark.parametrize(
    ("lengths", "depth", "said"),
    [
        ([4, 1, 2], 3, "K is not in the file, taken as the largest accepted number, 3"),
        ([6, 8, 1], 9, "HF heuristic"),  # no single K explains it
    ],
)
def test_the_source_says_what_k_is_taken_to_be(rows_file, lengths, depth, said):
    data = read_step_lists(rows_file(row(lengths)))
    assert data.depth == depth
    assert said in data.source


def test_a_row_of_plain_steps_may_leave_its_list_out(rows_file):
    plain = {"category": "x", "new_tokens": [3], "steps": [3]}
    data = read_step_lists(rows_file(row([2]), plain))
    assert data.offsets.tolist() == [0, 2, 5]


def test_a_run_without_speculation_is_refused(rows_file):
    with pytest.raises(DataError, match="without speculation"):
        read_step_lists(rows_file({"new_tokens": [3], "steps": [3]}))


@pytest.mark.parametrize(
    "bad",
    [
        row([0, 2]),
        row([2, -1]),
        row([]),
        row(),
        {"accept_lengths": [1, 2]},
        {"accept_lengths": [["a"]]},
        {"new_tokens": [5], "steps": [2]},
        {"category": 3, "accept_lengths": [[1]]},
    ],
)
def test_a_bad_row_is_named(rows_file, bad):
    with refused(DataError, match=r"rows.jsonl: row 2: "):
        read_step_lists(rows_file(row([2]), bad))


def test_every_step_of_the_published_heuristic_run_fits_its_k(data):
    lists = read_step_lists(data / FOLDER / "specbench_vicuna7b_sps68m_bnukh.jsonl.gz")
    assert lists.records == 560
    assert emitted_by_record(lists, 6) == lists.lengths.tolist()


def test_a_run_by_another_rule_does_not_fit_the_heuristic(data):
    path = data / FOLDER / "specbench_vicuna7b_sps68m_yukiki.jsonl.gz"
    assert "K is not in the file" in read_step_lists(path).source


def test_published_eagle_1_lists_replay_as_recorded_at_their_own_k(data):
    path = data / FOLDER / "specbench_vicuna7b_eagle1_yukiki.jsonl.gz"
    lists = read_step_lists(path, depth=8)
    starts, accepted = steps_of(lists, 5)
    # 25,525 steps, 3.5785 tokens each, bonus included, counted in the file by a separate loop.
    assert len(starts) == 25_525
    assert accepted.mean() + 1 == pytest.approx(3.57853, abs=1e-5)
    # Its first hazard is .897: what K = 1 must accept.
    assert mean_accepted(lists, 1) == pytest.approx(0.897, abs=0.006)
