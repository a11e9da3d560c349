import pytest

from adaptive_spec.errors import DataError
from adaptive_spec.sim.acceptance.data import mean_accepted
from adaptive_spec.sim.acceptance.per_position import read_per_position
from tests.refused import refused

from .conftest import GSM8K, INSTRUCTCODER
from .fake_records import emitted_by_record


def row(**fields):
    return {"id": "1", "dataset": "gsm8k", "prompt_len": 7, "eagle": [3, 2, 1], **fields}


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.jsonl.gz"])
def test_a_list_becomes_accepted_drafts_without_the_bonus_token(rows_file, name):
    data = read_per_position(rows_file(row(), row(eagle=[1, 4]), name=name), "eagle")
    assert data.accepted.tolist() == [2, 1, 0, 0, 3]
    assert data.offsets.tolist() == [0, 3, 5]
    assert data.prompt_tokens.tolist() == [7, 7]
    assert data.labels == ("gsm8k", "gsm8k")
    assert data.depth == 3


@pytest.mark.parametrize(
    ("lengths", "depth", "accepted"), [([300, 2], 6, [6, 1]), ([300], None, [254])]
)
def test_longer_runs_than_the_depth_are_cut(rows_file, lengths, depth, accepted):
    data = read_per_position(rows_file(row(mine=lengths)), "mine", depth=depth)
    assert (data.accepted.tolist(), data.depth) == (accepted, depth or 254)


@pytest.mark.parametrize(
    ("rows", "name", "said"),
    [
        ([row(ngram=[1], words=["a"])], "mtp", "row 1: no list 'mtp'; .* are: eagle, ngram$"),
        ([row(ngram=[1]), row()], "ngram", r"rows.jsonl: row 2: no list 'ngram'"),
    ],
)
def test_a_list_that_is_not_there_is_named(rows_file, rows, name, said):
    with pytest.raises(DataError, match=said):
        read_per_position(rows_file(*rows), name)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"eagle": [1, 0]}, "row 2: list 'eagle'"),
        ({"eagle": [1, -3]}, "row 2: list 'eagle'"),
        ({"eagle": []}, "row 2: list 'eagle'"),
        ({"eagle": [1, 2.5]}, "row 2: list 'eagle'"),
        ({"eagle": "long"}, "row 2: list 'eagle'"),
        ({"eagle": [10**30]}, "row 2: list 'eagle'"),
        ({"prompt_len": -1}, "row 2: prompt_len"),
        ({"prompt_len": "7"}, "row 2: prompt_len"),
    ],
)
def test_a_bad_value_is_named_with_its_row(rows_file, fields, said):
    with refused(DataError, match=said):
        read_per_position(rows_file(row(), row(**fields)), "eagle")


@pytest.mark.parametrize("file", [GSM8K, INSTRUCTCODER])
@pytest.mark.parametrize("name", ["eagle", "ngram"])
def test_a_replay_of_published_lists_emits_every_token_at_any_k(data, file, name):
    acceptance = read_per_position(data / file, name)
    for k in (0, 1, 5, acceptance.depth):
        assert emitted_by_record(acceptance, k) == acceptance.lengths.tolist()


def test_published_eagle_list_gives_its_mean_accepted(data):
    # Computed from the file by a separate loop: 300 requests, 49,612 positions.
    acceptance = read_per_position(data / GSM8K, "eagle")
    assert (acceptance.records, len(acceptance.accepted)) == (300, 49_612)
    assert mean_accepted(acceptance, 3) == pytest.approx(1.391, abs=5e-4)
    assert mean_accepted(acceptance, 8) == pytest.approx(1.783, abs=5e-4)
