"""Whose drafts are asked about, kept and shown while the draft loop runs; no engine needed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from engines import KMAX
from stopping_policies import StoppingPolicy

from adaptive_spec.adapters.vllm.draft_signal.arrivals import SignalArrivals
from adaptive_spec.adapters.vllm.draft_signal.early_exit import EarlyExit
from adaptive_spec.adapters.vllm.draft_signal.values import ATTRIBUTE, DraftSignals, Wanted
from adaptive_spec.adapters.vllm.outcome import PlannedStep
from adaptive_spec.controller.controller import Controller
from adaptive_spec.step import Capability, Level


@pytest.mark.parametrize("gave_up", [True, False])
def test_rounds_are_read_as_long_as_some_are_cut_short(gave_up: bool) -> None:
    """All that is left is verified; that alone does not say that there is nothing to choose."""
    arrivals = SignalArrivals(KMAX)
    arrivals.arrived(SimpleNamespace(**{ATTRIBUTE: object()}))
    plan: Any = SimpleNamespace(verify=np.array([1]))
    wanted = []
    for step in range(200):
        context: Any = SimpleNamespace(step=step, draft_available=np.array([1]))
        wanted.append(arrivals.wanted(context, plan, gave_up))
    assert all(wanted) == gave_up


def asked_about(
    names: list[str], possible: list[int], policy: StoppingPolicy | None = None, *running: Any
) -> tuple[EarlyExit, PlannedStep]:
    capability = Capability(level=Level.FULL, max_draft_tokens=KMAX, stops_drafting=True)
    controller = Controller(policy or StoppingPolicy(), capability)
    context: Any = SimpleNamespace(
        step=3,
        request_ids=names,
        slots=np.arange(len(names)),
        draft_possible=np.array(possible, dtype=np.int64),
    )
    scheduler = SimpleNamespace(running=running, vllm_config=SimpleNamespace(instance_id="made up"))
    plan: Any = None
    return EarlyExit(scheduler, controller), PlannedStep(context, plan, (), Wanted.ENTROPY_TOO)


CERTAINTY = np.array([[0.9, 0.8, 0.7], [0.1, 0.2, 0.3]])


def test_rows_of_the_drafter_are_those_of_the_requests() -> None:
    policy = StoppingPolicy()
    early, step = asked_about(["a", "b"], [1, KMAX], policy)
    early.expect(step)
    made = early.begin(["b", "prompt", "a"], KMAX)
    assert made is not None
    assert made.goes_on(CERTAINTY)
    assert not made.goes_on(CERTAINTY)
    assert policy.asked[0].confidence.tolist() == [[0.7], [0.9]]
    np.testing.assert_array_equal(policy.asked[1].entropy, [[0.3, np.nan], [0.1, 0.1]])
    signals = DraftSignals(["b", "prompt", "a"], np.ones((3, 2)), np.ones((3, 2)))
    drafts = SimpleNamespace(
        req_ids=["b", "prompt", "a"],
        draft_token_ids=[[1, 2], [3, 4], [5, 6]],
        **{ATTRIBUTE: signals},
    )
    early.trim(drafts)
    assert drafts.draft_token_ids == [[1, 2], [3, 4], [5]]
    np.testing.assert_array_equal(signals.confidence, [[1, 1], [1, 1], [1, np.nan]])
    assert step.passes == 2
    assert early.gave_up
    again = SimpleNamespace(req_ids=["a"], draft_token_ids=[[1, 2, 3]])
    early.trim(again)
    assert again.draft_token_ids == [[1, 2, 3]], "a verdict holds for its own round only"


def test_passes_that_showed_nothing_keep_their_drafts() -> None:
    early, step = asked_about(["a", "b"], [KMAX, 1])
    early.expect(step)
    assert early.begin(["a", "b"], KMAX) is not None
    drafts = SimpleNamespace(req_ids=["a", "b"], draft_token_ids=[[1, 2, 3, 4], [5, 6, 7, 8]])
    early.trim(drafts)
    assert drafts.draft_token_ids == [[1, 2, 3, 4], [5]]
    assert step.passes is None


def test_after_a_fault_what_was_given_up_stays_given_up() -> None:
    policy = StoppingPolicy()
    policy.keeps = np.array([1, KMAX])
    early, step = asked_about(["a", "b"], [KMAX, 3], policy)
    early.expect(step)
    made = early.begin(["a", "b"], KMAX)
    assert made is not None
    assert made.goes_on(CERTAINTY)
    made.abandon()
    assert made.kept() == {"a": 1, "b": 3}
    assert step.passes is None


def test_drafts_left_over_from_an_earlier_round_keep_this_one_whole() -> None:
    """What a live stop has left is verified: the controller remembers that for one round."""
    left_over = SimpleNamespace(spec_token_ids=[1, 2])
    early, step = asked_about(["a", "b"], [KMAX, KMAX], None, left_over)
    early.expect(step)
    assert early.begin(["a"], KMAX) is None
    left_over.spec_token_ids = []  # verified, or preempted: vLLM has dropped them
    early.expect(step)
    assert early.begin(["a"], KMAX) is not None


def test_a_step_that_was_not_planned_or_drafts_nothing_is_not_asked_about() -> None:
    early, step = asked_about(["a"], [KMAX])
    assert early.begin(["a"], KMAX) is None
    early.expect(step)
    assert early.begin(["a"], 0) is None
    early.expect(step)
    assert early.begin(["other"], KMAX) is None
    early.expect(step)
    assert early.begin(["a"], KMAX) is not None
    assert early.begin(["a"], KMAX) is None, "once"
