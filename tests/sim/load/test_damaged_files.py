"""Whatever a file holds: one line that names it and the row."""

from __future__ import annotations

import gzip
import random
from collections import deque

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adaptive_spec.errors import AdaptiveSpecError, ConfigError, DataError
from adaptive_spec.sim.load.builder import parse_load
from adaptive_spec.sim.load.trace_files import read_azure, read_mooncake
from tests.refused import refused

AZURE = "arrival_s,input_tokens,output_tokens\n"
DATED = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
GOOD_LINE = '{"timestamp": 1000, "input_length": 1, "output_length": 1}\n'


def check(read, path, *said):
    with refused((DataError, ConfigError), path, *said):
        list(read(path))


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("", "", "empty"),
        ("\n\n", "", "empty"),
        (AZURE, "", "no rows"),
        ("arrival_s,input_tokens\n0,1\n", "row 1", "no column `output_tokens`"),
        (AZURE + "0,1,1\n1,1\n", "row 3", "2 cells, 3 expected"),
        (AZURE + "0,1,1\n1,1,1,1\n", "row 3", "4 cells, 3 expected"),
        (AZURE + "0,1,1\n1,x,1\n", "row 3", "`input_tokens` is 'x', not a number"),
        (AZURE + "0,1,1\n1,,1\n", "row 3", "not a number"),
        (AZURE + "0,1,1\n1,1,-4\n", "row 3", "`output_tokens` is -4, below 0"),
        (AZURE + "0,1,1\n1,1,1.5\n", "row 3", "not a whole number"),
        (AZURE + "0,1,1\n1,1,1e12\n", "row 3", "more than 100,000,000 tokens"),
        (AZURE + "0,1,1\nnan,1,1\n", "row 3", "not a finite number"),
        (AZURE + "0,1,1\ninf,1,1\n", "row 3", "not a finite number"),
        (AZURE + "-1,1,1\n", "row 2", "below 0"),
        (AZURE + "5,1,1\n4,1,1\n", "row 3", "goes back by 1 s"),
        (AZURE + "5,1,1\n9,1,1\n8,1,1\n", "row 4", "goes back by 1 s"),
        (DATED + "yesterday,1,1\n", "row 2", "not a date"),
        (DATED + "2023-11-16 18:00:01,1,1\n2023-11-16 18:00:00,1,1\n", "row 3", "goes back"),
        (
            DATED + "2023-11-16 18:00:01,1,1\n2023-11-16 18:00:02+00:00,1,1\n",
            "row 3",
            "time zone",
        ),
    ],
)
def test_azure(tmp_path, text, where, what):
    path = tmp_path / "load.csv"
    path.write_text(text)
    check(read_azure, path, what, where)


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("", "", "empty"),
        ("\n \n", "", "blank"),
        (GOOD_LINE + "{", "row 2", "truncated"),
        (GOOD_LINE + '{"timestamp": 1, "input_length": 1}', "row 2", "output_length"),
        (GOOD_LINE + GOOD_LINE.replace(": 1,", ": -1,"), "row 2", "below 0"),
        (GOOD_LINE + GOOD_LINE.replace("1000", '"x"'), "row 2", "timestamp"),
        (GOOD_LINE + GOOD_LINE.replace("1000", "999"), "row 2", "goes back"),
        (GOOD_LINE + "[1, 2]", "row 2", "expected"),
        (GOOD_LINE + GOOD_LINE.replace("1000", "1e999"), "row 2", ""),
    ],
)
def test_mooncake(tmp_path, text, where, what):
    path = tmp_path / "load.jsonl"
    path.write_text(text)
    check(read_mooncake, path, what, where)


def test_gzip_that_ends_in_the_middle_names_the_last_row_read(tmp_path):
    rows = "".join(f"{at},{random.Random(at).randint(1, 10**6)},7\n" for at in range(20_000))
    packed = gzip.compress((AZURE + rows).encode())
    path = tmp_path / "load.csv.gz"
    path.write_bytes(packed[: len(packed) // 2])
    read = []
    with pytest.raises(DataError) as caught:
        deque(map(read.append, read_azure(path)), maxlen=0)

    assert f"cut short after row {len(read) + 1}" in str(caught.value)
    assert len(read) > 5_000


def test_gzip_with_damaged_data(tmp_path):
    packed = bytearray(gzip.compress((AZURE + "0,1,1\n" * 5000).encode()))
    packed[len(packed) // 2] ^= 0xFF
    path = tmp_path / "load.csv.gz"
    path.write_bytes(bytes(packed))
    check(read_azure, path, "gzip")


def test_a_binary_file_is_named_as_such(tmp_path, acceptance):
    path = tmp_path / "load.bin"
    path.write_bytes(bytes(range(128, 256)) * 10)
    check(lambda path: parse_load(str(path), acceptance, seed=0), path, "binary")


def test_another_kind_of_csv_says_what_can_be_read(tmp_path, acceptance):
    path = tmp_path / "load.csv"
    path.write_text("name,age\nme,3\n")
    check(lambda path: parse_load(str(path), acceptance, seed=0), path, "Azure", "Mooncake")


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
    max_examples=settings().max_examples * 3 // 2,
)
@given(
    content=st.binary(max_size=200),
    start=st.sampled_from([b"", AZURE.encode(), GOOD_LINE.encode(), b"\x1f\x8b"]),
    suffix=st.sampled_from([".csv", ".yaml", ".jsonl.gz"]),
)
def test_no_content_gives_a_traceback(tmp_path, acceptance, content, start, suffix):
    path = tmp_path / f"load{suffix}"
    path.write_bytes(start + content)
    message = ""
    try:
        load = parse_load(str(path), acceptance, seed=0)
        for _ in range(100):
            if load.next_arrival() == float("inf"):
                break
            load.take_request()
    except AdaptiveSpecError as error:
        message = str(error)

    assert "\n" not in message
