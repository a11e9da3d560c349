"""The belief about step times predicts what was not run, knows how sure it is, and follows changes.

Machines are drawn: a pass that costs the same up to a knee and then by token, a drafter's pass, a
part per request, with captured sizes or without.
"""

import json
import math
from dataclasses import dataclass, replace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_spec.errors import PolicyError
from adaptive_spec.policies.step_features import (
    ANY,
    CONTEXT,
    KNOTS,
    PASS_REQUEST,
    PASSES,
    PREFILL,
    RAGGED,
    REQUEST,
    SIZE,
    roofline,
)
from adaptive_spec.policies.step_times import (
    DRIFT,
    FIRST_DRIFT,
    LEVEL_DRIFT,
    LEVEL_JUMPED,
    LEVEL_VARIANCE,
    NOISE,
    SavedStepTimes,
    StepTimes,
)
from adaptive_spec.step import Capability, Level
from tests import steps as made
from tests.refused import refused

KMAX = 6
BUCKETS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)


@dataclass(frozen=True)
class Drawn:
    """Seconds of a step: fixed + slope max(N - knee, 0) + D (pass_ + pass_request B) + request B"""

    fixed: float
    knee: float
    slope: float
    pass_: float
    pass_request: float
    request: float
    buckets: tuple[int, ...] = ()

    def seconds(self, tokens: int, batch: int, passes: int) -> float:
        size = next((each for each in self.buckets if each >= tokens), tokens)
        return (
            self.fixed
            + self.slope * max(size - self.knee, 0.0)
            + passes * (self.pass_ + self.pass_request * batch)
            + self.request * batch
        )

    def slower(self, factor: float) -> "Drawn":
        times = ("fixed", "slope", "pass_", "pass_request", "request")
        return replace(self, **{name: factor * getattr(self, name) for name in times})


def drawn(random: np.random.Generator, buckets: tuple[int, ...] = ()) -> Drawn:
    fixed, knee = 10 ** random.uniform(-3, -1.3), math.exp(random.uniform(4.1, 6.0))
    return Drawn(
        fixed,
        knee,
        slope=fixed / knee * random.uniform(0.5, 1.5),
        pass_=fixed * random.uniform(0.02, 0.15),
        pass_request=fixed * random.uniform(0.0, 0.0005),
        request=fixed * random.uniform(0.0, 0.002),
        buckets=buckets,
    )


def belief(buckets: tuple[int, ...] = (), **fields: object) -> StepTimes:
    made_of = dict(level=Level.FULL, max_draft_tokens=KMAX, token_buckets=buckets)
    return StepTimes(Capability(**(made_of | fields)))


def step(times: StepTimes, batch: int, k: object, seconds: float, *, cold: bool = False, **fields):
    """Let a step of `batch` requests with k drafts each be learned."""
    context = made.context(batch, KMAX)
    depth = 0 if cold else max(int(np.max(k)), 1)
    outcome = made.outcome(context, k, **({"draft_depth": depth, "seconds": seconds} | fields))
    times.learn(outcome, cold=cold)


def learn(times, machine, random, steps, batches, ks, noise, stalled=0.0) -> None:
    for _ in range(steps):
        batch, k = int(random.choice(batches)), int(random.choice(ks))
        seconds = machine.seconds(batch * (1 + k), batch, max(k, 1))
        seconds *= math.exp(noise * random.normal())
        step(times, batch, k, seconds * (50.0 if random.random() < stalled else 1.0))


def expected(times: StepTimes, batch: int, k: int) -> float:
    return times.seconds(batch, batch * (1 + k), 100 * batch, max(k, 1))


def worst_error(times: StepTimes, machine: Drawn, batch: int = 16, ks=range(KMAX + 1)) -> float:
    truth = [machine.seconds(batch * (1 + k), batch, max(k, 1)) for k in ks]
    return max(abs(expected(times, batch, k) / t - 1.0) for k, t in zip(ks, truth, strict=True))


# --------------------------------------------------------------- prediction


@pytest.mark.parametrize("buckets", [(), BUCKETS], ids=["plain", "staircase"])
@pytest.mark.parametrize(("noise", "most"), [(0.0, 0.02), (0.03, 0.04), (0.15, 0.12)])
def test_steps_that_were_not_run_are_predicted(
    buckets: tuple[int, ...], noise: float, most: float
) -> None:
    """K = 2 and 5 from steps of the others; worst of four machines, 200 steps.

    Found: .002, .03 and .06, besides a machine's own knee between two knots (.017).
    """
    for seed in range(4):
        random = np.random.default_rng(seed)
        machine, times = drawn(random, buckets), belief(buckets)
        learn(times, machine, random, 200, [16], [0, 1, 3, 4, 6], noise)
        assert worst_error(times, machine, ks=(2, 5)) < most, seed
        assert math.sqrt(times.noise) == pytest.approx(max(noise, 0.003), rel=0.3, abs=0.002)


def test_other_loads_than_those_that_ran_are_predicted() -> None:
    errors = []
    for seed in range(6):
        random = np.random.default_rng(seed)
        machine, times = drawn(random), belief()
        learn(times, machine, random, 150, [4, 8, 32], range(KMAX + 1), 0.02)
        errors.append(worst_error(times, machine, batch=16, ks=(0, 2, 4, 6)))
    assert np.median(errors) < 0.08, errors


@pytest.mark.parametrize(
    ("ks", "ran", "steps", "noises", "due", "most"),
    [
        ((0,), range(1, KMAX + 1), 25, (0.0, 0.03, 0.15), 0.8, 0.45),
        ((0, 3, 6), range(KMAX + 1), 60, (0.03,), 0.4, 0.03),
    ],
    ids=["not run", "run"],
)
def test_the_interval_of_a_step_time_covers_it(
    ks: tuple[int, ...],
    ran: range,
    steps: int,
    noises: tuple[float, ...],
    due: float,
    most: float,
) -> None:
    """90 % are due, of 40 machines at two loads.

    Found: .90 to 1.00 of a K = 0 that did not run; it may be wide, but not as wide as the prior at
    once. Too narrow where all K ran: .5 to .6.
    """
    random = np.random.default_rng(7)
    for noise in noises:
        inside, widths = [], []
        for number in range(40):
            buckets = BUCKETS if number % 2 else ()
            machine = drawn(random, buckets)
            for batch in (16, 64):
                times = belief(buckets)
                learn(times, machine, random, steps, [batch], ran, noise)
                for k in ks:
                    sizes = np.array([batch * (1.0 + k)]), 100 * batch, np.array([max(k, 1.0)])
                    [x] = times.rows(batch, *sizes)
                    mean = float(x @ times.coefficients)
                    variance = (
                        float(x @ times.covariance @ x) / mean**2 + times._moving[LEVEL_VARIANCE]
                    )
                    truth = machine.seconds(batch * (1 + k), batch, max(k, 1))
                    off = truth / expected(times, batch, k) - 1.0
                    inside.append(abs(off) < 1.645 * math.sqrt(variance))
                    widths.append(math.sqrt(variance))
        assert np.mean(inside) > due, (noise, np.mean(inside))
        assert np.mean(widths) < most, (noise, np.mean(widths))


# ------------------------------------------------------------------ features


def test_curves_and_rows_are_the_same_times() -> None:
    """The planner reads curves, trial and learning read rows."""
    random = np.random.default_rng(0)
    for buckets in ((), BUCKETS):
        times = belief(buckets)
        times.coefficients = random.uniform(0.1, 1.0, SIZE)
        times.coefficients[[PREFILL, RAGGED]] = 0.0
        for batch in (1, 3, 16, 200):
            verify, drafting = times.curves(batch, 70 * batch)
            for drafts, depth in ((0, 0), (1, 1), (batch, 2), (batch * KMAX, KMAX)):
                [x] = times.rows(
                    batch,
                    np.array([float(batch + drafts)]),
                    70 * batch,
                    np.array([times.passes[depth]]),
                )
                assert verify[drafts] + drafting[depth] == pytest.approx(x @ times.coefficients)


def test_a_row_holds_the_parts_of_a_step() -> None:
    times = belief()
    [x, plain] = times.rows(20, np.array([48.0, 20.0]), 3000, np.array([3.0, 1.0]), prefill=7)
    assert x[0] == 1.0
    heights = np.interp(48.0, KNOTS, np.arange(len(KNOTS)))
    assert x[1 : len(KNOTS) + 1].sum() == pytest.approx(heights)
    assert (x[REQUEST], x[CONTEXT], x[PREFILL]) == (20.0, 3000.0, 7.0)
    assert (x[PASSES], x[PASS_REQUEST], x[ANY]) == (3.0, 60.0, 1.0)
    assert (plain[ANY], plain[ANY + 1], x[ANY + 1], x[RAGGED]) == (0.0, 0.0, 3000.0, 0.0)


def test_passes_at_depth_0_are_those_that_keep_the_drafter_warm() -> None:
    assert belief().passes.tolist() == [1.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert belief(off_pass=False).passes[0] == 0.0
    assert belief(level=Level.VERIFY).passes[0] == KMAX
    random = np.random.default_rng(0)
    machine, times = drawn(random), belief()
    learn(times, machine, random, 100, [16], range(KMAX + 1), 0.01)
    for _ in range(30):
        step(times, 16, 0, machine.seconds(16, 16, 0), cold=True)
    assert times.seconds(16, 16, 1600, 0.0) == pytest.approx(machine.seconds(16, 16, 0), rel=0.02)
    assert expected(times, 16, 0) == pytest.approx(machine.seconds(16, 16, 1), rel=0.03)


def test_prompts_and_ragged_batches_have_their_own_prices() -> None:
    random = np.random.default_rng(1)
    machine, times = drawn(random), belief(ragged_penalty=0.04)
    price, penalty = 2.0 * machine.slope, 0.1
    for _ in range(400):
        k, prompt = int(random.integers(0, KMAX + 1)), int(random.choice([0, 0, 64, 200]))
        verified = np.full(16, k)
        if ragged := bool(random.random() < 0.5 and 0 < k < KMAX):
            verified[:8] += 1
        tokens = 16 + int(verified.sum())
        passes, body = int(max(verified.max(), 1)), machine.seconds(tokens, 16, 0)
        seconds = body * (1.0 + penalty * ragged) + machine.seconds(tokens, 16, passes) - body
        step(
            times,
            16,
            verified,
            (seconds + price * prompt) * math.exp(0.01 * random.normal()),
            prefill_tokens=prompt,
            draft_depth=passes,
        )
    assert times.prompt_seconds(100) == pytest.approx(100 * price, rel=0.2)
    assert times.coefficients[RAGGED] == pytest.approx(penalty, abs=0.03)
    assert worst_error(times, machine) < 0.05


def test_a_first_step_of_prompts_sets_no_scale_for_long() -> None:
    random = np.random.default_rng(2)
    machine, times = drawn(random), belief()
    step(times, 1, 0, 30.0 * machine.fixed, prefill_tokens=4000)
    step(times, 1, 1, machine.seconds(2, 1, 1))
    assert expected(times, 1, 1) == pytest.approx(machine.seconds(2, 1, 1), rel=0.01)
    before = times.scale
    step(times, 1, 1, 2.0 * machine.seconds(2, 1, 1))
    assert times.scale < 2.0 * before  # a later step is learned, and begins nothing anew


# ------------------------------------------------------------------- changes


@pytest.mark.parametrize("factor", [1.5, 1 / 1.5])
@pytest.mark.parametrize(("noise", "within"), [(0.003, 8), (0.03, 8), (0.1, 15)])
def test_a_change_of_all_step_times_is_followed_and_a_second_one_is_of_the_level(
    factor: float, noise: float, within: int
) -> None:
    """Found: followed after 5 steps at 0.3 and 3 %, after 8 at 10 % noise."""
    random = np.random.default_rng(3)
    machine, times = drawn(np.random.default_rng(1)), belief()
    slower = machine.slower(factor)
    learn(times, machine, random, 150, [16], range(KMAX + 1), noise)
    learn(times, slower, random, within, [16], range(KMAX + 1), noise)
    assert worst_error(times, slower) < 0.03 + 1.2 * noise
    learn(times, slower, random, 50, [16], range(KMAX + 1), noise)
    level, shape = times.level, times.coefficients.copy()
    learn(times, machine, random, within, [16], range(KMAX + 1), noise)
    assert worst_error(times, machine) < 0.03 + 1.2 * noise
    moved = math.log(times.level / level) / math.log(1.0 / factor)
    assert 0.7 < moved < 1.3, moved
    [x] = times.rows(16, np.array([64.0]), 1600, np.array([3.0]))
    assert x @ times.coefficients == pytest.approx(x @ shape, rel=0.06 + noise)


@pytest.mark.parametrize("factor", [0.6, 0.9, 1.3, 1.9])
def test_after_a_restart_another_clock_is_taken_up_and_no_further_than_it_was_seen(
    factor: float,
) -> None:
    """The parts learn nothing from the share of a surprise that the level explains."""
    times, other = belief(), belief()
    for number in range(30):
        step(times, 16, number % 4, 0.01)
    other.restore(times.saved())
    before = expected(other, 16, 3)
    step(other, 16, 3, factor * before)
    moved = math.log(expected(other, 16, 3) / before) / math.log(factor)
    assert 0.25 < moved < 1.05, moved


@pytest.mark.parametrize(("noise", "most"), [(0.003, 0.03), (0.03, 0.06)])
def test_a_change_of_the_drafters_pass_alone_is_followed(noise: float, most: float) -> None:
    """Found: error of .01 after 60 steps at 0.3 %, of .04 at 3 %; at 10 % noise it stays at .3."""
    random = np.random.default_rng(3)
    machine, times = drawn(np.random.default_rng(1)), belief()
    learn(times, machine, random, 150, [16], range(KMAX + 1), noise)
    dearer = replace(machine, pass_=4.0 * machine.pass_)
    assert worst_error(times, dearer) > 0.25
    learn(times, dearer, random, 80, [16], range(KMAX + 1), noise)
    assert worst_error(times, dearer) < most


@pytest.mark.parametrize("noise", [0.003, 0.03])
def test_a_level_that_wanders_is_followed(noise: float) -> None:
    """Its drift is learned from surprises that are alike: 2 % a step, as of a clock that warms."""
    random = np.random.default_rng(4)
    machine, times = drawn(random), belief()
    learn(times, machine, random, 100, [16], range(KMAX + 1), noise)
    level, errors = 1.0, []
    for number in range(300):
        level *= math.exp(0.02 * random.normal())
        now = machine.slower(level)
        learn(times, now, random, 1, [16], range(KMAX + 1), noise)
        if number >= 60:
            errors.append(expected(times, 16, 3) / now.seconds(64, 16, 3) - 1.0)
    assert np.sqrt(np.mean(np.square(errors))) < 0.06
    assert times._moving[LEVEL_DRIFT] > 10.0 * FIRST_DRIFT


def test_stalled_steps_move_nothing() -> None:
    """1 % of the steps take fifty times as long."""
    random = np.random.default_rng(5)
    machine, times = drawn(random), belief()
    learn(times, machine, random, 100, [16], range(KMAX + 1), 0.03)
    for _ in range(4):
        learn(times, machine, random, 100, [16], range(KMAX + 1), 0.03, stalled=0.01)
        assert worst_error(times, machine) < 0.05
        assert math.sqrt(times.noise) < 0.06


def test_nothing_jumps_before_the_noise_is_known() -> None:
    """Noise of 15 % from the first step on: the level stays within 15 % of the truth's mean."""
    for seed in range(3):
        random = np.random.default_rng(seed)
        machine, times = drawn(random), belief()
        learn(times, machine, random, 30, [16], range(KMAX + 1), 0.15)
        assert times._moving[LEVEL_JUMPED] < 0
        learn(times, machine, random, 200, [16], range(KMAX + 1), 0.15)
        assert worst_error(times, machine) < 0.15


# -------------------------------------------------------------------- limits

HOSTILE = st.lists(
    st.tuples(
        st.sampled_from([0.0, -1.0, math.nan, math.inf, 1e-9, 2e-6, 1e-3, 0.01, 0.5, 59.0, 1e9]),
        st.sampled_from([0, 1, 3, 64, 1000]),
        st.integers(0, KMAX),
        st.sampled_from([-5, 0, 1, 10, 700, 10**6]),
        st.sampled_from([0, -3, 100, 10**7]),
        st.sampled_from([0, 0, 50, 10**5]),
        st.booleans(),
    ),
    max_size=60,
)


@given(outcomes=HOSTILE)
def test_no_outcome_makes_a_part_negative_or_unsound(outcomes: list[tuple]) -> None:
    times = belief()
    for seconds, batch, depth, tokens, context, prefill, ragged in outcomes:
        step(
            times,
            batch,
            0,
            seconds,
            batch_tokens=tokens,
            draft_depth=depth,
            context_tokens=context,
            prefill_tokens=prefill,
            ragged=ragged,
        )
        assert times.coefficients.min() >= 0.0
        assert np.isfinite(times.coefficients).all()
        assert np.isfinite(times.covariance).all()
        assert 0.0 < times.level < math.inf
        assert 0.0 < times.noise <= 1.0
    if (saved := times.saved()) is not None:
        text = json.dumps(msgspec.to_builtins(saved), allow_nan=False)
        belief().restore(msgspec.convert(json.loads(text), SavedStepTimes))
    for batch in (1, 64):
        verify, drafting = times.curves(batch, 100 * batch)
        assert verify.min() > 0.0
        assert drafting.min() >= 0.0
        assert np.isfinite(verify).all()


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, 1e-7, 60.0, 1e9])
def test_what_is_no_measurement_teaches_nothing(seconds: float) -> None:
    times = belief()
    step(times, 4, 2, 0.01)
    step(times, 4, 2, 0.01)
    before = times.coefficients.copy(), times.covariance.copy(), times.level, times.steps
    step(times, 4, 2, seconds)
    step(times, 0, 0, 0.01)
    assert (times.coefficients == before[0]).all()
    assert (times.covariance == before[1]).all()
    assert (times.level, times.steps) == before[2:]


def test_untimed_names_the_k_of_which_no_neighbour_ran_at_a_load() -> None:
    times = belief()
    assert times.untimed(16).tolist() == [1.0] * (KMAX + 1)
    step(times, 16, 3, 0.01)
    step(times, 20, 0, 0.01)
    step(times, 40, 5, 0.01)
    assert times.untimed(16).tolist() == [0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    assert times.untimed(31).tolist() == times.untimed(16).tolist()
    assert times.untimed(32).tolist() == [1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    assert times.untimed(15).tolist() == [1.0] * (KMAX + 1)
    step(times, 16, 6, 0.02, prefill_tokens=50)  # else it would be tried for ever beside prompts
    assert times.untimed(16)[6] == 0.0
    ragged = np.repeat([0, 2], 8)
    step(times, 16, ragged, 0.01)
    assert times.untimed(16)[1] == 0.0  # about one draft a request


def test_parts_drift_as_the_trial_expects() -> None:
    times = belief()
    for _ in range(50):
        step(times, 16, 3, 0.01)
    [x] = times.rows(16, np.array([16.0]), 1600, np.array([1.0]))
    before = float(x @ times.covariance @ x)
    times._moving[NOISE] = 1.0  # so unsure that a step tells next to nothing
    [told] = times.rows(16, np.array([64.0]), 1600, np.array([3.0]))
    plain = float(told @ times.coefficients)
    step(times, 16, 3, 0.01)
    gained = float(x @ times.covariance @ x) - before
    spread = times.spread(16, 1600)
    assert gained == pytest.approx(DRIFT * plain**2 * (x @ spread @ x), rel=0.3)
    assert times.drift(16, 1600) == pytest.approx(DRIFT * spread)
    while not times.jumped:
        step(times, 16, 3, 0.03)
    # The variance that jumps add is averaged over the last 2,048 steps.
    assert times.drift(16, 1600) == pytest.approx((DRIFT + 1.0 / 2048.0) * spread)


# --------------------------------------------------------------------- state


def test_what_was_learned_survives_json_and_another_clock_is_taken_up_at_once() -> None:
    random, other = np.random.default_rng(6), belief()
    machine, times = drawn(random), belief()
    assert times.saved() is None
    learn(times, machine, random, 80, [4, 64], range(KMAX + 1), 0.03)
    saved = times.saved()
    text = json.dumps(msgspec.to_builtins(saved), allow_nan=False)
    other.restore(msgspec.convert(json.loads(text), SavedStepTimes))
    for batch in (4, 16, 64):
        for k in (0, 3, 6):
            assert expected(other, batch, k) == pytest.approx(expected(times, batch, k))
    assert (other.noise, other.steps) == (times.noise, times.steps)
    assert other.steps_at(64).tolist() == times.steps_at(64).tolist()
    assert other.covariance == pytest.approx(times.covariance, rel=1e-6, abs=1e-12)
    # Observations bring P^-1 - P0^-1; with another P0 the fleet would add nonsense.
    again = other.saved().parts
    assert again.prior_covariance == saved.parts.prior_covariance
    assert again.prior_mean == saved.parts.prior_mean
    learn(other, machine.slower(1.4), random, 6, [4, 64], range(KMAX + 1), 0.03)
    assert worst_error(other, machine.slower(1.4), 4) < 0.15
    short = msgspec.structs.replace(saved.parts, mean=saved.parts.mean[:-1])
    with refused(PolicyError, "expected"):
        belief().restore(msgspec.structs.replace(saved, parts=short))


def test_the_guess_is_a_roofline() -> None:
    times = belief()
    verify, drafting = times.curves(16, 0)
    assert verify[0] == pytest.approx(1.0)
    assert verify[96] == pytest.approx(1.0)  # 112 tokens, below the knee
    assert belief().curves(200, 0)[0][120] == pytest.approx(2.0)  # 320 tokens, twice the knee
    assert drafting == pytest.approx(0.06 * np.array([1, 1, 2, 3, 4, 5, 6]))
    assert roofline(320.0)[PREFILL] == pytest.approx(roofline()[PREFILL] / 2.0)


def test_steps_of_whole_tiles_show_that_a_tile_costs_the_same_for_a_part() -> None:
    """From 192, 288, 384 tokens, the time of 256: it is in the tile of 192, not of 288."""
    times, tile = belief(), [18.0, 27.0, 36.0, 45.0]
    for n in range(60):
        k = 1 + n % 3
        step(times, 96, k, 1e-3 * (tile[(96 * (k + 1) - 1) // 128] + 1.0 * k))
    verify, _ = times.curves(96, 9600)
    assert times.scale * verify[256 - 96] == pytest.approx(27e-3, rel=0.06)
    assert times.scale * verify[264 - 96] == pytest.approx(36e-3, rel=0.06)


@pytest.mark.parametrize("noise", [0.01, 0.05, 0.15, 0.3])
def test_the_noise_is_known_after_the_first_steps(noise: float) -> None:
    found = []
    for seed in range(20):
        random = np.random.default_rng(seed)
        times, machine = belief(), drawn(random)
        learn(times, machine, random, 30, [32], [1, 2, 3], noise)
        found.append(math.sqrt(times.noise))
    assert noise / 1.6 < np.median(found) < 1.6 * noise


def test_a_trial_for_which_few_had_drafts_times_no_k() -> None:
    times = belief()
    context = made.context(16, KMAX)
    few = made.outcome(context, [4] + [0] * 15, draft_depth=4, seconds=0.01)
    times.learn(few, cold=False, tried=4)
    assert times.untimed(16).tolist() == [0, 1, 1, 1, 1, 1, 1]
    most = made.outcome(context, [4] * 10 + [0] * 6, draft_depth=4, seconds=0.01)
    times.learn(most, cold=False, tried=4)
    assert times.untimed(16)[4] == 0.0


TREE = Capability(
    level=Level.UNIFORM, max_draft_tokens=5, ladder=(0, 1, 3, 5), tree_nodes=(1, 3, 6, 8)
)
"""SGLang's default tree for Llama, and the depths below it."""


def test_the_time_of_a_tree_is_that_of_its_nodes() -> None:
    """A batch of 64 whose step takes .01 s and .1 ms a token: at depth 3 it verifies 6 each."""
    times, batch = StepTimes(TREE), 64
    of = made.context(batch, TREE)
    for step in range(400):
        depth = TREE.ladder[step % 4]
        tokens = batch * TREE.tree_nodes[step % 4]
        seconds = 0.01 + 1e-4 * tokens
        outcome = made.outcome(of, depth, batch_tokens=tokens, seconds=seconds)
        times.learn(outcome, cold=False)
    verify, draft = times.curves(batch, batch * 100, scale=times.scale)
    for depth, nodes in zip(TREE.ladder, TREE.tree_nodes, strict=True):
        took = verify[batch * depth] + draft[depth]
        assert took == pytest.approx(0.01 + 1e-4 * batch * nodes, rel=0.05)
    assert times.steps_at(batch)[[0, 1, 3, 5]].tolist() == [100.0] * 4
    assert times.steps_at(batch).sum() == 400.0


def test_tokens_between_the_depths_of_a_tree_are_linear() -> None:
    times = StepTimes(TREE)
    drafts = np.array([0, 1, 2, 4, 6, 8, 10, 12])
    assert times.tokens(2, drafts).tolist() == [2.0, 4.0, 6.0, 9.0, 12.0, 14.0, 16.0, 16.0]
    chain = StepTimes(Capability(level=Level.UNIFORM, max_draft_tokens=5))
    assert chain.tokens(2, drafts).tolist() == (2.0 + drafts).tolist()


@pytest.mark.parametrize(
    "nodes", [(1, 3, 6), (1, 3, 3, 8), (1, 6, 3, 8), (1, 1, 6, 8), (1, 3, 6, 5)]
)
def test_nodes_that_no_tree_can_have_are_refused(nodes: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="tree_nodes"):
        msgspec.structs.replace(TREE, tree_nodes=nodes)
