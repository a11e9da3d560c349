from __future__ import annotations

import json

import pytest

from adaptive_spec.errors import DataError
from adaptive_spec.sim.drafters.registry import drafter
from adaptive_spec.sim.engine.loop import Engine
from adaptive_spec.sim.engine.options import EngineOptions
from adaptive_spec.sim.hardware.registry import hardware
from adaptive_spec.sim.load.builder import parse_load
from adaptive_spec.sim.load.records import UNKNOWN_PROMPT_TOKENS
from adaptive_spec.sim.load.step_trace import read_step_trace
from adaptive_spec.sim.policy_choice import parse_policy


def step(number, now, context, emitted, **other):
    """A step record: tokens emitted by request id, and the sum of context lengths before it."""
    return {
        "schema": 1,
        "step": number,
        "now": now,
        "seconds": 0.5,
        "batch_size": len(emitted),
        "context_tokens": context,
        "ids": list(emitted),
        "emitted": list(emitted.values()),
        **other,
    }


def written(folder, *steps, name="steps-1-000000.jsonl"):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(json.dumps(each) + "\n" for each in steps))
    return folder


def test_requests_come_back_with_arrival_prompt_and_output(tmp_path):
    folder = written(
        tmp_path / "trace",
        step(0, 10.5, 100, {"a": 3}),
        step(1, 11.0, 103, {"a": 2}),
        # b joins with a prompt of 40; a is at 105.
        step(2, 11.5, 145, {"a": 1, "b": 4}),
        # a has ended, c and d join with 60 tokens between them; b is at 44.
        step(3, 12.0, 104, {"b": 1, "c": 1, "d": 2}),
    )
    requests = {each.id: each for each in read_step_trace(folder)}

    assert [each.arrival for each in requests.values()] == [0.0, 1.0, 1.5, 1.5]
    assert {name: each.prompt_tokens for name, each in requests.items()} == {
        "a": 100,
        "b": 40,
        "c": 30,
        "d": 30,
    }
    assert {name: each.output_tokens for name, each in requests.items()} == {
        "a": 7,
        "b": 6,
        "c": 2,
        "d": 3,
    }


def test_prompts_that_began_together_are_told_apart_when_one_leaves(tmp_path):
    folder = written(
        tmp_path / "trace",
        step(0, 1.0, 100, {"a": 1, "b": 2, "c": 3}),
        step(1, 2.0, 106, {"a": 1, "b": 1, "c": 1}),
        # a had a prompt of 20 and had emitted 2.
        step(2, 3.0, 87, {"b": 4, "c": 1}),
        # b had one of 50 and had emitted 7.
        step(3, 4.0, 35, {"c": 1}),
    )
    prompts = {each.id: each.prompt_tokens for each in read_step_trace(folder)}

    assert prompts == {"a": 20, "b": 50, "c": 30}


def test_a_step_with_a_request_that_ended_meanwhile_leaves_the_prompt_for_later(tmp_path):
    folder = written(
        tmp_path / "trace",
        step(0, 1.0, 900, {"a": 3}, batch_size=2),
        step(1, 2.0, 103, {"a": 2}),
        step(2, 3.0, 900, {"b": 2}, batch_size=2),
    )
    prompts = {each.id: each.prompt_tokens for each in read_step_trace(folder)}

    assert prompts == {"a": 100, "b": UNKNOWN_PROMPT_TOKENS}


def test_a_duration_that_was_not_measured_and_a_torn_last_line_do_no_harm(tmp_path):
    folder = written(tmp_path / "trace", step(0, 1.0, 7, {"a": 3}, seconds=None))
    with (folder / "steps-1-000000.jsonl").open("a") as file:
        file.write('{"schema": 1, "st')

    assert [each.prompt_tokens for each in read_step_trace(folder)] == [7]


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([], "no steps in any file"),
        ([step(0, 1.0, 0, {})], "no request decodes"),
        ([step(0, 2.0, 1, {"a": 1}), step(1, 1.0, 1, {"a": 1})], "step 1: time goes back"),
        ([step(7, 1.0, 1, {"a": 1}) | {"emitted": [1, 2]}], "step 7: 1 ids and 2 emitted"),
        ([step(7, 1.0, 1, {"a": -1})], "step 7: .*emitted"),
        ([step(7, 1.0, 1, {"a": 1}) | {"ids": None}], "step 7: .*ids"),
        ([{"schema": 1, "step": 7}], "step 7: .*now"),
    ],
)
def test_what_is_not_a_load_is_named(tmp_path, steps, message):
    folder = written(tmp_path / "trace", *steps)
    with pytest.raises(DataError, match=message) as caught:
        list(read_step_trace(folder))

    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_damaged_line_is_named_with_its_file(tmp_path):
    folder = written(tmp_path / "trace", step(0, 1.0, 7, {"a": 3}))
    with (folder / "steps-1-000000.jsonl").open("a") as file:
        file.write("rubbish\n\n")

    with pytest.raises(DataError, match=r"steps-1-000000.jsonl:2"):
        list(read_step_trace(folder))


def test_what_the_simulator_records_gives_the_load_it_was_given(tmp_path, acceptance):
    load = parse_load("poisson:20@first=5", acceptance, seed=0)
    sent = {}

    class Watched:
        closed, endless, next_arrival, finished = False, False, load.next_arrival, load.finished

        def take(self):
            request = load.take()
            sent[request.id] = request
            return request

    engine = Engine(
        Watched(),
        acceptance,
        drafter("eagle"),
        hardware("h100-llama-8b"),
        parse_policy("static:k=2").build(0),
        EngineOptions(max_draft_tokens=3),
        trace_directory=str(tmp_path),
    )
    engine.run()
    recorded = {each.id: each for each in read_step_trace(tmp_path)}

    assert recorded.keys() == sent.keys()
    assert len(sent) > 50
    for name, request in recorded.items():
        assert request.output_tokens == sent[name].output_tokens
    prompts = sum(each.prompt_tokens for each in recorded.values())
    assert prompts == pytest.approx(sum(each.prompt_tokens for each in sent.values()), rel=0.05)
