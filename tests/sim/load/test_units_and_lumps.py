"""The same load in other units and by other names; times that are rounded to seconds."""

from __future__ import annotations

import gzip
import json
import math

import numpy as np
import pytest

from adaptive_spec.errors import ConfigError, DataError
from adaptive_spec.sim.load.builder import parse_load
from tests.refused import refused

ROWS = [(round(second, 3), 50 + number, 20) for number, second in enumerate(np.arange(0, 30, 0.5))]
"""Two requests per second: arrival in seconds, prompt tokens, output tokens."""


def json_lines(path, rows, scale=1.0, **more):
    made = [
        more | {"timestamp": time * scale, "input_length": prompt, "output_length": output}
        for time, prompt, output in rows
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in made))
    return path


def figures(text, acceptance, notes=None):
    load = parse_load(str(text), acceptance, seed=0, notes=notes)
    found = []
    while load.next_arrival() < math.inf:
        each = load.take_request()
        found.append((round(each.arrival, 6), each.prompt_tokens, each.output_tokens))
    return found


def test_a_load_is_the_same_in_every_unit_and_format(acceptance, tmp_path):
    header = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    (tmp_path / "burst.csv").write_text(
        header + "".join(f"{time},GPT-4,{i},{o},{i + o},API log\n" for time, i, o in ROWS)
    )
    mooncake = json_lines(tmp_path / "ms", ROWS, 1000)
    unmarked = json_lines(tmp_path / "s", ROWS)
    bailian = json_lines(tmp_path / "bailian", ROWS, chat_id=1, parent_chat_id=-1)
    for text in (
        mooncake,
        f"{mooncake}@unit=ms",
        f"{unmarked}@unit=s",
        bailian,
        tmp_path / "burst.csv",
    ):
        assert figures(text, acceptance) == ROWS, text
    assert figures(f"{unmarked}@unit=s,rate=2", acceptance)[-1][0] == ROWS[-1][0] / 2


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(ROWS, id="more than 100 requests/s as milliseconds"),
        pytest.param([(0.25, 1, 1), (60.5, 1, 1)], id="fractions"),
    ],
)
def test_times_that_look_like_seconds_are_asked_about(acceptance, tmp_path, rows):
    path = json_lines(tmp_path / "load.jsonl", rows)
    with refused(DataError, "Put @unit=s or @unit=ms behind", f"{len(rows)} requests in"):
        figures(path, acceptance)
    assert len(figures(f"{path}@unit=ms", acceptance)) == len(rows)
    assert len(figures(f"{path}@closed=1,first=1e9", acceptance)) == 1  # arrivals do not matter


def test_a_slow_or_a_short_load_in_milliseconds_is_taken(acceptance, tmp_path):
    at_once = json_lines(tmp_path / "at once", [(0, 1, 1)] * 40)
    assert len(figures(at_once, acceptance)) == 40
    short = json_lines(tmp_path / "short", [(time, 1, 1) for time in range(19)])
    assert figures(short, acceptance)[-1][0] == 0.018


@pytest.mark.parametrize("unit", ["h", "", "S"])
def test_an_unknown_unit_is_named(acceptance, tmp_path, unit):
    path = json_lines(tmp_path / "load", ROWS, 1000)
    with pytest.raises(ConfigError, match="unit is s or ms, not "):
        figures(f"{path}@unit={unit}", acceptance)


def test_only_json_lines_take_a_unit(acceptance, tmp_path):
    path = tmp_path / "load.csv"
    path.write_text("arrival_s,input_tokens,output_tokens\n0,1,1\n")
    with pytest.raises(ConfigError, match="unit is for JSON lines"):
        figures(f"{path}@unit=s", acceptance)
    path = tmp_path / "load.yaml"
    path.write_text("rate: {base: 'poisson:1', pieces: [{seconds: 9, at: 1}]}")
    with pytest.raises(ConfigError, match="in the file"):
        figures(f"{path}@unit=s", acceptance)


@pytest.mark.parametrize("name", ["load.csv", "load.jsonl"])
def test_a_byte_order_mark_and_whole_numbers_with_a_point_are_read(acceptance, tmp_path, name):
    text = (
        "arrival_s,input_tokens,output_tokens\n0,50.0,9\n"
        if name.endswith("csv")
        else '{"timestamp": 0, "input_length": 50.0, "output_length": 9}\n'
    )
    path = tmp_path / name
    for content in (b"\xef\xbb\xbf" + text.encode(), gzip.compress(text.encode("utf-8-sig"))):
        path.write_bytes(content)
        assert figures(path, acceptance) == [(0, 50, 9)]
    path.write_text(text.replace("50.0", "50.5"))
    with pytest.raises(DataError, match="not a whole number of tokens"):
        figures(path, acceptance)


def test_rounded_times_are_spread_and_said(acceptance, tmp_path):
    """Mooncake's conversation trace: 3 s, some of them a millisecond more or less."""
    rows = [(3 * lump - 0.001 * (lump % 3 == 2), 9, 9) for lump in range(40) for _ in range(10)]
    path = json_lines(tmp_path / "load", rows, 1000)
    notes: list[str] = []
    times = np.array([time for time, *_ in figures(path, acceptance, notes)])

    assert len(notes) == 1
    assert "10 requests arrive at once every 3 s" in notes[0]
    assert len(np.unique(times)) == 400
    assert np.all(np.diff(times) >= 0)
    assert np.all(times >= [time for time, *_ in rows])
    assert np.all(times < np.array([time for time, *_ in rows]) + 3.0021)
    # As many arrive in each second of the three: uniform.
    assert np.ptp(np.bincount((times % 3).astype(int))) < 60
    assert [time for time, *_ in figures(path, acceptance)] == times.tolist()


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([(3 * number, 9, 9) for number in range(200)], id="one at a time"),
        pytest.param([(0.1 * (number // 4), 9, 9) for number in range(200)], id="tenths"),
        pytest.param([(number // 4 * 7 % 19 + number // 76 * 19, 9, 9) for number in range(80)],
                     id="too few"),
        pytest.param([((number // 4) ** 1.5 // 1, 9, 9) for number in range(200)], id="uneven"),
    ],
)  # fmt: skip
def test_other_times_stay_as_they_are(acceptance, tmp_path, rows):
    rows = sorted(rows)
    path = json_lines(tmp_path / "load", rows, 1000)
    notes: list[str] = []
    found = figures(f"{path}@unit=ms", acceptance, notes)
    assert not notes
    assert [time for time, *_ in found] == pytest.approx([time for time, *_ in rows])


def test_mooncakes_conversations_no_longer_arrive_at_1_180_times(acceptance, data):
    notes: list[str] = []
    path = data / "load/mooncake_conversation_trace.jsonl.gz"
    times = [time for time, *_ in figures(path, acceptance, notes)]
    assert len(times) == 12_031
    assert len(set(times)) > 12_000
    assert "every 3 s" in notes[0]


@pytest.mark.parametrize(("start", "kind"), [(b"PAR1", "Parquet"), (b"PK\x03\x04", "zip")])
def test_other_packed_files_are_named(acceptance, tmp_path, start, kind):
    path = tmp_path / "load.csv"
    path.write_bytes(start + bytes(99))
    with pytest.raises(DataError, match=f"a {kind} file; only text is read"):
        figures(path, acceptance)
