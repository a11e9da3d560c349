from __future__ import annotations

import json

import pytest

from adaptive_spec.errors import DataError
from adaptive_spec.sim.drafters.registry import drafter
from adaptive_spec.sim.engine.loop import Engine
from adaptive_spec.sim.engine.options import EngineOptions
from adaptive_spec.sim.hardware.registry import hardware
from adaptive_spec.sim.load.builder import parse_load
from adaptive_spec.sim.load.step_trace import read_step_trace
from adaptive_spec.sim.policy_choice import parse_policy
from tests.sim.recorded_steps import step_row


def step(number, now, contexts, emitted, **other):
    """A step record: tokens emitted and context before it, by request id."""
    if isinstance(contexts, dict):
        other = {"contexts": list(contexts.values()), **other}
        contexts = sum(contexts.values())
    drafts = [max(each - 1, 0) for each in emitted.values()]
    columns = {"now": now, "seconds": 0.5, "context_tokens": contexts} | other
    return step_row(number, list(emitted), drafts, drafts, list(emitted.values()), **columns)


def written(folder, *steps, name="steps-1-000000.jsonl"):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(json.dumps(each) + "\n" for each in steps))
    return folder


def test_requests_come_back_with_arrival_prompt_and_output(tmp_path):
    folder = written(
        tmp_path / "trace",
        step(0, 10.5, {"a": 100}, {"a": 3}),
        step(1, 11.0, {"a": 103}, {"a": 2}),
        step(2, 11.5, {"a": 105, "b": 40}, {"a": 1, "b": 4}),
        step(3, 12.0, {"b": 44, "c": 20, "d": 40}, {"b": 1, "c": 1, "d": 2}),
    )
    requests = {each.id: each for each in read_step_trace(folder)}

    assert [each.arrival for each in requests.values()] == [0.0, 1.0, 1.5, 1.5]
    prompts = {"a": 100, "b": 40, "c": 20, "d": 40}
    assert {name: each.prompt_tokens for name, each in requests.items()} == prompts
    outputs = {"a": 7, "b": 6, "c": 2, "d": 3}
    assert {name: each.output_tokens for name, each in requests.items()} == outputs


def test_without_contexts_new_requests_share_what_the_others_leave(tmp_path):
    folder = written(
        tmp_path / "trace",
        step(0, 10.5, 100, {"a": 3}),
        # a is at 103.
        step(1, 11.0, 163, {"a": 2, "b": 1, "c": 1}),
        step(2, 11.5, 7, {"d": 1}),
    )
    prompts = {each.id: each.prompt_tokens for each in read_step_trace(folder)}

    assert prompts == {"a": 100, "b": 30, "c": 30, "d": 7}


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
        ([step(7, 1.0, 1, {"a": 1}) | {"emitted": [1, 2]}], "step 7: 2 emitted for 1 ids"),
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

        def take_request(self):
            request = load.take_request()
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
        # The KV cache holds the token that came out of the prompt, too.
        assert request.prompt_tokens == sent[name].prompt_tokens + 1
