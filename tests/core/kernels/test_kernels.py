"""The parts of a kernel that turn logits into survival and knots into step times."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_spec.kernels import NUMPY, Kernel, numba_available, select_kernel

needs_numba = pytest.mark.skipif(not numba_available(), reason="numba is not installed")


@pytest.fixture(scope="module", params=["numpy", pytest.param("numba", marks=needs_numba)])
def kernel(request: pytest.FixtureRequest) -> Kernel:
    found = select_kernel(request.param)
    select_kernel("numpy")
    return found


@needs_numba
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), batch=st.integers(1, 40), kmax=st.integers(1, 9))
def test_both_kernels_expect_the_same_to_the_last_bit(seed: int, batch: int, kmax: int) -> None:
    compiled = select_kernel("numba")
    select_kernel("numpy")
    random = np.random.default_rng(seed)
    logits = random.normal(0.0, 5.0, (kmax, batch))
    logits[random.random((kmax, batch)) < 0.05] = np.nan
    one, other = logits.copy(), logits.copy()
    for kernel, array in ((NUMPY, one), (compiled, other)):
        kernel.hazards(array, 0.01, 0.995)
        kernel.survive(array)
    assert one.tobytes() == other.tobytes()
    knots = np.cumsum(random.integers(1, 50, 6)).astype(np.float64)
    heights = np.append(0.0, np.cumsum(random.exponential(size=5)))
    # Captured sizes repeat tokens; some stand on a knot, some past the last one.
    tokens = np.sort(random.choice(np.arange(knots[0], 1.5 * knots[-1]), 30))
    constants = random.exponential(size=3)
    found = [each.step_curve(tokens, knots, heights, *constants) for each in (NUMPY, compiled)]
    assert found[0].tobytes() == found[1].tobytes()


@needs_numba
@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), batch=st.integers(1, 20), kmax=st.integers(1, 9))
def test_both_kernels_judge_a_pass_alike_to_the_last_bit(seed: int, batch: int, kmax: int) -> None:
    compiled = select_kernel("numba")
    select_kernel("numpy")
    random = np.random.default_rng(seed)
    odds_against = np.exp(random.normal(0.0, 3.0, batch))
    odds_against[random.random(batch) < 0.2] = np.nan
    drafting = random.random(batch) < 0.8
    mean_hazard = random.uniform(0.01, 0.995, (kmax, batch))
    told = random.random(kmax)
    position = int(random.integers(kmax))
    draft_prices = np.sort(random.uniform(0.0, 1.2, kmax))
    pass_price = random.uniform(0.0, 0.3 * batch)
    found = []
    for kernel in (NUMPY, compiled):
        changed = np.random.default_rng(seed)
        survival = changed.uniform(0.0, 1.5, batch)
        extending = changed.random(batch) < 0.1
        admitted, going = kernel.judge(
            position,
            odds_against,
            0.01,
            0.995,
            mean_hazard,
            told,
            draft_prices,
            pass_price,
            drafting,
            survival,
            extending,
        )
        assert not (going & ~admitted).any(), "nobody goes on without keeping the draft"
        found.append(b"".join(each.tobytes() for each in (admitted, going, survival, extending)))
    assert found[0] == found[1]


@needs_numba
@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    batch=st.integers(0, 20),
    kmax=st.integers(1, 9),
    classes=st.sampled_from(("greedy", "sampled", "both")),
)
def test_both_kernels_learn_of_confidence_alike_to_the_last_bit(
    seed: int, batch: int, kmax: int, classes: str
) -> None:
    compiled = select_kernel("numba")
    select_kernel("numpy")
    random = np.random.default_rng(seed)
    signal = random.normal(0.0, 2.0, (kmax, batch))
    signal[random.random((kmax, batch)) < 0.3] = np.nan
    hazard, of_history = random.uniform(0.01, 0.995, (2, kmax, batch))
    verified = random.integers(0, kmax + 1, batch)
    accepted = random.integers(0, verified + 1)
    residual, information = random.normal(size=(kmax, batch)), random.random((kmax, batch))
    column = {"greedy": np.array([0]), "sampled": np.array([1])}.get(classes)
    if column is None:
        column = random.integers(0, 2, batch)
    found = []
    for kernel in (NUMPY, compiled):
        changed = np.random.default_rng(seed)
        own, evidence = changed.uniform(0.0, 4.0, (kmax, 2)), changed.uniform(0.0, 99.0, (kmax, 2))
        weight = np.empty_like(own)
        kernel.weigh(signal, residual, information, column, own, evidence, 4.0, 50.0, 4.0)
        kernel.pool(own, evidence, weight, 4.0, 20.0)
        assert (own >= 0.0).all()
        assert (own <= 4.0).all()
        missed, uncertain, anything = kernel.passed_over(
            signal, verified, accepted, hazard, of_history
        )
        assert anything == bool(uncertain.any())
        mean, count = changed.normal(size=(kmax, 2)), changed.uniform(0.0, 9.0, (kmax, 2))
        kernel.follow_means(signal, column, mean, count, 10.0)
        told = changed.uniform(0.0, 9.0, (3, kmax))
        kernel.tell(hazard, of_history, ~np.isnan(signal), np.linspace(0.1, 0.6, kmax), *told, 5.0)
        results = own, evidence, weight, missed + 0.0, uncertain, mean, count, told
        results += (kernel.round_means(signal),)
        found.append(b"".join(each.tobytes() for each in results))
    assert found[0] == found[1]


def test_drafts_passed_over_count_by_the_chance_of_being_reached(kernel: Kernel) -> None:
    signal = np.array([[0.0, 0.0, 0.0], [0.0, 0.0, np.nan], [0.0, 0.0, 0.0]])
    hazard, of_history = np.full((3, 3), 0.5), np.full((3, 3), 0.25)
    verified, accepted = np.array([1, 2, 1]), np.array([1, 1, 1])
    missed, uncertain, anything = kernel.passed_over(signal, verified, accepted, hazard, of_history)
    weight = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.5, 0.0, 0.5]])
    assert anything
    assert missed == pytest.approx(0.25 * weight)
    assert uncertain == pytest.approx(0.25 * 0.75 * weight)


def test_hazards_are_the_logistic_of_their_logits_within_bounds(kernel: Kernel) -> None:
    hazard = np.array([[-30.0, 0.0], [1.0, 30.0]])
    kernel.hazards(hazard, 0.01, 0.995)
    assert hazard == pytest.approx(np.array([[0.01, 0.5], [0.7310586, 0.995]]))


def test_survival_is_the_product_of_the_hazards_above(kernel: Kernel) -> None:
    hazard = np.array([[0.5, 1.0], [0.5, 0.2], [0.1, 0.5]])
    kernel.survive(hazard)
    assert hazard == pytest.approx(np.array([[0.5, 1.0], [0.25, 0.2], [0.025, 0.1]]))


def test_step_times_run_through_the_knots_and_on_past_the_last(kernel: Kernel) -> None:
    knots, heights = np.array([1.0, 2.0, 4.0]), np.array([0.0, 1.0, 5.0])
    tokens = np.array([1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
    seconds = kernel.step_curve(tokens, knots, heights, 10.0, 100.0, 0.0)
    assert seconds.tolist() == [100.0, 100.5, 101.0, 103.0, 105.0, 125.0]


def test_the_first_draft_of_a_step_costs_extra_and_no_step_is_free(kernel: Kernel) -> None:
    knots, heights = np.array([1.0, 2.0]), np.zeros(2)
    seconds = kernel.step_curve(np.array([1.0, 2.0, 3.0]), knots, heights, 0.0, -5.0, 6.0)
    assert seconds.tolist() == [1e-6, 1.0, 1.0]
