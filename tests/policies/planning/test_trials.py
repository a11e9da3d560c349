"""A trial is run where what it tells is worth more than it costs."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_spec.policies.planning.step_forecast import StepForecast, forecast_step
from adaptive_spec.policies.planning.trials import (
    DEEPER,
    Actions,
    Outlook,
    Trials,
    actions_of,
    age_positions,
    net_gains,
    told_of,
)
from adaptive_spec.policies.step_time.model import CostModel
from adaptive_spec.step import Capability, FloatArray, IntArray, Level, StepOutcome
from tests.measured_steps import step
from tests.policies.planning.test_step_forecast import FULL, context
from tests.policies.two_forms import agree

KNOWN = np.full(4, 10_000)
CONTEXT = np.full(8, 100)
EVIDENCE = np.full(4, 1000.0)
BATCH = 8


class Engine:
    """Eight requests whose drafts are accepted with one hazard; steps have 3 % of noise."""

    def __init__(self, ks: list[int], capability: Capability = FULL) -> None:
        """Time a hundred steps with these K."""
        self.cost, self.capability = CostModel(capability), capability
        self.chooser = Trials(capability, self.cost)
        self._random, self._step = np.random.default_rng(0), 0
        for n in range(100):
            self._run(ks[n % len(ks)])

    def _run(self, k: int, more: int = 0, depth: int | None = None) -> None:
        depth = min(k + (more > 0), 4) if depth is None else depth
        seconds = 0.01 + 1e-5 * (BATCH * (1 + k) + more) + 5e-4 * max(depth, 1)
        noise = float(np.exp(0.03 * self._random.standard_normal()))
        ran: StepOutcome = step(BATCH, k, depth, seconds * noise)
        self.cost.learn_step_time(msgspec.structs.replace(ran, batch_tokens=BATCH * (1 + k) + more))

    def forecast(self, hazard: float = 0.6) -> StepForecast:
        """Of a step of now."""
        survival: FloatArray = np.repeat(hazard ** np.arange(1.0, 5.0)[:, None], BATCH, axis=1)
        now = context(self._step, [4] * BATCH, capability=self.capability, context_tokens=CONTEXT)
        return forecast_step(now, survival, self.cost)

    def trials(
        self,
        steps: int = 100,
        observations: IntArray | None = KNOWN,
        hazard: float = 0.8,
        prompts: int = 0,
    ) -> list[int]:
        """Trials in so many steps, each run at once."""
        survival: FloatArray = np.repeat(hazard ** np.arange(1.0, 5.0)[:, None], BATCH, axis=1)
        found = []
        for _ in range(steps):
            self._step += 1
            now = context(
                self._step,
                [4] * BATCH,
                capability=self.capability,
                prefill_tokens=prompts,
                context_tokens=CONTEXT,
            )
            forecast = forecast_step(now, survival, self.cost)
            seen = None if observations is None else observations + self._step
            trial = self.chooser.best_trial(forecast, seen)
            best = int(forecast.best.verify.max())
            if trial is not None:
                found.append(trial)
            planned = forecast.best.draft_depth
            if trial == DEEPER:
                self._run(best, 1, min(planned + 1, 4))
            else:
                self._run(best if trial is None else trial, 0, planned if trial is None else trial)
        return found


def test_hardly_anything_is_tried_where_every_k_is_known() -> None:
    assert len(Engine([0, 1, 2, 3, 4]).trials(200)) <= 4


def test_a_k_whose_time_is_unknown_is_tried_and_then_no_more() -> None:
    engine = Engine([1])
    assert len(set(engine.trials(100, hazard=0.6)) - {DEEPER}) >= 1
    assert len(engine.trials(100, hazard=0.6)) <= 5


def test_steps_of_prompts_try_nothing() -> None:
    assert Engine([1]).trials(hazard=0.6, prompts=4_000) == []


def test_what_is_hopeless_is_hardly_tried() -> None:
    found = Engine([0, 1]).trials(200, hazard=0.001)
    assert len(found) - found.count(DEEPER) <= 6


def test_hazards_that_were_never_seen_are_tried() -> None:
    unseen = np.array([5000, 0, 0, 0])
    assert len(Engine([0, 1, 2, 3, 4]).trials(observations=unseen, hazard=0.1)) > 0


def test_where_acceptance_is_not_to_be_tried_it_is_known() -> None:
    assert len(Engine([0, 1, 2, 3, 4]).trials(200, observations=None)) <= 4


def test_one_k_for_all_is_never_tried_one_deeper_for_some() -> None:
    uniform = Capability(level=Level.UNIFORM, max_draft_tokens=4)
    found = Engine([1], uniform).trials(observations=np.zeros(4, dtype=np.int64), hazard=0.1)
    assert found
    assert DEEPER not in found


def test_what_confidence_gains_is_part_of_what_a_trial_costs() -> None:
    def tried(gain: float) -> int:
        engine = Engine([1])
        for _ in range(200):
            engine.chooser.add_admission_gain(gain)
        return sum(each != DEEPER for each in engine.trials(hazard=0.6))

    assert tried(0.0) > tried(1.0)


def outlook_of(
    engine: Engine, noise: float = 0.0009, evidence: FloatArray = EVIDENCE
) -> tuple[Actions, Outlook]:
    forecast = engine.forecast()
    engine.cost.belief.noise = noise
    actions = engine.chooser._actions(forecast)
    return actions, engine.chooser._outlook(actions, forecast, evidence)


def test_where_steps_are_noisy_sixteen_runs_tell_much_more_than_one() -> None:
    _, outlook = outlook_of(Engine([1]), noise=0.05, evidence=1e12 * EVIDENCE)
    one, sixteen = outlook.change[0, 1, 1], outlook.change[-1, 1, 1]
    assert sixteen > 2.0 * one


def test_the_plan_tells_nothing_beyond_itself() -> None:
    actions, outlook = outlook_of(Engine([1]))
    own, of_one = outlook.change[-1, 0, actions.plan], outlook.change[-1, 0, 0]
    assert own < 0.2 * of_one


def test_what_is_told_is_worth_no_more_than_it_lasts() -> None:
    engine = Engine([1])
    actions, outlook = outlook_of(engine)
    outlook = outlook._replace(change=np.maximum(outlook.change, 0.2))
    lasting, drifting = (
        engine.chooser._net_gains(
            actions, outlook._replace(drifts=np.full(len(outlook.drifts), d)), 500
        )
        for d in (1e-9, 10.0)
    )
    assert lasting.max() > 10.0
    assert drifting.max() < 0.01


def test_sixteen_runs_cost_sixteen_times_as_much_as_one() -> None:
    engine = Engine([1])
    actions, outlook = outlook_of(engine)
    alike = outlook._replace(change=np.full_like(outlook.change, 1e-6))
    net = engine.chooser._net_gains(actions, alike, 500.0)
    tokens, seconds = outlook.tokens, outlook.seconds
    lost = seconds[1] / seconds[actions.plan] - tokens[1] / tokens[actions.plan]
    assert lost > 0.01
    assert net[:, 1] == pytest.approx(-lost * np.array([1.0, 4.0, 16.0]), rel=1e-3)


def test_after_a_change_of_acceptance_what_was_seen_before_counts_little_and_the_rest_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine, counted = Engine([1]), []
    monkeypatch.setattr(
        engine.chooser, "_search", lambda forecast, evidence, horizon: counted.append(evidence)
    )
    engine.trials(8)
    assert counted[-1].tolist() == [1000.0] * 4
    engine.trials(8, np.full(4, -8))  # the model counts anew
    assert counted[-1].tolist() == [20.0 + 8.0] * 4
    engine.trials(8, np.full(4, 484))
    assert counted[-1].tolist() == [20.0 + 500.0 + 8.0] * 4


@pytest.mark.usefixtures("needs_numba")
@given(
    seed=st.integers(0, 2**32 - 1),
    batch=st.integers(1, 40),
    steers=st.booleans(),
    deeper=st.integers(0, 4),
    cold=st.booleans(),
)
def test_both_forms_of_the_search_agree(
    seed: int, batch: int, steers: bool, deeper: int, cold: bool
) -> None:
    random = np.random.default_rng(seed)
    survival = random.random((4, batch)).cumprod(axis=0)
    possible, ours = random.integers(0, 5, (2, batch))
    ks, found = np.array([0, 1, 3, 4]), random.random(4)
    chosen = survival, possible, ours, ks, found, steers, int(random.integers(0, 5)), deeper, cold
    agree(actions_of, *chosen)
    accepted, observed, verified, _, hazard = actions_of.reference(*chosen)
    size = len(verified)
    times, drift = (each @ each.T for each in random.normal(0, 0.1, (2, size, size)))
    noise, seconds = random.uniform(1e-4, 0.1, (2, size))
    told = times, drift, noise, accepted, observed, hazard, random.random(4), batch, len(ks)
    agree(told_of, *told)
    tokens, change, drifts = told_of.reference(*told)
    counts = random.integers(0, 60, (3, 5))
    agree(age_positions, random.uniform(0, 9, 5), *counts)
    agree(net_gains, seconds, tokens, change, drifts, float(random.random()), 100.0, len(ks), cold)


@pytest.mark.parametrize("hazard", [0.05, 0.1, 0.3, 0.6, 0.8])
def test_a_constant_load_is_measured_in_few_steps(hazard: float) -> None:
    """Trials take two steps of each pair; one step in 20 at most measures."""
    engine = Engine([1])
    engine.trials(400, hazard=hazard)
    assert len(engine.trials(400, hazard=hazard)) <= 10
