"""Limit on changes, own ladders, log lines, the overrides list, confidence."""

import itertools
import logging
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_spec.adapters.sglang.housekeeping import Quiet, trim
from adaptive_spec.adapters.sglang.steered_params import FixedSchedule, ladder_below
from adaptive_spec.adapters.sglang.steps import BURST, SwitchLimit
from adaptive_spec.policy_helpers import nearest_allowed


@given(st.lists(st.integers(0, 4), min_size=1, max_size=400), st.integers(1, 9))
def test_changes_of_k_stay_within_their_rate(wanted: list[int], dwell: int) -> None:
    limit = SwitchLimit(dwell)
    ran = []
    for k in wanted:
        ran.append(limit.settle(k, range(5)))
    changes = sum(a != b for a, b in itertools.pairwise(ran))
    assert changes == limit.changes <= BURST + len(ran) / dwell
    if dwell == 1:
        assert ran == wanted


@given(st.lists(st.tuples(st.integers(0, 4), st.sets(st.integers(0, 4), min_size=1))))
def test_a_k_that_may_not_run_any_more_is_never_kept(steps: list[tuple[int, set[int]]]) -> None:
    limit = SwitchLimit(50)
    for k, runnable in steps:
        wanted = nearest_allowed(k, tuple(sorted(runnable)))
        assert limit.settle(wanted, runnable) in runnable


def test_the_ladder_never_exceeds_the_launch_k() -> None:
    assert ladder_below(5, [0, 1, 3, 5, 7]) == [0, 1, 3, 5]
    assert ladder_below(4, [1, 3, 7]) == [1, 3, 4]
    own = FixedSchedule(4, [0, 1, 3, 7])
    own.set_cuda_graph_bs([2, 1])
    assert own.cuda_graph_bs_for_step(1) == [1, 2]
    assert own.on_verify_complete([0, 0], 2) is None
    assert own.get_steps_for_batch(64) == 4


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


@pytest.mark.engine
def test_confidence_is_that_of_the_drafters_next_token() -> None:
    import torch

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
    found = tap.for_plan([Named("b"), Named("new")], 3)
    assert found.confidence[0, 0] == pytest.approx(0.9)
    assert found.entropy[0, 0] == pytest.approx(-(0.9 * math.log(0.9) + 0.1 * math.log(0.1)))
    assert np.isnan(found.confidence[1]).all()
    assert np.isnan(found.confidence[0, 1:]).all()
    assert tap.for_plan([Named("a")], 3) is None, "used twice"
    tap.before_extend()
    Draft.draft_runner.forward(logits[:1])
    tap.after_extend(TwoRequests)
    assert tap.for_plan([Named("a")], 3) is None, "a row short"
    Draft.draft_runner.forward(logits)
    assert tap._caught is None, "an output of drafting is kept"
