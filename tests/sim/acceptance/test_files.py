from __future__ import annotations

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest

from adaptive_spec.errors import DataError
from adaptive_spec.sim.acceptance.data import mean_accepted
from adaptive_spec.sim.acceptance.files import load_acceptance
from adaptive_spec.sim.acceptance.hazard import shipped_model
from tests.sim.recorded_steps import step_row

from .conftest import GSM8K
from .fake_records import emitted_by_record


def load(*paths, seed=0, kmax=4, **options):
    return load_acceptance(paths, drafter_list="eagle", seed=seed, kmax=kmax, **options)


LISTS = {"id": "1", "eagle": [3, 2, 1]}
TRACE = step_row(1, ["a"], [3], [2])


@pytest.fixture
def npz(tmp_path):
    path = tmp_path / "steps.npz"
    np.savez(path, accepted=np.array([2]), request=np.array([0]), max_prob=np.zeros((1, 3)))
    return path


@pytest.mark.parametrize(
    ("name", "row"),
    [
        *((name, LISTS) for name in ("a.jsonl", "a.jsonl.gz", "a.dat")),
        *((name, TRACE) for name in ("a.jsonl", "a.jsonl.gz")),
    ],
)
def test_the_format_of_rows_is_told_by_content(rows_file, row, name):
    data = load(rows_file(row, name=name))
    assert data.accepted[:3].tolist() == [2, 1, 0]
    assert data.depth == 4
    assert data.labels[0] == "a"


def test_an_npz_and_a_trace_folder_are_told_by_content(npz, tmp_path):
    assert load(npz).accepted.tolist() == [2, 1, 0]
    (tmp_path / "steps-9-000000.jsonl").write_text(json.dumps(TRACE) + "\n")
    assert load(tmp_path).accepted.tolist() == [2, 1, 0]


def test_a_model_may_be_a_file_on_one_line_or_several_or_a_name(tmp_path):
    model = shipped_model("mixed")
    (tmp_path / "several.json").write_bytes(msgspec.json.format(msgspec.json.encode(model)))
    (tmp_path / "one.json").write_bytes(msgspec.json.encode(model))
    named = load("model:mixed")
    for name in ("several.json", "one.json"):
        assert load(tmp_path / name).accepted.tobytes() == named.accepted.tobytes()
    assert load(Path("model:mixed")).accepted.tobytes() == named.accepted.tobytes()


def test_a_constant_model_is_named_with_its_hazard():
    assert mean_accepted(load("model:constant:0.5"), 1) == pytest.approx(0.5, abs=0.01)


def test_a_files_own_label_comes_before_its_name(rows_file):
    assert load(rows_file({**LISTS, "dataset": "gsm8k"}, LISTS)).labels == ("gsm8k", "rows")


def test_several_sources_are_pooled(rows_file, npz):
    data = load(rows_file(*[LISTS] * 5), npz, "model:good")
    assert data.records == 5 + 1 + 400
    assert set(data.labels) == {"rows", "steps", "good"}
    assert data.depth == 4
    assert data.confidence is not None


def test_the_same_source_twice_is_drawn_twice():
    data = load("model:constant:0.5", "model:constant:0.5")
    alone = load("model:constant:0.5")
    assert data.records == 2 * alone.records
    assert mean_accepted(data, 4) != mean_accepted(alone, 4)


def test_same_seed_same_data(rows_file):
    path = rows_file(TRACE, TRACE)
    one, two, other = (load(path, "model:mixed", seed=s).accepted.tobytes() for s in (1, 1, 2))
    assert one == two
    assert one != other


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "row 1 is not a JSON object"),
        (b"PK\x03\x04 no archive", "not a readable npz file"),
        (b"\x1f\x8b\x08\x00\x00", "cut short after row 0"),
        (b"a,b\n1,2\n", "row 1 is not a JSON object"),
        (b"[1, 2]\n", "row 1 is not a JSON object"),
        (b'{"timestamp": 1, "input_length": 5}\n', "row 1 has timestamp, input_length"),
        (b"{}\n", "row 1 has no fields"),
        (b'{\n  "gpu": 1\n}', "not a hazard model"),
        (b'{"eagle": [1, 2]}\n{"eagle": [1,', "row 2: not a JSON object"),
        (b'{"ngram": [1, 2]}\n', "no list 'eagle'; lists there are: ngram"),
        (b'{"eagle": [2, -1]}\n', "row 1: list 'eagle'"),
        (b'{"eagle": []}\n', "row 1 has eagle"),
        (b'{"new_tokens": [9], "steps": [3]}\n', "lists there are: new_tokens, steps"),
    ],
)
def test_what_is_not_acceptance_data_is_refused_in_one_line(tmp_path, content, said):
    path = tmp_path / "file.jsonl"
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        load(path)
    message = str(caught.value)
    assert said in message
    assert message.startswith(str(path))
    assert "\n" not in message
    assert len(message) < 400


@pytest.mark.parametrize("path", ["nothing-here.jsonl", "model:nothing"])
def test_a_source_that_is_not_there_is_named(path):
    with pytest.raises(DataError, match=path):
        load(path)


def test_a_folder_without_a_trace_is_refused(tmp_path):
    with pytest.raises(DataError, match="a folder without steps"):
        load(tmp_path)


def test_no_source_or_no_k_is_refused():
    with pytest.raises(DataError, match="no acceptance data given"):
        load()
    for kmax in (0, 255):
        with pytest.raises(DataError, match=r"1\.\.254"):
            load("model:good", kmax=kmax)


def test_every_public_file_loads_and_replays_or_says_why_not(data):
    acceptance = load(data / GSM8K, kmax=8)
    assert acceptance.depth == 8
    assert emitted_by_record(acceptance, 3) == acceptance.lengths.tolist()
    for path in sorted((data / "acceptance").glob("*.jsonl.gz")):
        with pytest.raises(DataError, match="no list 'eagle'"):
            load(path)
