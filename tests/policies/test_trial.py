"""A K is tried where it may be better and was not timed, and then no more."""

import math

import numpy as np
import pytest

from adaptive_spec.policies.acceptance import ALIKE, Acceptance
from adaptive_spec.policies.gaussian import condition
from adaptive_spec.policies.planning.step_forecast import forecast_step
from adaptive_spec.policies.step_features import SHARE
from adaptive_spec.policies.step_times import GAINED, NOISE, StepTimes
from adaptive_spec.policies.trial import (
    EVERY,
    best_trial,
    told_by,
    unit_loss,
)
from adaptive_spec.step import Capability, Level
from benchmarks.changes import GPUS
from benchmarks.policy_loop import World as Drafting
from tests import steps as made

KMAX = 6


GPU, DEAR = GPUS["H100, 8B"], Drafting(0.010, 0.002, 0.0005)
"""Each token costs a fifth of the rest of a step: many drafts lose much."""


class World:
    """Two beliefs about a machine and about drafts, trained on chosen K."""

    def __init__(
        self, machine: Drafting = GPU, hazard: float = 0.7, seed: int = 0, **fields
    ) -> None:
        self.machine, self.hazard = machine, hazard
        self.random = np.random.default_rng(seed)
        self.capability = Capability(**({"level": Level.FULL, "max_draft_tokens": KMAX} | fields))
        self.acceptance, self.times = Acceptance(KMAX), StepTimes(self.capability)

    def learn(self, k: int, batch: int = 16, noise: float = 0.02) -> None:
        verified, slots = np.full(batch, k), np.arange(batch)
        hits = self.random.random((batch, KMAX)) < self.hazard
        accepted = np.minimum(hits.cumprod(axis=1).sum(axis=1), verified)
        self.acceptance.learn(slots, verified, accepted, None)
        seconds = self.machine.seconds(batch * (1 + k), k)
        outcome = made.outcome(
            made.context(batch, self.capability),
            k,
            0,
            draft_depth=max(k, 1),
            seconds=seconds * math.exp(noise * self.random.normal()),
        )
        self.times.learn(outcome, cold=False)

    def context(self, batch: int = 16, step: int = 0, **changes):
        return made.context(batch, self.capability, step=step, **changes)

    def best(self, context):
        """Survival of all drafts, times of plans, and the best plan."""
        survival = self.acceptance.predict(context.slots)[1]
        curves = self.times.curves(context.batch_size, int(context.context_tokens.sum()))
        return survival, *curves, forecast_step(context, survival, *curves).best

    def found(self, context=None, seen: int = 100, **changes) -> int | None:
        """The trial, beside the best plan."""
        context = self.context(**changes) if context is None else context
        survival, _, _, best = self.best(context)
        return best_trial(context, best, survival, self.acceptance, self.times, seen)


def test_unit_loss_is_the_mean_of_what_a_normal_exceeds() -> None:
    x = np.array([0.0, 0.5, 1.0, 2.0])
    normal = np.random.default_rng(0).normal(size=400_000)
    exact = [np.maximum(normal - each, 0.0).mean() for each in x]
    assert [unit_loss(each) for each in x] == pytest.approx(exact, abs=2e-3)
    assert unit_loss(0.0) == pytest.approx(1.0 / math.sqrt(2.0 * math.pi))
    assert unit_loss(50.0) >= 0.0


@pytest.mark.parametrize("seed", range(6))
def test_a_k_that_was_not_timed_at_this_load_and_may_be_better_is_tried(seed: int) -> None:
    """A K whose goodput is believed to be within SHARE of the plan's is tried until it is timed."""
    random = np.random.default_rng(seed)
    hazard, batch = float(random.uniform(0.4, 0.9)), int(random.choice([2, 16, 64]))
    world = World(hazard=hazard, seed=seed)
    timed = {int(k) for k in random.permutation(KMAX + 1)[:3]}
    for _ in range(40):
        for k in timed:
            world.learn(k, batch)
    tried = []
    for _ in range(KMAX + 1):
        k = world.found(batch=batch)
        survival, verify, drafting, best = world.best(world.context(batch=batch))
        near = [
            each
            for each in np.flatnonzero(world.times.untimed(batch))
            if (batch + survival[:each].sum()) / (verify[each * batch] + drafting[each])
            > math.exp(-0.5 * SHARE) * best.goodput
        ]
        assert k is not None or not near, (hazard, near)
        if k is None:
            break
        tried.append(k)
        world.learn(k, batch)
    assert len(set(tried) - timed) >= min(len(tried), 2)


@pytest.mark.parametrize("noise", [0.01, 1.0])
@pytest.mark.parametrize("seed", range(12))
def test_where_all_else_is_sure_a_trial_is_worth_what_the_formula_says(
    seed: int, noise: float
) -> None:
    """Beliefs that are sure leave what a K may differ by at a load at which it was not timed."""
    random = np.random.default_rng(seed)
    hazard, batch = float(random.uniform(0.1, 0.9)), int(random.choice([2, 16, 64]))
    machine = GPU if seed % 2 else DEAR
    world = World(machine=machine, hazard=hazard, seed=seed)
    timed = {int(k) for k in random.permutation(KMAX + 1)[:3]}
    for _ in range(60):
        for k in timed:
            world.learn(k, batch)
    world.acceptance.covariance *= 1e-9
    world.times.covariance *= 1e-9
    world.times._moving[NOISE] = noise
    context = world.context(batch=batch)
    survival, verify, drafting, best = world.best(context)
    for seen in (0, 150, 5000):
        horizon, found, most = min(100 + seen, 500), None, 0.05
        for n in (1, 4, 16):
            sigma = SHARE**2 / math.sqrt(SHARE**2 + noise / n)
            for k in range(KMAX + 1):
                if not world.times.untimed(batch)[k]:
                    continue
                tokens = batch + survival[:k].sum()
                slower = (verify[k * batch] + drafting[k]) / best.seconds
                lost = max(slower - tokens / best.tokens, 0.0)
                x = max(math.log(best.tokens * slower / tokens), 0.0) / sigma
                worth = horizon * sigma * unit_loss(x) - n * lost
                if worth > most + 1e-6:
                    found, most = k, worth
        assert world.found(context, seen=seen) == found, (seen, found)


@pytest.mark.parametrize("n", [1.0, 4.0, 16.0])
def test_what_a_trial_tells_is_what_conditioning_on_it_takes_from_the_variance(n: float) -> None:
    """A trial tells of the difference to the plan, whose own steps run in any case."""
    world, random, rows = World(), np.random.default_rng(int(n)), KMAX + 2
    for k in (0, 1, 3, 3):
        world.learn(k)
    ks = np.append(np.arange(KMAX + 1), 3)
    x = world.times.rows(16, 16.0 * (1.0 + ks), 1600, world.times.passes[ks])
    by_b, by_c = random.normal(size=(rows, KMAX)), random.normal(size=x.shape)
    by_b, by_c = by_b - by_b[-1], by_c - by_c[-1]
    information, error = random.uniform(0.0, 4.0, (rows, KMAX)), random.uniform(0.01, 0.1, rows)
    information[:, -1] = 0.0
    beliefs = world.times.covariance, world.acceptance.covariance
    told = told_by(x, by_b, by_c, information, error, *beliefs, n)

    def informed(covariance, brought):
        diagonal = n * brought / (1.0 + ALIKE * n * brought.sum())
        return np.linalg.inv(np.linalg.inv(covariance) + np.diag(diagonal))

    expected = np.zeros_like(told)
    for e in range(rows):
        times, nothing = beliefs[0].copy(), np.zeros(x.shape[1])
        condition(nothing, times, x[-1], 0.0, float(error[-1] / n))
        after = times.copy()
        condition(nothing, after, x[e], 0.0, float(error[e] / n))
        b = informed(beliefs[1], information[-1])
        later = informed(b, information[e])
        for a in range(rows):
            expected[a, e] = by_c[a] @ (times - after) @ by_c[a] + by_b[a] @ (b - later) @ by_b[a]
    assert told == pytest.approx(expected, rel=1e-6, abs=1e-9)
    assert told[-1] == pytest.approx(0.0, abs=1e-15)  # the plan does not differ from itself
    assert (told >= -1e-15).all()


def test_nothing_is_tried_once_all_was_timed_often_until_it_has_become_unsure() -> None:
    world = World()
    for _ in range(60):
        for k in range(KMAX + 1):
            world.learn(k)
    assert world.found() is None
    assert world.found(seen=10_000) is None
    assert world.found(batch=64) is not None  # another load
    world.acceptance.widen()
    world.times.covariance = world.times.covariance + world.times.spread(16, 1600)
    assert world.found() is not None


def test_a_search_takes_place_in_every_fourth_step_only_and_not_beside_long_prompts() -> None:
    world = World()
    world.learn(3)
    assert world.found() is not None
    for step in range(1, 2 * EVERY + 1):
        assert (world.found(step=step) is not None) == (step % EVERY == 0)
    assert world.found(prefill_tokens=16 * (1 + KMAX)) is not None
    assert world.found(prefill_tokens=16 * (1 + KMAX) + 1) is None


def test_before_the_first_step_nothing_is_tried() -> None:
    assert World().found() is None


def test_only_what_may_run_is_tried() -> None:
    world = World(level=Level.UNIFORM, ladder=(0, 2, 5))
    for _ in range(20):
        world.learn(2)
        assert world.found() in (None, 0, 5, 2)


def test_a_trial_is_worth_less_where_what_it_tells_fades() -> None:
    def tried(gained: float = 0.0, drift: float = 1.0) -> bool:
        world = World()
        for _ in range(5):
            world.learn(3)
        world.times._moving[GAINED] = gained
        world.acceptance.prior = drift * world.acceptance.prior
        return world.found() is not None

    assert tried()
    assert not tried(gained=1.0)
    assert not tried(drift=1e6)


def test_a_k_that_most_requests_cannot_have_is_not_tried() -> None:
    world = World()
    for _ in range(5):
        world.learn(0)
    for number, tried in ((16, True), (8, True), (1, False)):
        possible = np.where(np.arange(16) < number, KMAX, 0)
        context = world.context(draft_possible=possible, draft_available=possible)
        assert bool(world.found(context)) is tried, number


def test_what_two_of_many_gain_is_not_diluted_by_those_that_opted_out() -> None:
    """Drafts gain much for the two that take part, so K = 0 is out of the question for them.

    Counted as taking part, the fourteen others would make K = 0 look as good, and worth a trial.
    """
    out = np.arange(16) >= 2
    possible = np.where(out, 0, KMAX)
    for hazard, tried in ((0.9, False), (0.02, True)):
        world = World(hazard=hazard)
        for _ in range(60):
            for k in range(1, KMAX + 1):
                world.learn(k)
        context = world.context(opted_out=out, draft_possible=possible, draft_available=possible)
        assert (world.found(context) == 0) is tried, hazard
