from __future__ import annotations

import math

import pytest

from adaptive_spec.errors import AdaptiveSpecError, ConfigError
from adaptive_spec.sim.load.base import TenantMix
from adaptive_spec.sim.load.builder import parse_load

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


def described(tmp_path, text):
    path = tmp_path / "load.yaml"
    path.write_text(text)
    return str(path)


def test_a_described_ramp_over_a_file_and_lengths(acceptance, trace, tmp_path):
    text = described(
        tmp_path,
        "rate: {base: trace.csv, prompt_tokens: 9,"
        " pieces: [{seconds: 1, at: 4}, {seconds: 100, from: 1, to: 1}]}",
    )
    requests = taken(parse_load(text, acceptance, seed=0))

    assert [each.arrival for each in requests] == [0, 0.25, 0.5, 0.75, 1, 2, 3, 4, 5]
    assert {(each.prompt_tokens, each.output_tokens) for each in requests} == {(9, 2)}


def test_options_apply_to_a_described_rate(acceptance, tmp_path):
    text = described(
        tmp_path, "rate: {base: 'poisson:5', bursts: {every: 9, seconds: 1, factor: 9}}"
    )
    load = parse_load(f"{text}@first=100", acceptance, seed=0)

    assert 300 < len(taken(load, 10_000)) < 2500
    assert parse_load(text, acceptance, seed=0).endless


def test_described_concurrency(acceptance, tmp_path):
    text = described(tmp_path, "concurrency: {pieces: [{seconds: 10, at: 3}], repeat: true}")
    load = parse_load(text, acceptance, seed=0)

    assert (load.closed, load.endless) == (True, True)
    assert len(taken(load)) == 3
    with pytest.raises(ConfigError, match="options are for open loads"):
        parse_load(f"{text}@rate=2", acceptance, seed=0)


def test_described_tenants_have_loads_lengths_tasks_and_targets(acceptance, tmp_path):
    text = described(
        tmp_path,
        """
        tenants:
          - {name: chat, load: "poisson:5@first=50", task: prose, tpot_ms: 40}
          - name: batch
            temperature: 0.9
            output_tokens: {mean: 50, cv: 1, most: 60}
            load:
              concurrency: {pieces: [{seconds: 9, at: 2}]}
        """,
    )
    load = parse_load(text, acceptance, seed=0)
    requests = taken(load)
    chat = [each for each in requests if each.id.startswith("chat/")]
    batch = [each for each in requests if each.id.startswith("batch/")]

    assert isinstance(load, TenantMix)
    assert len(batch) == 2
    assert {(each.task, each.record, each.tpot_target) for each in chat} == {("prose", 2, 0.04)}
    assert {each.temperature for each in batch} == {0.9}
    assert all(each.output_tokens <= 60 for each in batch)
    assert len({each.id for each in requests}) == len(requests)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Expected `object`"),
        ("[1, 2]", "Expected `object`"),
        ("a: b: c", "not YAML"),
        ("\x07", "not YAML"),
        ("{}", "give exactly one of rate, concurrency, tenants"),
        ("speed: 3", "unknown field `speed`; keys are rate, concurrency, tenants"),
        ("rate: {pices: []}", "unknown field `pices`"),
        ("rate: {pices: []}", "keys are prompt_tokens, output_tokens, base, pieces"),
        ("rate: {}", "either `pieces` or `bursts`"),
        ("rate: {pieces: [{seconds: 1}]}", "either `at` or `from` and `to`"),
        ("rate: {pieces: [{seconds: 1, at: 1, to: 2}]}", "either `at` or `from` and `to`"),
        ("rate: {pieces: [{seconds: 1, from: 1, too: 2}]}", "keys are seconds, from, to, at"),
        ("rate: {pieces: [{seconds: 0, at: 1}]}", "> 0.0 - at `$.rate.pieces[0].seconds`"),
        ("rate: {pieces: [{seconds: 1, at: 0}], repeat: true}", "needs a piece above 0"),
        ("rate: {base: 'closed:3', pieces: [{seconds: 1, at: 1}]}", "must be an open load"),
        ("rate: {base: gone.csv, pieces: [{seconds: 1, at: 1}]}", "'gone.csv'"),
        ("tenants: []", "at least one tenant"),
        ("tenants: [{name: a}]", "missing required field `load`"),
        ("tenants: [{name: a, load: 'closed:1', tpot: 3}]", "unknown field `tpot`"),
        ("tenants: [{name: a, load: 'closed:1', tpot_ms: 0}]", "tpot_ms"),
        ("tenants: [{name: a, load: {rate: {}}}]", "$.tenants[0].load.rate"),
        ("tenants: [{name: a, load: load.yaml}]", "more than 8 deep"),
    ],
)
def test_a_description_that_cannot_be_used_names_the_key(acceptance, tmp_path, text, message):
    with pytest.raises(AdaptiveSpecError) as caught:
        parse_load(described(tmp_path, text), acceptance, seed=0)

    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
