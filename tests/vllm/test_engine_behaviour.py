"""What a running engine does with our decisions: per-request K, drafter passes, faults, hints."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from engines import KMAX, RANDOM, Job, check_same, counts_drafts_per_request
from scenarios import SCENARIOS, crowded, prompts

from adaptive_spec.config import FailOpen
from adaptive_spec.sim.step_trace import find_trace

pytestmark = pytest.mark.engine


@pytest.fixture
def engine(reference: dict[str, Any], shelf: Any) -> Any:
    """draft_model, synchronous; the policy can be exchanged and is put back."""
    engine = shelf.get("draft_model", adaptive=RANDOM, asynchronous=False)
    controller = engine.controller
    policy = controller.policy
    yield engine
    controller.policy = policy
    controller.counters.__init__()
    faults = controller._faults
    faults.__init__(controller.config.fail_open, controller.counters, faults._log)


def needs_counts_per_request() -> None:
    if not counts_drafts_per_request():
        pytest.skip("this vLLM has no --per-request-spec-decode-metrics")


def few(count: int = 4, **options: Any) -> list[Job]:
    return [
        Job(f"few-{index}", prompt, 0, {"max_tokens": 40} | options)
        for index, prompt in enumerate(prompts(count, 21))
    ]


def drafted(answer: Any) -> list[int]:
    """Drafts verified per step, from the engine's own metrics of the request."""
    needs_counts_per_request()
    return list(answer.metrics[0].per_step_drafted)


@pytest.mark.every_version
def test_requests_of_one_batch_run_with_different_k(engine: Any) -> None:
    from switchable_policies import FixedPolicy

    engine.controller.policy = FixedPolicy(KMAX)
    jobs = few(3)
    jobs[0].options["extra_args"] = {"adaptive_spec_k_cap": 1}
    jobs[1].options["extra_args"] = {"adaptive_spec_off": 1}
    answers = engine.run(jobs)
    assert max(drafted(answers["few-0"])) == 1
    assert drafted(answers["few-1"]) == []
    assert max(drafted(answers["few-2"])) == KMAX


@pytest.mark.every_version
def test_hints_reach_the_policy(engine: Any) -> None:
    from switchable_policies import FixedPolicy

    seen: dict[str, tuple[Any, ...]] = {}

    class Watching(FixedPolicy):
        def plan(self, context: Any) -> Any:
            columns = (context.tpot_target, context.task, context.draft_available)
            for row in zip(context.request_ids, *(c.tolist() for c in columns), strict=True):
                seen[row[0].partition("-")[0]] = row[1:]
            return super().plan(context)

    engine.controller.policy = Watching(2)
    prompt = prompts(1, 3)[0]
    hints = {"adaptive_spec_k_cap": 2, "adaptive_spec_tpot_ms": 40, "adaptive_spec_task": "chat"}
    engine.run([Job("hinted", prompt, 0, {"extra_args": hints}), Job("plain", prompt)])
    assert seen["hinted"][0] == float("inf"), "honoured only where the operator names it"
    assert seen["plain"][0] == float("inf")
    assert seen["plain"][1] == -1
    assert seen["hinted"][1] >= 0


def test_drafter_passes_fall_with_depth(engine: Any) -> None:
    from switchable_policies import FixedPolicy

    passes = {}
    for depth in (KMAX, 1, 0):
        engine.controller.policy = FixedPolicy(depth)
        before = engine.drafter_passes
        steps: list[int] = []
        # One request at a time: every step decodes, except the one that reads the prompt.
        engine.run(few(1, max_tokens=24), steps.append)
        passes[depth] = (engine.drafter_passes - before) / len(steps)
    assert passes[KMAX] > 3.5
    assert passes[1] == pytest.approx(1.0)
    assert passes[0] == pytest.approx(1.0), "OFF-warm keeps the drafter's one pass"


@pytest.mark.parametrize(
    "asynchronous", [pytest.param(False, marks=pytest.mark.long), True], ids=["sync", "async"]
)
def test_a_request_of_a_trace_is_one_request(
    shelf: Any, tmp_path: Path, asynchronous: bool
) -> None:
    """Also where contexts count drafts that are not verified yet, and after a preemption."""
    traced = RANDOM | {"trace": {"directory": str(tmp_path)}}
    engine = shelf.get("draft_model", adaptive=traced, asynchronous=asynchronous)
    engine.run(crowded())
    engine.controller.flush()
    steps = list(find_trace(tmp_path).steps())
    pairs = {pair for step in steps for pair in zip(step.ids, step.requests, strict=True)}
    assert len(pairs) == len({name for name, _ in pairs}) > 20
    assert len({number for _, number in pairs}) == len(pairs)


def test_nothing_is_drafted_for_requests_of_one_token(engine: Any) -> None:
    from switchable_policies import FixedPolicy

    engine.controller.policy = FixedPolicy(KMAX)
    before = engine.drafter_passes
    steps: list[int] = []
    engine.run(few(16, max_tokens=1), steps.append)
    # OFF-warm: the pass that reads the prompt, for whom finds it in the prefix cache.
    assert engine.drafter_passes - before <= len(steps)


@pytest.mark.parametrize("name", ["RaisingPolicy", "NonsensePolicy", "SleepingPolicy"])
def test_a_broken_policy_costs_nothing_but_its_gain(
    engine: Any, reference: dict[str, Any], said: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    import switchable_policies

    controller = engine.controller
    as_usual = msgspec.structs.replace(controller.config, fail_open=FailOpen())
    monkeypatch.setattr(controller, "config", as_usual)
    engine.controller.policy = getattr(switchable_policies, name)()
    answers = engine.run(crowded())
    check_same(answers, reference["crowded"])
    failures = engine.controller.counters.failures
    assert sum(failures.values()) >= 5
    kinds = len(failures)
    lines = said()
    assert 1 <= len([line for line in lines if "engine's own K" in line]) <= kinds
    assert len([line for line in lines if "benched" in line]) == 1
    modes = engine.controller.counters.modes
    assert modes["engine"] > 0.9 * sum(modes.values())
    # The engine's own K ran, and the engine counted it.
    ran = itertools.chain.from_iterable(drafted(answer) for answer in answers.values())
    assert max(ran) == KMAX
    assert len(engine.controller.slots) == 0


HOOKS = ["before_schedule", "scheduled", "after_schedule", "think", "read", "processed", "freed"]


@pytest.mark.parametrize("hook", HOOKS)
def test_a_fault_in_our_own_hooks_reaches_no_request(
    engine: Any, reference: dict[str, Any], monkeypatch: pytest.MonkeyPatch, said: Any, hook: str
) -> None:
    """Each hook fails at one of its first statements, in every step."""
    driver = engine.scheduler.adaptive_spec

    def broken(*_: Any, **__: Any) -> Any:
        raise ValueError("planned failure")

    if hook == "before_schedule":
        monkeypatch.setattr(driver._builder, "block_pool", None)
    elif hook == "think":
        monkeypatch.setattr(engine.controller, "poll_control_file", broken)
    elif hook == "scheduled":
        monkeypatch.setattr(driver._step_clock, "launched", broken)
    elif hook == "after_schedule":
        replaced = property(lambda _: True, broken)
        monkeypatch.setattr(type(driver), "table_replaced", replaced, raising=False)
    elif hook == "read":
        monkeypatch.setattr(driver._step_clock, "completed", broken)
    elif hook == "processed":
        monkeypatch.setattr(driver, "learn_from_results", broken)
    else:
        monkeypatch.setattr(engine.controller, "finish", broken)
    answers = engine.run(SCENARIOS["with_aborts"]())
    monkeypatch.undo()
    check_same(answers, reference["with_aborts"])
    failures = engine.controller.counters.failures
    assert any(hook in kind for kind in failures), failures
    assert len([line for line in said() if f"hook {hook} " in line]) == 1
    engine.controller.finish(list(engine.controller.slots._slot_of))
    driver._pending.keep(0)
    driver._ended, driver._unlearned, driver._ahead = [], [], None
    driver._step_clock.reset()


@pytest.mark.every_version
def test_the_engines_half_of_the_switch(engine: Any) -> None:
    answer = json.loads(engine.core.adaptive_spec_control({"mode": "shadow"}))
    assert answer["status"]["mode"] == "shadow"
    assert answer["status"]["missing_features"] == engine.controller.missing
    before = answer["status"]["steps_by_mode"]
    engine.run(few(1))
    now = json.loads(engine.core.adaptive_spec_control())["status"]["steps_by_mode"]
    assert {mode for mode in now if now[mode] > before.get(mode, 0)} == {"shadow"}
    assert "error" in json.loads(engine.core.adaptive_spec_control({"mode": "maybe"}))
    back = json.loads(engine.core.adaptive_spec_control({"mode": "on"}))
    assert back["status"]["mode"] == "on"


def test_step_durations_are_clean(engine: Any) -> None:
    import math
    import time

    from switchable_policies import FixedPolicy

    seconds: list[float] = []

    class Watching(FixedPolicy):
        def observe(self, step: Any) -> None:
            seconds.append(step.outcome.seconds)

    engine.controller.policy = Watching(2)
    began = time.monotonic()
    engine.run(few(2))
    time.sleep(0.3)
    engine.run(few(2))
    elapsed = time.monotonic() - began
    assert not any(math.isnan(value) for value in seconds)
    assert sum(seconds) < elapsed - 0.29, "the pause between the runs was counted"


@pytest.mark.every_version
def test_start_line(engine: Any) -> None:
    from adaptive_spec.adapters.vllm.capability import detect
    from adaptive_spec.adapters.vllm.hooks import start_line

    line = start_line(engine.controller, detect(engine.scheduler.vllm_config))
    for part in (
        "mode=on",
        "policy=random",
        "method=draft_model",
        "Kmax=4",
        "capability=FULL",
        "ladder=0,1,2,3,4",
        "runner=V1",
        "graphs=NONE",
        "scheduling=sync",
    ):
        assert part in line
    assert "\n" not in line
