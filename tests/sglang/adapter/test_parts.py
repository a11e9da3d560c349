"""Hints, clock, widths, log lines, the overrides list, the run-time switch, confidence."""

from __future__ import annotations

import functools
import itertools
import logging
import math
import sys
import types
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from policies_for_tests import RecordingPolicy
from scheduler_loop import Loop

from adaptive_spec.adapters.sglang import hooks
from adaptive_spec.adapters.sglang.clock import MAX_GAP_SECONDS, StepClock
from adaptive_spec.adapters.sglang.hints import MAX_TASKS, NO_HINTS, HintReader, Hints
from adaptive_spec.adapters.sglang.hooks import Hook, contained
from adaptive_spec.adapters.sglang.housekeeping import Quiet, trim
from adaptive_spec.adapters.sglang.ngram_worker import first_nodes
from adaptive_spec.adapters.sglang.own_schedule import FixedSchedule, ladder_below
from adaptive_spec.adapters.sglang.runtime_switch import KEY, set_internal_state
from adaptive_spec.adapters.sglang.settings import Settings
from adaptive_spec.adapters.sglang.steps import round_down
from adaptive_spec.adapters.sglang.switch_limit import BURST, SwitchLimit
from adaptive_spec.config import Config


def test_hints_are_read_from_one_dict() -> None:
    reader = HintReader(lambda key: pytest.fail(key))
    assert reader.read(None) is NO_HINTS
    assert reader.read({"another": {"k_cap": 1}}) is NO_HINTS
    hints = reader.read({"adaptive_spec": {"k_cap": 3, "tpot_ms": 40, "task": "code"}})
    assert hints == Hints(3, 0.04, 0)
    assert reader.read({"adaptive_spec": {"off": True, "k_cap": 5}}).draft_cap == 0
    assert reader.read({"adaptive_spec": {"off": 0, "k_cap": 5.0}}).draft_cap == 5
    assert reader.read({"adaptive_spec": {"task": "chat"}}).task == 1
    assert reader.read({"adaptive_spec": {"task": "code"}}).task == 0


@pytest.mark.parametrize(
    "given",
    [
        "off",
        {"k_cap": -1},
        {"k_cap": 1.5},
        {"k_cap": True},
        {"off": 2},
        {"tpot_ms": 0},
        {"tpot_ms": math.nan},
        {"task": ""},
        {"task": "x" * 65},
        {"task": 3},
        {"unknown": 1},
    ],
)
def test_a_bad_hint_is_ignored_and_counted(given: Any) -> None:
    ignored: list[str] = []
    assert HintReader(ignored.append).read({"adaptive_spec": given}) == NO_HINTS
    assert len(ignored) == 1


def test_the_table_of_task_labels_is_bounded() -> None:
    ignored: list[str] = []
    reader = HintReader(ignored.append)
    found = [reader.read({"adaptive_spec": {"task": f"t{i}"}}).task for i in range(MAX_TASKS + 5)]
    assert found == [*range(MAX_TASKS), *[-1] * 5]
    assert len(ignored) == 5


def test_a_step_lasts_from_the_completion_before_it() -> None:
    clock = StepClock()
    assert clock.completed(clock.launched(10.0, in_flight=0), 10.5) == pytest.approx(0.5)
    began = clock.launched(10.501, in_flight=0)
    assert clock.completed(began, 10.6) == pytest.approx(0.1)
    began = clock.launched(10.6 + 2 * MAX_GAP_SECONDS, in_flight=0)
    assert clock.completed(began, 10.8) == pytest.approx(0.2 - 2 * MAX_GAP_SECONDS)


def test_prompts_between_two_steps_are_not_counted_as_decoding() -> None:
    clock = StepClock()
    clock.completed(clock.launched(10.0, in_flight=0), 10.5)
    began = clock.launched(10.51, in_flight=1)
    clock.other_work_ended(12.0)
    assert clock.completed(began, 12.25) == pytest.approx(0.25)


def test_a_clock_that_jumps_back_gives_no_duration() -> None:
    clock = StepClock()
    clock.completed(clock.launched(10.0, in_flight=0), 10.5)
    assert math.isnan(clock.completed(clock.launched(9.0, in_flight=1), 9.5))


@given(st.lists(st.integers(0, 4), min_size=1, max_size=400), st.integers(1, 9))
def test_changes_of_k_stay_within_their_rate(wanted: list[int], dwell: int) -> None:
    limit = SwitchLimit(dwell)
    ran = []
    for k in wanted:
        foreseen = limit.foresee(k)
        ran.append(limit.settle(k))
        assert ran[-1] == foreseen
    changes = sum(a != b for a, b in itertools.pairwise(ran))
    assert changes == limit.changes <= BURST + len(ran) / dwell
    if dwell == 1:
        assert ran == wanted


def test_the_ladder_never_exceeds_the_launch_k() -> None:
    assert ladder_below(5, [0, 1, 3, 5, 7]) == [0, 1, 3, 5]
    assert ladder_below(4, [1, 3, 7]) == [1, 3, 4]
    own = FixedSchedule(4, [0, 1, 3, 7])
    own.set_cuda_graph_bs([2, 1])
    assert own.cuda_graph_bs_for_step(1) == [1, 2]
    assert own.on_verify_complete([0, 0], 2) is None
    assert own.get_steps_for_batch(64) == 4


@given(st.integers(0, 9), st.sets(st.integers(0, 9), min_size=1))
def test_a_k_is_cut_never_raised_unless_there_is_no_smaller(k: int, ladder: set[int]) -> None:
    found = round_down(k, tuple(sorted(ladder)))
    assert found in ladder
    assert found == max((x for x in ladder if x <= k), default=min(ladder))


def test_a_narrower_ngram_tree_keeps_the_first_nodes() -> None:
    rng = np.random.default_rng(0)
    tokens, mask = rng.integers(0, 99, (3, 6)), rng.random((3, 6, 6)) < 0.5
    kept, seen = first_nodes(tokens.reshape(-1), mask.reshape(-1), 3, 6, 2)
    assert kept.tolist() == tokens[:, :2].reshape(-1).tolist()
    assert seen.reshape(3, 2, 2).tolist() == mask[:, :2, :2].tolist()
    assert kept.flags.c_contiguous
    assert seen.flags.c_contiguous


def test_repeated_overrides_are_dropped_and_the_resolved_values_stay() -> None:
    log: list[tuple[str, dict[str, Any]]] = [("start", {"a": 1})]
    for k in range(100):
        log.append(("adaptive_spec.restore", {"steps": k, "tokens": k + 1}))
        if k == 50:
            log.append(("operator", {"a": 2}))
            log.append(("adaptive_spec.restore", {"steps": 9}))
    resolved: dict[str, Any] = {}
    for _, fields in log:
        resolved.update(fields)
    trim(log)
    again: dict[str, Any] = {}
    for _, fields in log:
        again.update(fields)
    assert again == resolved
    assert [source for source, _ in log].count("adaptive_spec.restore") == 2
    assert ("operator", {"a": 2}) in log


def test_log_lines_of_every_switch_are_dropped_only_while_we_steer() -> None:
    steering = [True]
    quiet = Quiet("Switch adaptive", lambda: steering[0])

    def passes(text: str) -> bool:
        return quiet.filter(logging.LogRecord("n", logging.INFO, "f", 1, text, None, None))

    assert not passes("Switch adaptive runtime state: 1 -> 2")
    assert passes("Built adaptive runtime state")
    steering[0] = False
    assert passes("Switch adaptive runtime state: 1 -> 2")


class SetRequest:
    def __init__(self, **values: Any) -> None:
        self.server_args = values


class Answer:
    def __init__(self, updated: bool) -> None:
        self.updated = updated


def test_the_switch_takes_its_key_and_leaves_the_rest_to_sglang() -> None:
    loop = Loop()
    driver = loop.attach(RecordingPolicy(), config=Config(mode="on"))
    assert driver.controller is not None
    seen = []

    def own(owner: Any, request: Any) -> Answer:
        seen.append(dict(request.server_args))
        return Answer(KEY not in request.server_args and "bad" not in request.server_args)

    request = SetRequest(**{KEY: 1, "other": 3})
    assert set_internal_state(own, None, request, driver).updated
    assert seen == [{"other": 3}]
    assert request.server_args == {KEY: 1, "other": 3}
    assert driver.controller.mode == "shadow"
    assert set_internal_state(own, None, SetRequest(**{KEY: 2.0}), driver).updated
    assert driver.controller.mode == "on"
    assert not set_internal_state(own, None, SetRequest(**{KEY: 5}), driver).updated
    assert not set_internal_state(own, None, SetRequest(**{KEY: 0, "bad": 1}), driver).updated
    assert driver.controller.mode == "on"
    assert not set_internal_state(own, None, SetRequest(**{KEY: 0}), None).updated


def test_a_hook_that_fails_is_said_and_returns_nothing(caplog: pytest.LogCaptureFixture) -> None:
    @contained
    def hook(value: int) -> None:
        raise ValueError("planted")

    with caplog.at_level(logging.ERROR):
        assert hook(1) is None
    assert "hook hook failed (ValueError: planted)" in caplog.text


class Owner:
    def hooked(self) -> str:
        return "own"

    def plain(self) -> str:
        return "own"


class Registry:
    """Wraps as SGLang's registry does, what it is told to; forgets what it fails to wrap."""

    fails: ClassVar[set[str]] = set()
    asked: ClassVar[list[Hook]] = []

    @classmethod
    def apply_hooks(cls) -> None:
        for hook in cls.asked:
            name = hook.target.rpartition(".")[2]
            if name not in cls.fails:
                setattr(Owner, name, wrapped(getattr(Owner, name), hook.function))


def wrapped(function: Any, hook: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        hook(*args)
        return function(*args)

    return wrapper


@pytest.mark.parametrize("fails", [set(), {"hooked"}])
def test_hooks_that_sglang_did_not_apply_are_named_once_it_has_tried(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fails: set[str]
) -> None:
    def ours(*args: Any) -> None: ...

    for name in ("hooked", "plain"):
        monkeypatch.setattr(Owner, name, vars(Owner)[name])
    targets = [f"{__name__}:Owner.{name}" for name in ("hooked", "plain")]
    monkeypatch.setattr(Registry, "asked", [Hook(target, ours, "BEFORE") for target in targets])
    monkeypatch.setattr(Registry, "fails", fails)
    monkeypatch.setattr(hooks, "SHARED", hooks.Shared())
    hooks.SHARED.settings = Settings(config=Config())
    own = vars(Registry)["apply_hooks"]
    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__, this_module()))
    hooks._check_after(Registry, Registry.asked)
    with caplog.at_level(logging.ERROR):
        Registry.apply_hooks()
    assert vars(Registry)["apply_hooks"] is own
    if fails:
        assert "Owner.hooked" in caplog.text
        assert hooks.SHARED.settings is None
        assert hooks.SHARED.applied == "1/2"
    else:
        assert caplog.messages == []
        assert hooks.SHARED.settings is not None
        assert hooks.SHARED.applied == "2/2"


def this_module() -> Any:
    """pytest imports tests under names that cannot be imported again."""
    module = types.ModuleType(__name__)
    vars(module).update(globals())
    return module


def test_confidence_is_that_of_the_drafters_next_token() -> None:
    torch = pytest.importorskip("torch")
    from adaptive_spec.adapters.sglang.confidence import ConfidenceTap

    class Output:
        def __init__(self, logits: Any) -> None:
            self.logits_output = self
            self.next_token_logits = logits

    class Runner:
        def forward(self, logits: Any) -> Output:
            return Output(logits)

    class Draft:
        draft_runner = Runner()

    class Named:
        def __init__(self, rid: str) -> None:
            self.rid = rid

    class TwoRequests:
        reqs = (Named("a"), Named("b"))

    tap = ConfidenceTap()
    tap.watch(Draft)
    logits = torch.log(torch.tensor([[0.5, 0.25, 0.25], [0.9, 0.1, 0.0]]))
    tap.before_extend()
    Draft.draft_runner.forward(logits)
    tap.after_extend(TwoRequests)
    found = tap.take([Named("b"), Named("new")], 3)
    assert found is not None
    assert found.confidence[0, 0] == pytest.approx(0.9)
    assert found.entropy[0, 0] == pytest.approx(-(0.9 * math.log(0.9) + 0.1 * math.log(0.1)))
    assert np.isnan(found.confidence[1]).all()
    assert np.isnan(found.confidence[0, 1:]).all()
    assert tap.take([Named("a")], 3) is None, "used twice"
    tap.before_extend()
    Draft.draft_runner.forward(logits[:1])
    tap.after_extend(TwoRequests)
    assert tap.take([Named("a")], 3) is None, "a row short"
