"""The scripted worker does what vLLM's workers do, under vLLM's real scheduler."""

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from adaptive_spec.sim.acceptance.data import steps_of
from adaptive_spec.step import Mode, SpecPlan, StepContext
from benchmarks.judge import traffic as load
from benchmarks.judge.arms import GOODPUT, parse_arm
from benchmarks.judge.cells import Cell
from benchmarks.judge.device import Graphs
from benchmarks.judge.engines import STEP_TOKENS
from benchmarks.judge.records import lines
from benchmarks.judge.run import Engines, runs
from benchmarks.judge.scripted_vllm import ENVIRONMENT, ScriptedVllm
from benchmarks.judge.traffic import Piece, Stream, Traffic, jobs
from benchmarks.judge.vllm_worker import BLOCK_TOKENS
from tests.bench_judge.scripted import DEVICE, Made, engines, serve

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(not importlib.util.find_spec("vllm"), reason="vLLM is not installed"),
]

KMAX = 7


@pytest.fixture(scope="module")
def engine_of() -> Iterator[Made]:
    """Engines of vLLM by what they are."""
    with engines(ScriptedVllm, ENVIRONMENT) as made:
        yield made


Plan = Callable[[StepContext], tuple[int, int, Mode]]
"""K, depth and mode of a step."""


def forced(engine: ScriptedVllm, plan: Plan, **arm: Any) -> None:
    """Let `goodput`'s place be taken by given plans."""

    def planned(context: StepContext) -> SpecPlan:
        k, depth, mode = plan(context)
        verify = np.minimum(context.draft_available, k)
        return SpecPlan(
            step=context.step, verify=verify, draft_depth=depth, mode=mode, reason="forced"
        )

    def prepare(found: ScriptedVllm) -> None:
        found.controller.policy.plan = planned

    engine.use(replace(parse_arm(GOODPUT), prepare=prepare, **arm), DEVICE)


def test_a_fixed_k_emits_what_a_replay_of_the_record_does(engine_of: Made) -> None:
    engine = engine_of()
    played = lines("hazard:0.8", "eagle", KMAX)
    for k in (1, 3, 7):
        engine.use(parse_arm(f"k{k}"), DEVICE)
        steps = serve(engine, requests=1, tokens=201)
        _, accepted = steps_of(played.data, k)
        expected = accepted[: len(steps) - 2] + 1  # the last step emits what is left
        assert [work.emitted for work in steps[1:-1]] == expected.tolist()
        assert sum(work.emitted for work in steps) == 201
        assert {work.passes for work in steps} == {k}


def test_k_0_runs_one_pass_and_no_drafter_none(engine_of: Made) -> None:
    engine = engine_of()
    for arm, passes in (("k0", 1), ("none", 0)):
        engine.use(parse_arm(arm), DEVICE)
        steps = serve(engine)
        assert {(work.passes, work.most_k) for work in steps if work.requests} == {(passes, 0)}


def test_a_request_that_lived_through_off_cold_has_holes(engine_of: Made) -> None:
    engine = engine_of()

    def plan(context: StepContext) -> tuple[int, int, Mode]:
        return (0, 0, Mode.OFF_COLD) if context.step == 6 else (3, 3, Mode.ON)

    forced(engine, plan)
    steps = serve(engine)
    assert max(work.emitted for work in steps[:5]) > 4
    assert [work.passes for work in steps].count(0) == 1
    cold = next(n for n, work in enumerate(steps) if not work.passes)
    # The adapter drafts for them no more.
    assert {work.most_k for work in steps[cold + 2 :]} == {0}
    assert engine.status()["events"]["requests_not_drafted_after_off_cold"] == 4
    # What is left out of a prompt in chunks is a hole, too: nobody's draft would be right.
    forced(engine, lambda context: (0, 0, Mode.OFF_COLD))
    engine.submit("long", 20_000, 60, lines("hazard:0.8", "eagle", KMAX), 0)
    engine.step()
    assert engine.script.texts["long"].lost
    while not any(each.finished for each in engine.step()):
        pass
    engine.recorder.pop_steps()


def test_what_a_conversation_has_said_is_kept(engine_of: Made) -> None:
    engine = engine_of(cached=True)
    stream = Stream(clients=3, requests=12, turns=4, wait=2.0, prompts=160, lengths="even", mean=40)
    asked = Traffic(streams=(stream,), records=("hazard:0.8",))
    made = jobs(asked, "eagle", KMAX, 1)
    engine.use(parse_arm("k3"), DEVICE)
    for _ in range(2):  # what one load has left is no part of the next
        began = engine.recorder.clock()
        load.serve(engine, asked, made)
        steps = engine.recorder.pop_steps()
        read = sum(work.prefill for work in steps)
        # Whole blocks are kept: of each later turn, the last one or two are read again.
        new = sum(job.prompt - len(job.history) for job in made)
        assert new < read < new + 12 * 3 * BLOCK_TOKENS < sum(job.prompt for job in made) / 2
        worked = sum(DEVICE.charge("eagle").seconds(work) for work in steps)
        waits = max(sum(made[n].wait for n in range(c, 12, 3)) for c in range(3))
        assert engine.recorder.clock() - began > max(waits, worked)


def test_a_conversation_keeps_the_holes_of_its_earlier_turns(engine_of: Made) -> None:
    engine = engine_of(cached=True)
    played, history = lines("hazard:0.8", "eagle", KMAX), [1, 0]
    forced(engine, lambda context: (0, 0, Mode.OFF_COLD))
    engine.submit("first", 90, 30, played, 0, history)
    while not any(each.finished for each in engine.step()):
        pass
    forced(engine, lambda context: (3, 3, Mode.ON))
    for name, begins, right in (("next", history, 0), ("other", [2, 0], 3)):
        engine.submit(name, 90, 200, played, 0, begins)
        most = 0
        while name in engine.script.texts:
            most = max(most, engine.script.texts[name].right)
            engine.step()
        assert min(most, 3) == right
    engine.drain()
    engine.recorder.pop_steps()


def test_one_k_for_the_batch_out_of_a_ladder(engine_of: Made) -> None:
    engine = engine_of()
    ladder = (0, 2, 5)
    arm = replace(parse_arm(GOODPUT), graphs=Graphs(kind="ladder", ladder=ladder))
    engine.use(arm, DEVICE)
    steps = [work for work in serve(engine, requests=24, tokens=150) if work.requests]
    assert {work.most_k for work in steps} <= {*ladder, 7}
    uniform = [work.least_k == work.most_k for work in steps]
    assert np.mean(uniform) > 0.9  # requests that have just come have Kmax placeholders
    assert engine.controller.capability.uniform_values == ladder


def test_a_drafter_whose_depth_is_fixed_makes_all_its_passes(engine_of: Made) -> None:
    engine = engine_of(fixed_depth=True)
    engine.use(parse_arm(GOODPUT), DEVICE)
    steps = [work for work in serve(engine, tokens=150, records="hazard:0.3") if work.requests]
    assert {work.passes for work in steps} == {KMAX}
    assert min(work.most_k for work in steps[20:]) < KMAX


def test_confidence_arrives_with_the_drafts_or_late(engine_of: Made) -> None:
    for ahead in (False, True):
        engine = engine_of(method="draft_model", kmax=6, ahead=ahead)
        engine.use(parse_arm(GOODPUT), DEVICE)
        serve(engine, requests=8, tokens=150, records="record:good_t0.8")
        hazards = engine.status()["hazards"]
        assert "confidence" in hazards
        signals = engine.scheduler.adaptive_spec._signals
        assert (signals.late > 0) is ahead


def test_an_arm_without_confidence_sees_none(engine_of: Made) -> None:
    engine = engine_of(method="draft_model", kmax=6)
    engine.use(parse_arm("history"), DEVICE)
    serve(engine, requests=8, tokens=150, records="record:good_t0.8")
    assert "confidence" not in engine.status()["hazards"]


def test_an_asynchronous_engine_learns_a_step_later_and_emits_the_same(engine_of: Made) -> None:
    emitted = {}
    for ahead in (False, True):
        engine = engine_of(ahead=ahead)
        engine.use(parse_arm("k3"), DEVICE)
        steps = serve(engine)
        emitted[ahead] = [work.emitted for work in steps if work.emitted]
        assert engine.recorder.completed == []
    assert sum(emitted[True]) == sum(emitted[False]) == 4 * 60
    # Steps of running requests accept the same; a request that has ended is known a step later.
    assert emitted[True][:15] == emitted[False][:15]


def test_a_preempted_request_is_read_again_and_goes_on(engine_of: Made) -> None:
    engine = engine_of()
    engine.use(parse_arm("k3"), DEVICE, kv_tokens=700)
    preempted = []
    schedule = engine.scheduler.schedule

    def counted(*args: Any, **kwargs: Any) -> Any:
        output = schedule(*args, **kwargs)
        preempted.extend(output.preempted_req_ids or ())
        return output

    engine.scheduler.schedule = counted
    steps = serve(engine, requests=8, tokens=120)
    engine.scheduler.schedule = schedule
    assert preempted
    assert sum(work.emitted for work in steps) == 8 * 120
    # It is accepted as before: with holes it would emit a token a step.
    last = [work for work in steps if work.requests == 1]
    assert np.mean([work.emitted for work in last]) > 1.8
    engine.use(parse_arm("k3"), DEVICE)
    assert len(serve(engine, requests=8, tokens=120)) < len(steps)


def test_a_long_prompt_is_read_in_chunks(engine_of: Made) -> None:
    engine = engine_of()
    engine.use(parse_arm("k3"), DEVICE)
    steps = serve(engine, requests=1, tokens=20, prompt=20_000)
    chunks = [work.prefill for work in steps if work.prefill]
    assert (len(chunks), sum(chunks)) == (3, 20_000)
    assert max(chunks) <= STEP_TOKENS
    assert [work.emitted for work in steps[:3]] == [0, 0, 1]


def test_n_gram_finds_nothing_at_times_unless_fillers_stand_there(engine_of: Made) -> None:
    verified = {}
    for fillers in (False, True):
        engine = engine_of(method="ngram", fillers=fillers)
        engine.use(parse_arm("k7"), DEVICE)
        played = lines("record:two_sources", "ngram", KMAX)
        assert played.proposed is not None
        assert 0 in played.proposed
        steps = serve(engine, requests=8, tokens=60, records="record:two_sources")
        verified[fillers] = [work.tokens - work.requests for work in steps if work.requests]
    assert np.mean(verified[False]) < 0.9 * np.mean(verified[True])


def test_the_planner_verifies_fewer_fillers_where_it_knows_what_matches(engine_of: Made) -> None:
    verified = {}
    for known in (False, True):
        engine = engine_of(method="ngram", fillers=True)
        engine.use(parse_arm("goodput"), DEVICE)
        if not known:
            engine.scheduler.adaptive_spec._builder.matches = None
        steps = serve(engine, requests=8, tokens=60, records="record:two_sources")
        verified[known] = sum(work.tokens - work.requests for work in steps if work.requests)
        assert not engine.status()["fail_opens"]
    assert verified[True] < 0.9 * verified[False]


def test_a_second_source_copies_what_the_record_holds(engine_of: Made) -> None:
    engine = engine_of()
    engine.use(parse_arm("both"), DEVICE)
    steps = serve(engine, requests=8, tokens=200, records="record:two_sources+lookup")
    lookup = engine.status()["lookup"]
    assert lookup["verified"] > 0
    assert 0 < lookup["accepted"] <= lookup["verified"]
    assert sum(work.emitted for work in steps) == 8 * 200
    assert not engine.status()["fail_opens"]


def test_the_oracle_wastes_no_draft(engine_of: Made) -> None:
    engine = engine_of()
    engine.use(parse_arm("oracle"), DEVICE)
    steps = [work for work in serve(engine, requests=8, tokens=200) if work.requests]
    drafts = sum(work.tokens - work.requests for work in steps)
    accepted = sum(work.emitted - work.requests for work in steps)
    assert drafts - accepted < 0.05 * drafts  # what came with a request's first step


@pytest.mark.parametrize("ahead", [False, True])
def test_the_same_run_has_the_same_bytes(engine_of: Made, ahead: bool) -> None:
    cell = Cell(
        group="g",
        name="c",
        device="a100-8b",
        method="eagle",
        noise=0.15,
        ahead=ahead,
        traffic=Traffic(pieces=(Piece(24, 80),), records=("hazard:0.6",), lengths="lognormal"),
    )

    def once() -> bytes:
        engines = Engines()
        engines._engines[cell.kind] = engine_of(ahead=ahead)
        found = [row for arm in ("k3", GOODPUT) for row in runs(engines, cell, arm, 1)]
        assert not any(row.faults for row in found)
        assert {row.tokens for row in found} == {found[0].tokens}
        return msgspec.json.encode(found)

    assert once() == once()


def test_steps_are_priced_on_another_device_as_if_run_there(engine_of: Made) -> None:
    made = dict(
        group="g",
        method="eagle",
        traffic=Traffic(pieces=(Piece(8, 24),), records=("hazard:0.6",), lengths="even"),
    )
    first = Cell(name="first", device="h100-8b", **made)
    second = Cell(name="second", device="a100-8b", **made)
    engines = Engines()
    engines._engines[first.kind] = engine_of()
    list(runs(engines, first, "k3", 1))
    (priced,) = runs(engines, second, "k3", 1)
    engines.last_key = None
    (run,) = runs(engines, second, "k3", 1)
    assert priced == run


def test_a_restarted_server_goes_on_from_its_saved_state(engine_of: Made, tmp_path: Path) -> None:
    engine = engine_of()
    traffic = Traffic(pieces=(Piece(16, 120),), records=("hazard:0.7",), lengths="even")
    made = jobs(traffic, "eagle", KMAX, 1)
    engine.use(replace(parse_arm(GOODPUT), seed=1, state=str(tmp_path)), DEVICE)
    measuring = []
    for _ in range(2):
        load.serve(engine, traffic, made)
        measuring.append(engine.status()["steps_by_kind"].get("measuring", 0))
        engine.restart()
    assert measuring[1] < measuring[0]
