"""A policy may end drafting early; what it gets wrong is drafted in full."""

from __future__ import annotations

import itertools
from typing import Any, ClassVar

import msgspec
import numpy as np
import pytest

from adaptive_spec import Capability, Config, Controller, Level
from adaptive_spec.config import FailOpen
from adaptive_spec.policies.static import StaticOptions, StaticPolicy
from adaptive_spec.sim.engine.early_stop import drafts_made, modelled_entropy
from adaptive_spec.step import DraftPass, DraftVerdict, SpecPlan, StepContext

FULL = Capability(level=Level.FULL, max_draft_tokens=4, stops_drafting=True)


class Stopper(StaticPolicy):
    """Keeps drafts shown with .5 or more, and goes on after .7 or more."""

    name: ClassVar[str] = "stopper"
    wrong: ClassVar[Any] = None

    def after_draft_pass(self, draft: DraftPass) -> DraftVerdict:
        if self.wrong is not None:
            raise self.wrong
        shown = draft.confidence[:, draft.position]
        return DraftVerdict(shown >= 0.5, shown >= 0.7)


class Broken(Stopper):
    wrong: ClassVar[Any] = RuntimeError("no")


def controller(policy: type[StaticPolicy] = Stopper, **config: Any) -> Controller:
    return Controller(policy(StaticOptions(k=4)), FULL, Config(**config))


def draft(confidence: list[float], drafting: list[bool] | None = None) -> DraftPass:
    shown = np.array([confidence]).T
    return DraftPass(
        step=1,
        position=0,
        slots=np.arange(len(shown)),
        drafting=np.array(drafting or [True] * len(shown)),
        confidence=shown,
        entropy=modelled_entropy(shown),
    )


def context(available: Any) -> StepContext:
    return StepContext(
        step=2,
        capability=FULL,
        request_ids=["a", "b"],
        slots=np.arange(2),
        context_tokens=np.full(2, 9),
        draft_available=available,
        draft_possible=np.full(2, 4),
        engine_k=4,
        tpot_target=np.full(2, np.inf),
        task=np.full(2, -1),
        temperature=np.ones(2),
    )


def test_the_policy_decides_what_is_kept_and_who_goes_on() -> None:
    verdict = controller().after_draft_pass(draft([0.9, 0.6, 0.1]))
    assert verdict.admitted.tolist() == [True, True, False]
    assert verdict.drafting.tolist() == [True, False, False]


def test_nothing_comes_back_that_had_been_given_up() -> None:
    verdict = controller().after_draft_pass(draft([0.9, 0.9], [True, False]))
    assert verdict.admitted.tolist() == [True, False]
    assert verdict.drafting.tolist() == [True, False]


def test_a_policy_that_raises_lets_everything_be_drafted_and_is_counted() -> None:
    control = controller(Broken)
    verdict = control.after_draft_pass(draft([0.9, 0.1]))
    assert verdict.admitted.all()
    assert verdict.drafting.all()
    assert sum(control.counters.failures.values()) == 1


class Nonsensical(Stopper):
    """One of its two answers is not a mask over the batch."""

    answers: ClassVar[tuple[Any, Any]]

    def after_draft_pass(self, draft: DraftPass) -> DraftVerdict:
        return DraftVerdict(*self.answers)


@pytest.mark.parametrize("position", [0, 1], ids=["admitted", "drafting"])
@pytest.mark.parametrize(
    "nonsense",
    [np.array([0.9, 0.1]), np.array([1, 0]), np.array([True]), np.array([[True, False]]), None],
    ids=["float", "integer", "too short", "two dimensions", "nothing"],
)
def test_a_verdict_that_is_no_mask_of_the_batch_lets_everything_be_drafted_and_is_counted_once(
    position: int, nonsense: Any
) -> None:
    control = controller(Nonsensical)
    answers = [np.array([False, False]), np.array([False, False])]
    answers[position] = nonsense
    Nonsensical.answers = (answers[0], answers[1])
    verdict = control.after_draft_pass(draft([0.9, 0.1]))
    assert verdict.admitted.tolist() == [True, True]
    assert verdict.drafting.tolist() == [True, True]
    assert sum(control.counters.failures.values()) == 1


def test_verdicts_count_as_part_of_the_decision_for_their_drafts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = itertools.count()  # each look at it is a second later
    monkeypatch.setattr(
        "adaptive_spec.controller.controller.time.perf_counter", lambda: float(next(clock))
    )
    control = controller(fail_open=FailOpen(max_decision_ms=2000))
    for _ in range(3):
        control.after_draft_pass(draft([0.9, 0.1]))
    control.plan(context(np.full(2, 4)))
    control.plan(context(np.full(2, 4)))
    assert control.status()["decision_seconds"] == 3 + 1 + 1
    assert sum(control.status()["decisions_by_time"]) == 2


@pytest.mark.parametrize("mode", ["off", "shadow"])
def test_a_policy_that_does_not_act_is_not_asked(mode: str) -> None:
    assert controller().stops_drafting
    assert not controller(mode=mode).stops_drafting
    assert not controller(StaticPolicy).stops_drafting


class _Batch:
    slots = np.arange(3)

    def __len__(self) -> int:
        return 3

    def cursor_after(self, emitted: Any) -> Any:
        return self.slots


class _Shown:
    has_confidence = True

    def confidence_at(self, positions: Any) -> Any:
        return np.array([[0.9, 0.9, 0.1, 0.9], [0.6, 0.9, 0.9, 0.9], [0.9, 0.6, 0.9, 0.9]])


def test_the_drafter_runs_as_many_passes_as_somebody_wants() -> None:
    batch: Any = _Batch()
    shown: Any = _Shown()
    drafted, passes = drafts_made(controller(), 1, batch, shown, np.ones(3, dtype=np.int64), 4)
    assert drafted.tolist() == [2, 1, 2]
    assert passes == 3


def test_modelled_entropy_falls_as_the_maximum_rises() -> None:
    entropy = modelled_entropy(np.array([[0.2, 0.5, 0.9, 1.0]]))[0]
    assert (np.diff(entropy) < 0.0).all()
    assert entropy[-1] == pytest.approx(0.0, abs=1e-4)


def test_modes_and_engines_that_cannot_stop_draft_to_the_end() -> None:
    from adaptive_spec.sim.engine.options import EngineOptions
    from adaptive_spec.sim.scenario import Scenario

    def passes(**options: Any) -> float:
        scenario = Scenario(
            load="closed:4",
            acceptance=("model:good",),
            drafter="eagle",
            hardware="h100-llama-8b",
            engine=EngineOptions(max_draft_tokens=4, **options),
            tokens=400,
            confidence_auc=0.9,
        )
        engine = scenario.engine_for(Stopper(StaticOptions(k=4)))
        drafted = []
        for _ in range(60):
            engine._arrivals.up_to(engine.now)
            engine.step()
            drafted.extend(engine.batch.drafted.tolist())
        return float(np.mean(drafted))

    assert passes() < 3.5
    assert passes(stops_drafting=False) == 4.0
    assert passes(level=Level.VERIFY) == 4.0


class TakesBack(Stopper):
    """Stops by what it is shown, then plans by how much that left: biased, if it were done."""

    name: ClassVar[str] = "takes-back"

    def plan(self, context: StepContext) -> SpecPlan:
        whole = bool((context.draft_available >= 2).all())
        verify = context.draft_available if whole else np.zeros_like(context.draft_available)
        return msgspec.structs.replace(super().plan(context), verify=verify)


@pytest.mark.parametrize("shown", [0.6, 0.9])
def test_what_a_live_stop_has_left_is_verified_whatever_is_planned_then(shown: float) -> None:
    target = controller(TakesBack)
    target.after_draft_pass(draft([shown, 0.9]))
    left = np.array([1 if shown < 0.7 else 2, 2])
    assert target.plan(context(left)).verify.tolist() == left.tolist()
