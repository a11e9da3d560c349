from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_spec.errors import AdaptiveSpecError, ConfigError
from adaptive_spec.sim.load.base import ClosedLoad
from adaptive_spec.sim.load.builder import parse_load
from adaptive_spec.sim.load.load_text import parse_text
from tests.sim.recorded_steps import step_row, write_steps

AZURE = "arrival_s,input_tokens,output_tokens\n" + "".join(f"{at},{at + 1},2\n" for at in range(9))


def taken(load, most=1000):
    requests = []
    while load.next_arrival() < math.inf and len(requests) < most:
        requests.append(load.take_request())
    return requests


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text(AZURE)
    return path


def test_closed_is_a_closed_endless_load(acceptance):
    load = parse_load("closed:3", acceptance, seed=0)

    assert isinstance(load, ClosedLoad)
    assert (load.closed, load.endless) == (True, True)
    assert len(taken(load)) == 3


@pytest.mark.parametrize("text", ["poisson:20", "gamma:20:2"])
def test_rates_are_open_endless_loads_that_follow_the_records(acceptance, text):
    load = parse_load(text, acceptance, seed=0)
    requests = taken(load, 6000)

    assert (load.closed, load.endless) == (False, True)
    assert len(requests) / requests[-1].arrival == pytest.approx(20, rel=0.1)
    assert {request.record for request in requests} == {0, 1, 2}


@pytest.mark.parametrize("text", ["closed:2", "poisson:3", "gamma:3:4"])
def test_same_seed_same_requests(acceptance, text):
    first, again, other = (taken(parse_load(text, acceptance, seed=seed), 50) for seed in (1, 1, 2))

    assert first == again
    assert first != other


def test_options_of_a_file(acceptance, trace):
    load = parse_load(f"{trace}@rate=2,skip=2,first=4", acceptance, seed=0)

    assert not load.endless
    assert [each.arrival for each in taken(load)] == [0, 0.5, 1, 1.5]
    again = parse_load(f"{trace}@rate=2@skip=2@first=4", acceptance, seed=0)
    assert [each.prompt_tokens for each in taken(again)] == [3, 4, 5, 6]


def test_a_file_in_a_closed_loop_gives_lengths_only(acceptance, trace):
    load = parse_load(f"{trace}@closed=2", acceptance, seed=0)

    assert load.closed
    assert [(each.arrival, each.prompt_tokens) for each in taken(load)] == [(0, 1), (0, 2)]


def test_a_part_of_an_endless_load_is_not_endless(acceptance):
    load = parse_load("poisson:10@first=5", acceptance, seed=0)

    assert not load.endless
    assert taken(load)[-1].arrival < 5


def test_a_path_may_hold_an_at_sign(acceptance, tmp_path):
    path = tmp_path / "me@home=here.csv"
    path.write_text(AZURE)

    assert len(taken(parse_load(str(path), acceptance, seed=0))) == 9
    assert len(taken(parse_load(f"{path}@first=3", acceptance, seed=0))) == 3


def test_the_format_of_a_file_is_found_from_its_content(acceptance, tmp_path):
    contents = {
        "azure": "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.97,3,4\n",
        "mooncake": '{"timestamp": 5, "input_length": 3, "output_length": 4}\n',
    }
    found = {}
    for name, content in contents.items():
        path = tmp_path / name
        path.write_text(content)
        found[name] = taken(parse_load(str(path), acceptance, seed=0))
    traced = tmp_path / "traces"
    traced.mkdir()
    record = step_row(0, ["a"], [2], [2], context_tokens=3)
    write_steps(traced / "steps-1-000000.jsonl", record)
    found["traced"] = taken(parse_load(str(traced), acceptance, seed=0))

    for name in ("azure", "mooncake", "traced"):
        assert [(each.prompt_tokens, each.output_tokens) for each in found[name]] == [(3, 4)], name


def test_a_segment_of_a_step_trace_points_to_its_directory(acceptance, tmp_path):
    path = tmp_path / "steps-1-000000.jsonl"
    path.write_text('{"schema": 1, "step": 0, "ids": []}\n')

    with pytest.raises(AdaptiveSpecError, match="give its directory"):
        parse_load(str(path), acceptance, seed=0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "neither a file nor"),
        ("closed", "N must be a whole number"),
        ("closed:0", "N must be a whole number"),
        ("closed:-3", "N must be a whole number"),
        ("closed:2.5", "N must be a whole number"),
        ("closed:99999999999999", "N must be a whole number"),
        ("closed:4@rate=2", "takes no options"),
        ("poisson", "RATE must be a number above 0"),
        ("poisson:0", "RATE must be a number above 0"),
        ("poisson:nan", "RATE must be a number above 0"),
        ("poisson:inf", "RATE must be a number above 0"),
        ("poisson:3:4", "RATE must be a number above 0"),
        ("gamma:3", "CV must be a number above 0"),
        ("gamma:3:0", "CV must be a number above 0"),
        ("poisson:3@speed=2", "no option 'speed'; there are rate, skip, first, closed"),
        ("poisson:3@rate=x", "rate must be a number above 0"),
        ("poisson:3@rate=1,rate=2", "given twice"),
        ("poisson:3@", "no option ''"),
        ("nowhere.csv@hours=2", "no option 'hours'"),
        ("nowhere.csv@rate=2", "neither a file nor one of the forms"),
        ("x" * 5000, "neither a file nor one of the forms"),
        ("nowhere.csv", "neither a file nor one of the forms closed:N, poisson:RATE"),
        ("poison:3", "neither a file nor one of the forms"),
    ],
)
def test_words_that_mean_nothing_are_answered_with_those_that_do(acceptance, text, message):
    with pytest.raises(ConfigError) as caught:
        parse_load(text, acceptance, seed=0)

    assert message in str(caught.value)
    assert repr(text) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_slice_without_requests_is_refused(acceptance, trace):
    with pytest.raises(ConfigError, match="no request arrives in the time asked for"):
        parse_load(f"{trace}@skip=1000", acceptance, seed=0)


@given(st.text(alphabet="closedpisngam:@=.,0123456789-/ \x00é", max_size=30))
def test_any_words_are_understood_or_refused(text):
    message = ""
    try:
        parse_text(text, Path("nowhere"))
    except ConfigError as error:
        message = str(error)

    assert "\n" not in message


def test_a_negative_seed_is_refused(acceptance):
    with pytest.raises(ConfigError, match="seed"):
        parse_load("closed:1", acceptance, seed=-1)


def test_real_files_are_read_by_name_alone(acceptance, data):
    folder = data / "load"
    slice_of_hour = taken(
        parse_load(f"{folder}/azure_llm_2023_conv.csv.gz@first=218.85", acceptance, seed=0), 5000
    )

    assert 500 < len(slice_of_hour) < 2500
