"""Copied drafts beside the drafter's: their belief, the choice, and what the drafter is worth."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_spec import Capability, Level, Mode
from adaptive_spec.controller.plan_validation import plan_fault
from adaptive_spec.policies.goodput import GoodputOptions, GoodputPolicy
from adaptive_spec.policies.optional.second_source import SecondSource
from adaptive_spec.policy_helpers import fixed_plan
from adaptive_spec.step import FinishedStep
from tests import steps as made
from tests.policies.closed_loop import observe

KMAX, BATCH = 4, 8
ENGINE = Capability(level=Level.FULL, max_draft_tokens=KMAX, cold_off=True)


def two(step: int = 0, found: Any = KMAX, match: Any = 8, **changes: Any) -> Any:
    batch = len(changes.get("slots", range(BATCH)))
    return made.context(
        batch,
        changes.pop("capability", ENGINE),
        step=step,
        lookup_available=made.rows(found, batch),
        lookup_match=made.rows(match, batch),
        **changes,
    )


def shown(context: Any, agreed: Any, emitted: Any = KMAX + 1) -> FinishedStep:
    """A step whose tokens show how far the copied drafts of each request agree."""
    agreed, emitted = (made.rows(each, context.batch_size) for each in (agreed, emitted))
    outcome = made.outcome(context, 0, 0, lookup_agreed=agreed, emitted=emitted)
    return FinishedStep(context, fixed_plan(context, 0, "none"), outcome)


def copied_survival(source: SecondSource, match: Any, slots: Any = range(BATCH)) -> Any:
    context = two(match=match, slots=slots)
    return source._survival(context, context.slots)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_each_request_takes_the_source_whose_drafts_are_worth_more(data: st.DataObject) -> None:
    source = SecondSource(KMAX)
    random = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    for step in range(4):
        source.learn(
            shown(two(step, match=random.integers(1, 30, BATCH)), random.integers(0, 5, 8))
        )
    found, drafted = random.integers(0, KMAX + 1, (2, BATCH))
    context = two(found=found, match=random.integers(1, 30, BATCH), draft_available=drafted)
    survival = np.cumprod(random.random((KMAX, BATCH)), axis=0)
    of_copied = source._survival(context, context.slots)
    chosen = source.choose(context, survival)
    worth = np.zeros((2, BATCH))
    for i in range(BATCH):
        worth[0, i] = sum(max(survival[j, i] - source._price, 0) for j in range(drafted[i]))
        worth[1, i] = sum(max(of_copied[j, i] - source._price, 0) for j in range(found[i]))
    wanted = worth[1] > worth[0]
    if chosen is None:
        assert not wanted.any()
        return
    assert chosen.from_lookup.tolist() == wanted.tolist()
    assert chosen.context.draft_available.tolist() == np.where(wanted, found, drafted).tolist()
    assert (chosen.survival == np.where(wanted, of_copied, survival)).all()
    for i in range(BATCH):  # its next drafts are needed unless it goes on copying
        on = of_copied[found[i] - 1, i] if wanted[i] else 0.0
        assert chosen.ahead.survival[:, i] == pytest.approx(survival[:, i] * (1.0 - on))
        assert chosen.ahead.more[i] == pytest.approx(on * of_copied[: found[i], i].sum())


def test_copies_are_learned_from_what_was_emitted_verified_or_not() -> None:
    source = SecondSource(KMAX)
    before = copied_survival(source, 8, range(100, 108))
    for step in range(60):
        source.learn(shown(two(step), KMAX))
    assert (copied_survival(source, 8, range(100, 108)) > before + 0.1).all()
    source = SecondSource(KMAX)
    for step in range(60):  # one token is emitted in each step: it shows the first draft alone
        source.learn(shown(two(step), 1, emitted=1))
    fresh = SecondSource(KMAX).copied
    assert source.copied.mean[1] > fresh.mean[1]  # as its neighbour; a rejection was not seen
    assert source.copied.mean[3] - source.copied.mean[2] == pytest.approx(
        fresh.mean[3] - fresh.mean[2]
    )


def test_a_long_match_promises_more_than_a_short_one() -> None:
    source, random = SecondSource(KMAX), np.random.default_rng(0)
    for step in range(200):
        match = random.choice([2, 32], BATCH)
        hits = random.random((BATCH, KMAX)) < np.where(match == 32, 0.95, 0.3)[:, None]
        source.learn(shown(two(step, match=match), hits.cumprod(axis=1).sum(axis=1)))
    survival = copied_survival(source, np.repeat([2, 32], 4), range(100, 108))
    assert survival[0, 0] == pytest.approx(0.3, abs=0.12)
    assert survival[0, 7] == pytest.approx(0.95, abs=0.06)
    alone = copied_survival(source, 2, [100])
    assert alone[:, 0] == pytest.approx(survival[:, 0])


# ------------------------------------------------------------------- in a server


class Text:
    """Requests of which `share` copy; a copy is right with probability `right`."""

    def __init__(self, share: float, right: float = 0.97, hazard: float = 0.5) -> None:
        self.share, self.right, self.hazard = share, right, hazard
        self.policy = GoodputPolicy(GoodputOptions(), seed=1)
        self.random, self.now, self.step = np.random.default_rng(0), 0.0, 0
        self.plans: list[Any] = []

    def run(self, steps: int, **changes: Any) -> np.ndarray:
        """Run steps; returns the modes."""
        for _ in range(steps):
            copies = np.arange(BATCH) < self.share * BATCH
            lost = bool(self.plans) and self.plans[-1].mode is Mode.OFF_COLD
            context = two(
                self.step,
                np.where(copies, KMAX, 0),
                np.where(copies, 20, 0),
                now=self.now,
                draft_available=0 if lost else KMAX,
                **changes,
            )
            plan = self.policy.plan(context)
            assert not plan_fault(plan, context), plan_fault(plan, context)
            self.plans.append(plan)
            lookup = np.zeros(BATCH, bool) if plan.from_lookup is None else plan.from_lookup
            assert not (lookup & ~copies).any()
            rates = np.where(copies, self.right, 0.05), np.full(BATCH, self.hazard)
            right = [
                (self.random.random((BATCH, KMAX)) < each[:, None]).cumprod(axis=1).sum(axis=1)
                for each in rates
            ]
            accepted = np.minimum(np.where(lookup, *right), plan.verify)
            passes = 0 if plan.mode is Mode.OFF_COLD else max(plan.draft_depth, 1)
            seconds = 0.02 + 2e-4 * int(plan.verify.sum()) + 2e-3 * passes
            self.now += seconds
            agreed = np.where(copies, right[0], 0)
            times = {"seconds": seconds, "now": self.now}
            observe(self.policy, context, plan, accepted, lookup_agreed=agreed, **times)
            self.step += 1
            if self.step % 50 == 0:
                self.policy.forget(context.slots)
        return np.array([plan.mode for plan in self.plans[-steps:]])


@pytest.mark.slow
def test_a_drafter_that_gains_over_nothing_and_not_over_copies_stops_until_they_fade() -> None:
    """Its drafts are accepted half the time, and copies nearly always."""
    text = Text(1.0)
    assert (text.run(1500)[-500:] == Mode.OFF_COLD).mean() > 0.6
    resting = [each for each in text.plans[-300:] if each.mode is Mode.OFF_COLD]
    assert np.mean([each.verify.mean() for each in resting]) > 0.9 * KMAX
    assert all(each.draft_depth == 0 and each.from_lookup.all() for each in resting)
    assert all(each.predicted_tokens > 3.0 * BATCH for each in resting)
    text.policy.switch.cold, text.policy.switch.until = True, text.now + 500.0
    text.run(20)
    assert text.policy.switch.cold
    text.share = 0.0
    assert (text.run(60)[-20:] != Mode.OFF_COLD).all()


@pytest.mark.slow
@pytest.mark.parametrize("text", [Text(0.0), Text(0.5, hazard=0.8)], ids=["none", "half"])
def test_a_drafter_whose_drafts_copies_do_not_replace_goes_on(text: Text) -> None:
    assert not (text.run(1500)[-500:] == Mode.OFF_COLD).any()


def test_copied_drafts_say_nothing_of_the_drafter() -> None:
    text = Text(1.0)
    text.run(300)
    before = text.policy.acceptance.mean.copy()
    looked_up = [each for each in text.plans[-50:] if each.from_lookup is not None]
    assert len(looked_up) > 40
    assert before[0] < 2.0  # .97 would be 3.5
    unused = Text(0.5, right=0.1, hazard=0.9)
    unused.run(200)
    assert unused.policy.acceptance.mean[0] > 1.2


def test_confidence_decides_on_the_drafter_s_drafts_alone() -> None:
    text = Text(0.5, hazard=0.8)
    text.run(300)
    text.policy.acceptance.weight, text.policy.acceptance._z_count[:] = 2.0, 1000
    found = np.where(np.arange(BATCH) < 4, KMAX, 0)
    for sure in (0.95, 0.05):
        text.policy._trial = None
        confidence = np.full((BATCH, KMAX), sure)
        plan = text.policy.plan(two(text.step, found, 20, now=text.now, confidence=confidence))
        copied, drafted = plan.verify.reshape(2, 4).mean(axis=1)
        assert copied > 3.0
        assert (drafted > 2.0) == (sure > 0.5), drafted


def test_at_level_uniform_nobody_copies() -> None:
    engine = Capability(level=Level.UNIFORM, max_draft_tokens=KMAX)
    assert SecondSource(KMAX).choose(two(capability=engine), np.full((KMAX, BATCH), 0.1)) is None


def test_what_was_learned_of_copies_is_saved() -> None:
    text = Text(1.0)
    text.run(200)
    state = json.loads(json.dumps(text.policy.state()))
    fresh = GoodputPolicy(GoodputOptions(), seed=1)
    fresh.restore(state)
    fresh.plan(two(1, slots=range(100, 108)))
    old, new = text.policy._source, fresh._source
    assert old is not None
    assert new is not None
    assert (copied_survival(new, 20) == copied_survival(old, 20, range(100, 108))).all()
    again = json.loads(json.dumps(fresh.state()["copied"]))
    for each, other in zip(again.items(), state["copied"].items(), strict=True):
        assert each[0] == "positions" or each == other
