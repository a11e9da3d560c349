from __future__ import annotations

import math
from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_spec.errors import ConfigError
from adaptive_spec.operation.segments import read_trace
from adaptive_spec.policy_helpers import StatelessPolicy
from adaptive_spec.sim.engine.kv_pool import pool_tokens
from adaptive_spec.sim.engine.prompt_queue import PromptQueue, Running
from adaptive_spec.sim.load.base import ClosedLoad
from adaptive_spec.sim.load.request import Request
from adaptive_spec.step import Level, Mode, SpecPlan
from tests.sim.small_server import (
    PlainDrafter,
    PlainHardware,
    RandomK,
    closed_load,
    endless,
    independent,
    open_load,
    server,
)


class Watched:
    """Checks, at every step of an engine, what must always hold."""

    def __init__(self, engine):
        self.engine = engine
        self.emitted = Counter()
        self.finished = []
        original = engine.controller.observe
        engine.controller.observe = lambda outcome: (self.observe(outcome), original(outcome))

    def observe(self, outcome):
        assert (outcome.accepted <= outcome.verified).all()
        assert (outcome.emitted == outcome.accepted + 1).all()

    def run(self):
        engine = self.engine
        last = -1.0
        load = engine._load
        original = load.finished
        load.finished = lambda request, now: (self.finished.append(request), original(request, now))
        step = engine.step

        def checked():
            nonlocal last
            step()
            assert engine.now > last
            last = engine.now
            held = int(((engine.batch.context + 15) // 16).sum()) + engine.prompts.blocks
            assert held <= engine.pool.blocks
            batch = engine.batch
            assert (batch.left >= 0).all()
            for rows in (batch.slots, batch.task, batch.tpot_target, batch.temperature):
                assert rows.flags.c_contiguous  # as the contract of a step's context says

        engine.step = checked
        return engine.run()


lengths = st.lists(
    st.tuples(st.floats(0.0, 0.5), st.integers(1, 300), st.integers(1, 80)),
    min_size=1,
    max_size=25,
).map(lambda rows: sorted(rows))


@given(
    lengths,
    st.integers(0, 2),
    st.sampled_from([Level.UNIFORM, Level.VERIFY, Level.FULL]),
    st.sampled_from(["random", "modes", "goodput", "off", "static"]),
    st.integers(25, 120),
    st.integers(1, 12),
    st.integers(0, 1000),
)
def test_every_request_ends_with_exactly_its_tokens_within_the_kv_pool(
    rows, delay, level, policy, blocks, max_running, seed
):
    if policy == "random":
        policy = RandomK(seed)
    elif policy == "modes":
        policy = RandomK(seed, (Mode.ON, Mode.OFF_WARM, Mode.OFF_COLD))
    engine = server(
        open_load(rows),
        policy,
        data=independent(0.7, 60),
        delay=delay,
        level=level,
        kv_tokens=blocks * 16,
        max_running=max_running,
        max_batch_tokens=64,
        seed=seed,
    )
    watched = Watched(engine)
    result = watched.run()
    assert len(watched.finished) == len(rows)
    assert result.requests + result.rejected == len(rows)
    fitting = [output for _, prompt, output in rows if prompt + output <= blocks * 16]
    assert result.tokens == sum(fitting)
    assert result.kv_peak <= 1.0
    assert result.fail_opens == 0
    assert len(engine.controller.slots) == 0
    assert not engine.prompts.blocks


def test_a_tight_pool_preempts_and_still_answers_everything():
    rows = [(0.0, 20, 200)] * 8
    result = server(open_load(rows), "static", kv_tokens=640, max_running=8).run()
    assert result.preemptions > 0
    assert result.tokens == 1600


def test_the_memory_guard_preempts_less_than_a_fixed_k():
    def preemptions(guard):
        rows = [(0.02 * number, 30, 150 + 3 * number) for number in range(40)]
        engine = server(
            open_load(rows),
            "static",
            data=independent(0.2, 5000),
            max_draft_tokens=8,
            kv_tokens=1200,
            max_running=14,
            memory_guard=guard,
        )
        return engine.run().preemptions

    assert preemptions(True) < preemptions(False)


@given(st.integers(0, 10_000), st.sampled_from(["goodput", "static"]), st.integers(0, 2))
@settings(max_examples=10)
def test_the_same_seed_gives_the_same_bytes(seed, policy, delay):
    def run():
        engine = server(closed_load(5), policy, seed=seed, delay=delay, timing_noise=0.1)
        result = engine.run(max_tokens=2000)
        return msgspec.json.encode(
            msgspec.structs.replace(result, decision_us=None, simulation_seconds=0.0)
        )

    assert run() == run()


def test_another_seed_gives_another_run():
    data = independent(0.7, 5000)
    one = server(closed_load(5), data=data, seed=1, timing_noise=0.1).run(max_tokens=2000)
    two = server(closed_load(5), data=data, seed=2, timing_noise=0.1).run(max_tokens=2000)
    assert one.seconds != two.seconds


@pytest.mark.parametrize(("hazard", "k"), [(0.5, 1), (0.5, 7), (0.7, 3), (0.9, 3), (0.9, 7)])
def test_speed_up_of_one_request_is_leviathans_formula(hazard, k):
    """(1 - a^(K+1)) / ((1 - a)(K c + 1)): arXiv 2211.17192, theorem 3.8."""
    tokens, share, step = 20_000, 0.1, 0.01
    engine = server(
        open_load([(0.0, 1, tokens)]),
        "static",
        data=independent(hazard, tokens, depth=8),
        hardware=PlainHardware(fixed=step, token=0.0, context=0.0),
        drafter=PlainDrafter(pass_=share * step),
        max_draft_tokens=8,
        kv_tokens=10**6,
        policy_options={"k": k},
    )
    # Without speculation every token takes one step: see the test of `off`.
    measured = tokens * step / engine.run().seconds
    mean = (1 - hazard ** (k + 1)) / (1 - hazard)
    formula = mean / (k * share + 1)
    # Four standard errors of the mean accepted length; its deviation is at most (K + 1) / 2.
    error = (k + 1) / 2 / math.sqrt(tokens / mean) / mean
    assert measured == pytest.approx(formula, rel=4 * error)


def test_nobody_is_admitted_in_a_step_that_preempted():
    engine = server(
        open_load([(0.0, 20, 200)] * 8),
        "static",
        kv_tokens=640,
        max_running=8,
        memory_guard=False,
    )
    run_prompts, admitted = engine.kv_blocks.run_prompts, []

    def watched(batch_tokens, verify):
        waiting = len(engine.prompts.waiting)
        step = run_prompts(batch_tokens, verify)
        if engine.kv_blocks.preempted:
            admitted.append(waiting - len(engine.prompts.waiting))
        return step

    engine.kv_blocks.run_prompts = watched
    engine.run()
    assert admitted
    assert not any(admitted)


def test_an_engine_of_its_own_k_verifies_beyond_the_end_of_requests():
    def ran(past_end):
        load = open_load([(0.0, 5, 20)] * 4)
        return server(
            load, "static", drafts_past_end=past_end, max_draft_tokens=4, policy_options={"k": 4}
        ).run()

    trimmed, whole = ran(False), ran(True)
    assert trimmed.mean_k < whole.mean_k == 4
    assert trimmed.tokens == whole.tokens == 80
    assert trimmed.seconds < whole.seconds


def test_k_may_be_large():
    data = independent(0.95, 2000, depth=60)
    engine = server(closed_load(2), "static", data=data, max_draft_tokens=60)
    result = engine.run(max_tokens=2000)
    assert result.mean_k > 20
    assert sum(result.k_fraction.values()) == pytest.approx(1.0)


def test_a_load_far_beyond_the_hardware_is_an_error(monkeypatch):
    monkeypatch.setattr("adaptive_spec.sim.engine.loop._MOST_WAITING", 100)
    with pytest.raises(ConfigError, match="lower its rate"):
        server(open_load([(0.0, 5, 50)] * 500), "static").run()


def test_a_batch_runs_padded_and_pays_for_leaving_the_graphs():
    def seconds(concurrency, buckets, outside=0.0):
        hardware = PlainHardware(
            fixed=0.0, token=0.001, context=0.0, token_buckets=buckets, outside=outside
        )
        load = open_load([(0.0, 1, 3)] * concurrency)
        return server(load, "off", hardware=hardware).run().seconds

    # One step of prompts and two of decoding each.
    assert seconds(5, ()) == pytest.approx(3 * 0.005)
    assert seconds(5, (4, 8)) == pytest.approx(0.005 + 2 * 0.008)
    assert seconds(5, (4,), outside=0.1) == pytest.approx(3 * (0.005 + 0.1))


def test_prompts_run_in_chunks_beside_decoding():
    hardware = PlainHardware(fixed=0.01, token=0.0, context=0.0)
    engine = server(open_load([(0.0, 1000, 2)]), "off", hardware=hardware, max_batch_tokens=100)
    result = engine.run()
    assert result.ttft_ms.p50 == pytest.approx(100.0)
    assert result.seconds == pytest.approx(0.11)


@pytest.mark.parametrize("delay", [0, 1, 2])
def test_the_policy_learns_of_a_step_so_many_steps_later(delay):
    seen = []

    class Watching(StatelessPolicy):
        name = "watching"
        latest = -1

        def plan(self, context):
            seen.append(context.step - self.latest)
            return SpecPlan(
                step=context.step,
                verify=context.draft_available,
                draft_depth=2,
                mode=Mode.ON,
                reason="",
            )

        def observe(self, step):
            self.latest = step.outcome.step

    server(open_load([(0.0, 1, 60)]), Watching(), delay=delay).run()
    assert set(seen[6:]) == {1 + delay}


def test_a_uniform_engine_runs_only_k_of_its_ladder(tmp_path):
    engine = server(
        closed_load(4),
        "goodput",
        level=Level.UNIFORM,
        ladder=(0, 1, 3, 5),
        trace_directory=str(tmp_path),
    )
    result = engine.run(max_tokens=3000)
    assert result.fail_opens == 0
    assert {record["depth"] for record in read_trace(tmp_path)} <= {0, 1, 3, 5}


def test_the_step_trace_is_the_adapters_format(tmp_path):
    engine = server(open_load([(0.0, 5, 50)] * 3), "static", trace_directory=str(tmp_path))
    result = engine.run()
    records = list(read_trace(tmp_path))
    # The first token of each request comes from its prompt.
    assert sum(sum(record["emitted"]) for record in records) == result.tokens - 3
    assert {name for record in records for name in record["ids"]} == {"r0", "r1", "r2"}


def test_a_closed_loop_keeps_its_concurrency():
    result = server(closed_load(7, prompt=1, output=200), "static").run(max_tokens=20_000)
    assert 6.8 < result.mean_batch <= 7.0


def test_a_request_too_long_for_the_pool_is_rejected_and_counted():
    rows = [(0.0, 50, 10), (0.0, 1000, 10)]
    result = server(open_load(rows), "static", kv_tokens=320).run()
    assert (result.requests, result.rejected) == (1, 1)


def test_kmax_beyond_the_acceptance_data_is_an_error():
    with pytest.raises(ConfigError, match="at most 8"):
        server(closed_load(1), max_draft_tokens=9)


def test_goodput_counts_requests_within_both_limits():
    from adaptive_spec.sim.engine.measurements import Limits

    hardware = PlainHardware(fixed=0.01, token=0.0, context=0.0)
    engine = server(open_load([(0.0, 1, 11), (10.0, 1, 11)]), "off", hardware=hardware)
    engine.measurements._limits = Limits(ttft=0.02, tpot=0.0095)
    assert engine.run().goodput_req_s == 0.0
    engine = server(open_load([(0.0, 1, 11), (10.0, 1, 11)]), "off", hardware=hardware)
    engine.measurements._limits = Limits(ttft=0.02, tpot=0.011)
    assert engine.run().goodput_req_s == pytest.approx(2 / (10.0 + 0.11))


def test_tokens_of_the_warm_up_are_not_counted():
    result = server(closed_load(4), "static").run(max_tokens=500, warmup_steps=400)
    assert 500 <= result.tokens < 520 + 4 * 7


def test_a_run_that_ends_within_its_warm_up_is_an_error():
    with pytest.raises(ConfigError, match="within its warm-up"):
        server(open_load([(0.0, 1, 50)]), "static").run(warmup_steps=1000)


def test_a_failing_policy_leaves_the_run_complete():
    class Failing(StatelessPolicy):
        name = "failing"

        def plan(self, context):
            raise RuntimeError("broken")

    result = server(ClosedLoad(endless(5, 50), 2), Failing()).run(max_tokens=1000)
    assert result.tokens >= 1000
    assert result.fail_opens > 0
    assert result.mode_fraction == {"engine": 1.0}


def test_a_warm_up_in_tokens_measures_all_on_the_same_stretch():
    def measured(k):
        engine = server(closed_load(4), "static", policy_options={"k": k})
        return engine.run(warmup_tokens=2_000, max_tokens=1_000)

    # Not more than a step beyond: 4 requests emit a token each.
    assert 1_000 <= measured(0).tokens < 1_004
    assert measured(4).steps < measured(0).steps


def test_a_warm_up_in_seconds_is_left_out():
    whole = server(closed_load(4), "static").run(max_seconds=20.0)
    later = server(closed_load(4), "static").run(max_seconds=20.0, warmup_seconds=15.0)
    assert later.seconds == pytest.approx(5.0, abs=0.1)
    assert later.tokens < whole.tokens / 3


def test_chunks_of_a_prompt_attend_to_what_ran_before():
    queue = PromptQueue(block_tokens=16)
    asked = Request(id="a", arrival=0.0, prompt_tokens=10, output_tokens=5)
    queue.arrive(Running(asked, start=0, length=10, temperature=0.0))
    found = [queue.run_prompts(4, free_blocks=9, free_places=1) for _ in range(3)]
    assert [(step.tokens, step.context_tokens) for step in found] == [(4, 6), (4, 22), (2, 17)]
    assert [len(step.ended) for step in found] == [0, 0, 1]


def test_the_drafters_own_kv_makes_the_pool_smaller():
    plain, half = PlainDrafter(), PlainDrafter()
    half.kv_share = lambda hardware: 0.5
    sizes = [pool_tokens(PlainHardware(), each) for each in (plain, half)]
    assert sizes[1] == pytest.approx(sizes[0] / 1.5, abs=1)
