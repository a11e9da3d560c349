"""The figures of `goodput` follow from its beliefs, in every state that it may be in."""

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_spec import Capability, Level, Mode
from adaptive_spec.operation.status import FIGURES, figures_of
from adaptive_spec.operation.why import sentence
from adaptive_spec.policies.figures import Situation
from adaptive_spec.policies.goodput import GoodputOptions, GoodputPolicy
from adaptive_spec.policies.optional.break_even import MOST_VARIANCE, BreakEven
from adaptive_spec.policies.step_features import PASS_REQUEST, PASSES, PREFILL, RAGGED, SHARE
from tests.policies.closed_loop import plain_steps

KMAX = 4
PLAIN = Capability(level=Level.FULL, max_draft_tokens=KMAX, cold_off=True)
ENGINES = [
    PLAIN,
    Capability(level=Level.UNIFORM, max_draft_tokens=KMAX, ladder=(0, 1, 3)),
    Capability(level=Level.VERIFY, max_draft_tokens=KMAX, token_buckets=(4, 16, 24, 40)),
    Capability(level=Level.FULL, max_draft_tokens=KMAX, ragged_penalty=0.05),
    Capability(level=Level.FULL, max_draft_tokens=KMAX, off_pass=False, cold_off=True),
]


def goodput() -> GoodputPolicy:
    return GoodputPolicy(GoodputOptions(), seed=1)


def table_of(policy: GoodputPolicy) -> BreakEven:
    return msgspec.convert(policy.break_even(), BreakEven, strict=False)


def run_steps(*arguments: Any, **changes: Any) -> None:
    for _ in plain_steps(*arguments, **changes):
        pass


@pytest.mark.parametrize("capability", ENGINES, ids=str)
@pytest.mark.parametrize("hazard", [0.02, 0.7])
def test_each_plan_carries_what_the_beliefs_say_of_it(
    capability: Capability, hazard: float
) -> None:
    """Planned, timed, off, beside prompts and other work: T = L x'c, tokens 1 + survivals."""
    policy, seen = goodput(), set()
    more: dict[str, Any] = {"shared_seconds": 0.003, "prefill_tokens": 40, "hazard": hazard}
    for context, plan in plain_steps(policy, capability, 250, **more):
        if context.step == 0:  # no unit of time is known
            assert np.isnan([plan.predicted_tokens, plan.predicted_seconds]).all()
            continue
        times, batch = policy.times, context.batch_size
        depth = plan.draft_depth if capability.steers_depth else KMAX
        passes = 0.0 if plan.mode is Mode.OFF_COLD else float(times.passes[depth])
        tokens = np.array([float(batch + plan.verify.sum())])
        [x] = times.rows(batch, tokens, int(context.context_tokens.sum()), np.array([passes]))
        seconds = float(x @ times.coefficients)
        if len(set(plan.verify.tolist())) > 1:
            passes_seconds = passes * float(times.coefficients[PASSES])
            ragged = round(200.0 * float(times.coefficients[RAGGED])) / 200.0
            passes_seconds += passes * batch * float(times.coefficients[PASS_REQUEST])
            seconds = (seconds - passes_seconds) * (1.0 + ragged) + passes_seconds
        seconds += 40 * float(times.coefficients[PREFILL])
        assert plan.predicted_seconds == pytest.approx(times.scale * seconds, rel=1e-6)
        survival = policy.acceptance.predict(context.slots)[1]
        expected = batch + np.where(np.arange(KMAX)[:, None] < plan.verify, survival, 0.0).sum()
        assert plan.predicted_tokens == pytest.approx(expected)
        seen.add((plan.mode, plan.measures))
    assert len(seen) > 1 or capability.level is Level.VERIFY


# ------------------------------------------------------------------ situations


def in_situation(wanted: Situation) -> GoodputPolicy:
    policy = goodput()
    match wanted:
        case Situation.LEARNING:
            run_steps(policy, PLAIN, 20)
        case Situation.STEADY:
            run_steps(policy, PLAIN, 200, hazard=0.8)
        case Situation.FULL_BATCH:
            run_steps(policy, PLAIN, 300, batch=64, hazard=0.6, token=1.5e-4, draft_pass=1e-4)
        case Situation.OFF_WAITING:
            run_steps(policy, PLAIN, 400, hazard=0.02, draft_pass=5e-3)
        case Situation.CHANGED:
            run_steps(policy, PLAIN, 200, hazard=0.8)
            run_steps(policy, PLAIN, 12, hazard=0.8, first=200, slow=2.5)
    return policy


@pytest.mark.parametrize("wanted", Situation)
def test_each_situation_is_named_and_put_into_words(wanted: Situation) -> None:
    policy = in_situation(wanted)
    numbers = figures_of(policy, "explanation")
    assert numbers["situation"] == wanted
    forecast = policy.last_forecast
    assert forecast is not None
    mode = Mode.OFF_COLD if wanted is Situation.OFF_WAITING else Mode.ON
    plan = forecast.predicted_plan(forecast.best.verify, 1, mode, "")
    text = sentence(plan, numbers, 1e9)
    off = wanted is Situation.OFF_WAITING
    assert off or text.lower().startswith(
        ("step times have " if wanted == "changed" else "") + wanted
    )
    assert ("OFF since" in text) == (wanted is Situation.OFF_WAITING)
    if wanted is Situation.OFF_WAITING:
        assert "of no speculation; the drafter comes back in" in text
        assert numbers["back_seconds"] > 0.0
        assert 0.0 < numbers["off_seconds"] < forecast.context.now
        assert numbers["best"]["of_none"] < 1.0
        assert policy.estimates()["planned"] == pytest.approx(
            policy.estimates()["no_speculation"], rel=0.04
        )
    elif wanted is Situation.STEADY:
        assert policy.estimates()["planned"] > 1.2 * policy.estimates()["no_speculation"]


def test_off_begins_anew_after_a_step_with_drafts() -> None:
    policy = in_situation(Situation.OFF_WAITING)
    figures, forecast = policy.figures, policy.last_forecast
    assert forecast is not None
    later = msgspec.structs.replace(forecast.context, now=forecast.context.now + 500.0)
    for mode in (Mode.ON, Mode.OFF_COLD):
        moved = forecast._replace(context=later)
        figures.planned(moved, moved.predicted_plan(forecast.best.verify, 0, mode, ""), 0)
    assert policy.explanation()["off_seconds"] == 0.0


def test_it_says_what_keeps_a_drafter_that_loses() -> None:
    policy = in_situation(Situation.STEADY)
    forecast = policy.last_forecast
    assert forecast is not None
    slow = forecast.best.__class__(
        forecast.best.verify, 1, forecast.best.tokens, 3.0 * forecast.best.seconds
    )
    policy.figures.forecast = forecast._replace(best=slow)
    said = []
    for lost in (-0.5, 0.5):
        policy.switch.lost = lost
        said.append(policy.explanation()["switch"]["kept"])
        text = sentence(
            forecast.predicted_plan(slow.verify, 1, Mode.ON, ""), policy.explanation(), 0
        )
        assert "The drafter runs on" in text
    assert said == ["credit", "stake"]


def test_k_that_may_still_be_best_is_told_from_k_that_cannot() -> None:
    policy = in_situation(Situation.STEADY)
    assert policy.explanation()["untimed_k"] == []
    policy.times._timed.clear()
    forecast = policy.last_forecast
    assert forecast is not None
    tokens = 1.0 + np.append(0.0, np.cumsum(forecast.survival.mean(axis=1)))
    pace = [tokens[k] / forecast.seconds_of(8 * k, k) for k in range(KMAX + 1)]
    best = forecast.best_tokens / 8 / forecast.best.seconds
    wanted = [k for k in range(KMAX + 1) if np.log(best / pace[k]) < SHARE]
    assert policy.explanation()["untimed_k"] == wanted
    assert 0 < len(wanted) < KMAX + 1


# ----------------------------------------------------------------------- shapes


@pytest.mark.parametrize("capability", ENGINES, ids=str)
def test_figures_have_the_shapes_of_the_contract(capability: Capability) -> None:
    policy = goodput()
    for name in FIGURES:
        assert figures_of(policy, name) == {}
    run_steps(policy, capability, 40)
    for name in FIGURES:
        found = figures_of(policy, name)
        assert found
        msgspec.json.decode(msgspec.json.encode(found))


@pytest.mark.parametrize("capability", ENGINES, ids=str)
@settings(max_examples=3, deadline=None)
@given(batch=st.integers(1, 20), context=st.integers(1, 4000))
def test_break_even_is_what_the_step_times_say(
    capability: Capability, batch: int, context: int
) -> None:
    policy = goodput()
    run_steps(policy, capability, 60, batch=batch, context_tokens=context)
    found = table_of(policy)
    times = policy.times
    none = 0.0 if capability.cold_off or not capability.off_pass else times.passes[0]
    assert (found.now.batch, found.now.context, found.now.seen) == (batch, context, True)
    for cell in (found.now, found.most, *found.cells):
        in_all = cell.batch * cell.context
        off = times.seconds(cell.batch, cell.batch, in_all, float(none))
        rates = {0: 1.0}
        for k, (low, needed, high) in cell.needed.items():
            tokens = cell.batch * (1 + k)
            passes = times.passes[k if capability.steers_depth else KMAX]
            ratio = times.seconds(cell.batch, tokens, in_all, float(passes)) / off
            assert needed == pytest.approx(ratio - 1.0, abs=2e-3)
            assert low <= needed <= high
            sizes = np.array([float(tokens), float(cell.batch)])
            x = times.rows(cell.batch, sizes, in_all, np.array([passes, none]))
            x /= np.maximum(x @ times.coefficients, 1e-3)[:, None]
            variance = float((x[0] - x[1]) @ times.covariance @ (x[0] - x[1]))
            variance += SHARE**2 * times.untimed(cell.batch)[k]
            bound = ratio * np.exp(1.96 * np.sqrt(min(variance, MOST_VARIANCE))) - 1.0
            assert high == pytest.approx(bound, rel=1e-3, abs=2e-3)
            rates[k] = (1.0 + found.accepted[k - 1]) / ratio
        assert cell.k in rates
        assert cell.gain[1] == pytest.approx(max(rates.values()), abs=5e-3)
        assert cell.timed_without == (not times.untimed(cell.batch)[0])


def test_loads_that_have_run_are_told_from_predicted_ones() -> None:
    policy = goodput()
    run_steps(policy, PLAIN, 60, batch=4, context_tokens=3000)
    found = table_of(policy)
    assert (found.now.batch, found.now.context, found.now.seen) == (4, 3000, True)
    seen = {(cell.batch, cell.context) for cell in found.cells if cell.seen}
    assert seen == {(4, 4096)}
    assert {cell.batch for cell in found.cells} == {1, 2, 4, 8, 16}
    assert {cell.context for cell in found.cells} == {512 << n for n in range(6)}


def test_the_load_of_most_requests_is_not_the_last() -> None:
    policy = goodput()
    run_steps(policy, PLAIN, 60, batch=4)
    run_steps(policy, PLAIN, 120, batch=1, first=60)
    found = table_of(policy)
    assert (found.now.batch, found.most.batch) == (1, 4)


def test_a_drafter_that_copies_is_credited_for_what_it_finds() -> None:
    found = []
    for available in ([4, 4, 4, 4], [4, 0, 0, 0]):
        policy = goodput()
        ran = plain_steps(policy, ENGINES[-1], 400, batch=4, draft_available=np.array(available))
        share = np.mean([plan.verify.mean() for _, plan in ran])
        assert share > 0.0
        found.append(table_of(policy).accepted)
        assert policy.figures.table.found == pytest.approx(sum(available) / 16, abs=0.02)
    everybody, one = found
    assert everybody[0] / everybody[1] == pytest.approx(one[0] / one[1], rel=0.2)
    assert everybody[0] / one[0] == pytest.approx(4.0, rel=0.2)
