"""Scripted models under SGLang's real scheduler: what runs, what it costs, who decides."""

import importlib.util
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from adaptive_spec.sim.acceptance.data import steps_of
from adaptive_spec.sim.drafters.registry import drafter
from adaptive_spec.sim.hardware.base import Hardware
from adaptive_spec.sim.hardware.registry import hardware_profile
from benchmarks.judge.arms import GOODPUT, NONE, SGLANG_RULE, parse_arm
from benchmarks.judge.cells import Cell
from benchmarks.judge.device import DRAFTERS, Work
from benchmarks.judge.engines import SGLANG, STEP_TOKENS
from benchmarks.judge.records import lines
from benchmarks.judge.run import Engines, runs
from benchmarks.judge.scripted_sglang import KMAX, MOST_TOKENS, ScriptedSglang
from benchmarks.judge.traffic import Piece, Traffic
from benchmarks.judge.trees import DEPTH, NODES, TREE
from tests.bench_judge.scripted import DEVICE, Made, engines, serve

PLACES = "sglang", "sgl_kernel"
pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(
        not all(importlib.util.find_spec(name) for name in PLACES),
        reason="SGLang is not installed, or tests/sglang/stand_in is not on PYTHONPATH",
    ),
]


@pytest.fixture(scope="module")
def engine_of() -> Iterator[Made]:
    """Engines of SGLang by what they are; SGLang's variables go with them."""
    with engines(ScriptedSglang, {}, engine=SGLANG) as made:
        yield made


def decoding(steps: list[Work]) -> list[Work]:
    return [work for work in steps if work.requests]


@pytest.mark.parametrize("ahead", [False, True])
def test_a_fixed_k_emits_what_a_replay_of_the_record_does(engine_of: Made, ahead: bool) -> None:
    engine = engine_of(ahead=ahead)
    played = lines("hazard:0.8", "eagle", KMAX)
    for k in (1, 3, 7):
        engine.use(parse_arm(f"k{k}"), DEVICE)
        prompt, *steps = serve(engine, requests=1, tokens=201)
        assert (prompt.prefill, prompt.emitted) == (40, 1)
        steps = [work for work in steps if work.emitted]  # the last one may have run in vain
        _, accepted = steps_of(played.data, k)
        expected = accepted[: len(steps) - 1] + 1  # the last step emits what is left
        assert [work.emitted for work in steps[:-1]] == expected.tolist()
        assert sum(work.emitted for work in steps) == 200
        assert {(work.most_k, work.passes) for work in steps} == {(k, k)}


def test_k_0_runs_one_pass_and_no_drafter_none(engine_of: Made) -> None:
    engine = engine_of()
    for arm, passes in (("k0", 1), (NONE, 0)):
        engine.use(parse_arm(arm), DEVICE)
        steps = serve(engine)
        assert {(work.passes, work.most_k) for work in steps} == {(passes, 0)}
        assert [work.emitted for work in steps] == [4] * 60


def test_prompts_run_apart_and_in_chunks(engine_of: Made) -> None:
    engine = engine_of()
    engine.use(parse_arm("k3"), DEVICE)
    engine.submit("first", 40, 60, lines("hazard:0.8", "eagle", KMAX), 0)
    engine.step()
    steps = serve(engine, requests=1, tokens=20, prompt=20_000)
    assert not any(work.requests and work.prefill for work in steps)
    chunks = [(work.prefill, work.emitted) for work in steps if work.prefill > 40]
    assert chunks == [(STEP_TOKENS, 0), (STEP_TOKENS, 0), (20_000 - 2 * STEP_TOKENS, 1)]


@pytest.mark.parametrize(("requests", "captured"), [(5, 5), (17, 18), (33, 40), (100, 104)])
def test_a_step_costs_what_the_price_list_says(
    engine_of: Made, requests: int, captured: int
) -> None:
    engine = engine_of()
    engine.use(parse_arm("k3"), DEVICE)
    began = engine.recorder.clock()
    played = lines("hazard:0.8", "eagle", KMAX)
    for number in range(requests):
        engine.submit(f"q{number}", 40, 60, played, 101 * number)
    engine.step()
    read = engine.recorder.clock()
    engine.step()
    profile = hardware_profile(DEVICE.hardware)
    context = 40 * requests
    expected = (
        profile.overhead
        + profile.fixed
        + profile.per_token * captured * 4
        + profile.per_context_token * context
        + drafter("eagle").cost_on(Hardware(profile)).seconds(3, requests, context)
    )
    assert engine.recorder.clock() - read == pytest.approx(expected, rel=1e-12)
    assert read - began > 0
    while engine.scheduler.last_batch:
        engine.step()
    engine.recorder.pop_steps()


@pytest.mark.parametrize(
    ("requests", "tier"),
    [(7, (1, 3, 5, 7)), (8, (0, 1, 3)), (30, (0, 1, 3)), (31, (0, 1)), (60, (0, 1)), (61, (0,))],
)
def test_sglangs_own_rule_has_tiers_of_captured_sizes(
    engine_of: Made, requests: int, tier: tuple[int, ...]
) -> None:
    engine = engine_of()
    engine.use(parse_arm(SGLANG_RULE), DEVICE)
    steps = decoding(serve(engine, requests, tokens=400, records="hazard:0.99"))
    # Documented: 1 3 5 7 below 8, 0 1 3 below 32, 0 1 below 64, 0.
    full = {work.most_k for work in steps if work.requests == requests}
    assert full <= set(tier)
    assert max(full) == tier[-1]
    assert {work.most_k for work in steps if work.requests < 8} <= {1, 3, 5, 7}


def test_sglangs_own_rule_follows_acceptance(engine_of: Made) -> None:
    engine, last = engine_of(), {}
    for records in ("hazard:0.99", "hazard:0.1"):
        engine.use(parse_arm(SGLANG_RULE), DEVICE)
        steps = serve(engine, requests=6, tokens=300, records=records)
        full = [work.most_k for work in steps if work.requests == 6]
        assert full[:10] == [3] * 10  # its warm-up
        last[records] = full[-1]
    assert last == {"hazard:0.99": 7, "hazard:0.1": 1}


def test_our_policy_runs_one_k_per_batch(engine_of: Made) -> None:
    engine = engine_of()
    engine.use(replace(parse_arm(GOODPUT), seed=5), DEVICE)
    assert engine.controller.config.seed == 5
    steps = decoding(serve(engine, requests=24, tokens=200))
    assert all(work.least_k == work.most_k for work in steps)
    assert len({work.most_k for work in steps}) > 2
    capability, status = engine.controller.capability, engine.status()
    assert capability.uniform_values == tuple(range(KMAX + 1))
    assert sum(status["steps_by_mode"].values()) >= len(steps)  # some plans did not fit
    assert not status["fail_opens"]
    engine.use(parse_arm("k3"), DEVICE)
    assert engine.status() == {}
    assert {work.most_k for work in decoding(serve(engine))} == {3}


@pytest.mark.parametrize("depth", [1, 3, 5])
def test_a_tree_verifies_its_nodes_and_emits_its_accepted_path(engine_of: Made, depth: int) -> None:
    engine = engine_of(method=TREE, kmax=DEPTH)
    engine.use(parse_arm(f"k{depth}"), DEVICE)
    _, *steps = serve(engine, requests=1, tokens=201)
    steps = [work for work in steps if work.emitted]
    assert {(work.tokens, work.passes) for work in steps} == {(NODES[depth], depth)}
    played, at, expected = lines("hazard:0.8", TREE, DEPTH).of_trees[depth], 0, []
    for _ in steps[:-1]:
        expected.append(played[at] + 1)
        at += expected[-1]
    assert [work.emitted for work in steps[:-1]] == expected
    assert max(expected) == depth + 1
    chain = lines("hazard:0.8", TREE, DEPTH).right
    assert all(tree >= min(first, 1) for tree, first in zip(played, chain, strict=True))


def test_a_tree_costs_its_nodes_and_the_passes_of_its_depth(engine_of: Made) -> None:
    seconds = {}
    for depth in (0, 3, 5):
        engine = engine_of(method=TREE, kmax=DEPTH)
        engine.use(parse_arm(f"k{depth}"), DEVICE)
        began = engine.recorder.clock()
        steps = serve(engine, requests=1, tokens=2)
        seconds[depth] = engine.recorder.clock() - began
        assert [work.passes for work in steps if work.requests] == [max(depth, 1)]
    machine = hardware_profile(DEVICE.hardware)
    eagle = drafter(DRAFTERS[TREE]).cost_on(Hardware(machine))
    each = eagle.pass_ + eagle.pass_per_request + 40 * eagle.pass_per_context_token
    assert seconds[5] - seconds[3] == pytest.approx(2 * each + 2 * machine.per_token)


def test_our_policy_steers_trees_by_depth(engine_of: Made) -> None:
    engine = engine_of(method=TREE, kmax=DEPTH)
    engine.use(parse_arm(GOODPUT), DEVICE)
    steps = decoding(serve(engine, requests=24, tokens=200))
    assert {work.tokens // work.requests for work in steps} <= set(NODES.values())
    assert len({work.tokens // work.requests for work in steps}) > 2
    capability, status = engine.controller.capability, engine.status()
    assert dict(zip(capability.uniform_values, capability.tree_nodes, strict=True)) == NODES
    assert not status["fail_opens"]


def test_ngram_fills_up_every_request_and_filler_is_rejected(engine_of: Made) -> None:
    engine = engine_of(method="ngram")
    engine.use(parse_arm('policy:static={"k": 7}'), DEVICE)
    steps = decoding(serve(engine, requests=8, tokens=200, records="record:two_sources"))
    assert {(work.tokens // work.requests, work.passes) for work in steps} >= {(8, 7)}
    status, verified = engine.status(), sum(work.tokens - work.requests for work in steps)
    assert status["verified_tokens"] == verified
    rounds = sum(work.requests for work in steps)
    found = [min(7, each) for each in lines("record:two_sources", "ngram", KMAX).proposed]
    assert 0 < status["accepted_tokens"] / rounds < sum(found) / len(found) < 7
    assert not engine.controller.capability.off_pass


@pytest.mark.parametrize("ahead", [False, True])
def test_a_retracted_request_is_read_again_and_goes_on(engine_of: Made, ahead: bool) -> None:
    engine, played = engine_of(ahead=ahead), lines("hazard:0.8", "eagle", KMAX)
    engine.use(parse_arm("k3"), DEVICE, kv_tokens=900)
    # SGLang admits by what it expects of requests: these turn out longer.
    engine.scheduler.new_token_ratio_tracker.current = 0.1
    again, script = [], engine.script
    prompts = script.prompts

    def observed(batch: Any) -> list[int]:
        tokens = prompts(batch)
        for request in batch.reqs:
            again.extend([request.rid] * bool(request.output_ids))
            # The token that this pass emits stands where the scheduler will put it.
            assert script.texts[request.rid].at == len(request.output_ids)
        return tokens

    script.prompts = observed  # type: ignore[method-assign]
    for number in range(12):
        engine.submit(f"q{number}", 40, 20 if number % 2 else 300, played, 101 * number)
    left = 12
    while left:
        left -= sum(each.finished for each in engine.step())
    engine.drain()
    del script.prompts
    assert again
    assert sum(work.emitted for work in engine.recorder.pop_steps()) == 6 * 300 + 6 * 20
    # The next run gets back what was held, whatever its schedule.
    other = engine_of(ahead=not ahead)
    other.use(parse_arm("k3"), DEVICE)
    assert other.scheduler.token_to_kv_pool_allocator.available_size() == MOST_TOKENS


def test_overlapped_steps_are_processed_when_the_next_is_launched(engine_of: Made) -> None:
    emitted, late = {}, {}
    for ahead in (False, True):
        engine = engine_of(ahead=ahead)
        engine.use(parse_arm("k3"), DEVICE)
        engine.submit("first", 40, 9, lines("hazard:0.8", "eagle", KMAX), 0)
        late[ahead] = engine.step()
        while engine.scheduler.last_batch:
            engine.step()
        engine.recorder.pop_steps()
        emitted[ahead] = [work.emitted for work in serve(engine) if work.emitted]
    assert [each.tokens for each in late[False]] == [1]
    assert late[True] == []
    assert sum(emitted[True]) == sum(emitted[False]) == 4 * 60
    assert emitted[True][:12] == emitted[False][:12]


@pytest.mark.parametrize("ahead", [False, True])
def test_the_same_run_has_the_same_bytes(engine_of: Made, ahead: bool) -> None:
    cell = Cell(
        group="g",
        name="c",
        device="a100-8b",
        method="eagle",
        engine=SGLANG,
        noise=0.15,
        ahead=ahead,
        traffic=Traffic(pieces=(Piece(24, 80),), records=("hazard:0.6",), lengths="lognormal"),
    )

    def once(seed: int = 1) -> bytes:
        engines = Engines()
        engines._engines[cell.kind] = engine_of(ahead=ahead)  # type: ignore[assignment]
        found = [r for arm in ("k3", SGLANG_RULE, GOODPUT) for r in runs(engines, cell, arm, seed)]
        assert not any(row.faults for row in found)
        assert {row.tokens for row in found} == {found[0].tokens}
        return msgspec.json.encode(found)

    first = once()
    assert once() == first
    assert once(seed=2) != first
