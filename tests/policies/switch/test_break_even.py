"""Break-even acceptance equals what a search over every number of drafts finds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_spec.policies.switch.break_even import Prospect, prospect
from adaptive_spec.policies.switch.probes import ProbeTest


def best_gain(hazard, batch, verify, draft, off, deeper):
    """Largest gain over all m, by the definition: the m shallowest drafts of alike requests."""
    kmax = len(draft) - 1
    survival = [hazard * float(np.prod(deeper[:j])) for j in range(kmax)]
    best = -np.inf
    for m in range(1, batch * kmax + 1):
        tokens = batch + sum(survival[n // batch] for n in range(m))
        depth = -(-m // batch)
        best = max(best, tokens / (verify[m] + draft[depth]) * off / batch - 1.0)
    return best


@settings(max_examples=2 * settings().max_examples, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_at_break_even_the_best_plan_equals_no_speculation(seed: int) -> None:
    random = np.random.default_rng(seed)
    batch, kmax = int(random.integers(1, 6)), int(random.integers(1, 5))
    verify = 1.0 + np.cumsum(random.uniform(0.0, 0.2, batch * kmax + 1))
    draft = np.cumsum(random.uniform(0.0, 0.2, kmax + 1))
    deeper = random.uniform(0.1, 0.99, kmax - 1)
    off = float(verify[0])
    found = prospect(batch, verify, draft, off, deeper)
    truth = (batch, verify, draft, off, deeper)
    assert best_gain(found.break_even, *truth) == pytest.approx(0.0, abs=1e-9)
    if 0.0 < found.worthwhile < 0.97:
        assert best_gain(found.worthwhile, *truth) == pytest.approx(found.gain, abs=1e-9)
    assert found.gain == pytest.approx(min(max(best_gain(0.8, *truth), 0.0), 0.3), abs=1e-9)


def test_dear_drafts_are_hopeless_and_cheap_ones_are_not() -> None:
    deeper = np.array([0.7])
    dear = prospect(1, np.array([1.0, 2.0, 3.0]), np.zeros(3), 1.0, deeper)
    cheap = prospect(1, np.array([1.0, 1.01, 1.02]), np.zeros(3), 1.0, deeper)
    assert dear.hopeless
    assert not cheap.hopeless
    assert cheap.break_even == pytest.approx(0.01)


def test_a_free_drafter_with_a_small_gain_is_found_in_a_few_probes() -> None:
    """As of a suffix drafter at 64 clients: break-even .57, seen .67, and .8 for a large gain."""
    deeper = np.array([0.9, 0.9, 0.9])
    verify, draft = 1.0 + 0.05 * np.arange(33), np.zeros(5)
    found = prospect(8, verify, draft, 1.0, deeper)
    assert found.gain > 0.2
    hazard = next(
        h for h in np.linspace(0, 1, 201) if best_gain(h, 8, verify, draft, 1.0, deeper) > 0.12
    )
    random = np.random.default_rng(3)
    probes = []
    for _ in range(100):
        test, answer, count = ProbeTest(free=True), None, 0
        while not answer:
            if answer is False or not count:
                test.begin(found)
                count += 1
            test.add(4, int(random.binomial(4, hazard)))
            answer = test.verdict()
        probes.append(count)
    assert np.mean(probes) < 3


OUTLOOK = Prospect(gain=0.3, break_even=0.2, worthwhile=0.5)


def verdicts(hazard: float, *, trials: int = 400, per_step: int = 4) -> tuple[float, float]:
    """Share of probes that say yes, and the mean number of first drafts; each on its own."""
    random = np.random.default_rng(1)
    passed, samples = 0, 0
    for _ in range(trials):
        test = ProbeTest()
        test.begin(OUTLOOK)
        while (answer := test.verdict()) is None:
            test.add(per_step, int(random.binomial(per_step, hazard)))
        passed += answer
        samples += test.samples
    return passed / trials, samples / trials


def test_a_dead_drafter_is_told_by_a_few_drafts() -> None:
    passed, samples = verdicts(0.03)
    assert passed == 0.0
    assert samples <= 16


def test_a_good_drafter_passes_most_probes() -> None:
    passed, samples = verdicts(0.8)
    assert passed > 0.9
    assert samples <= 40


def test_at_break_even_a_false_yes_is_rare() -> None:
    passed, _ = verdicts(0.2)
    assert passed <= 0.02


def test_between_break_even_and_worthwhile_it_takes_many_drafts() -> None:
    test = ProbeTest()
    test.begin(OUTLOOK)
    samples = 0
    while test.verdict() is None:
        test.add(20, 7)
        samples += 20
    assert 150 <= samples <= 300
    assert test.verdict() is True


def test_runs_of_one_lucky_request_are_not_enough() -> None:
    test = ProbeTest()
    test.begin(OUTLOOK)
    for _ in range(8):
        test.add(1, 1)
    assert test.verdict() is None


def test_a_small_gain_is_found_over_many_probes() -> None:
    random = np.random.default_rng(2)
    test = ProbeTest()
    probes, answer = 0, None
    while not answer:
        probes += 1
        test.begin(OUTLOOK)
        while (answer := test.verdict()) is None:
            test.add(8, int(random.binomial(8, 0.3)))
    assert 1 < probes < 400


def test_beyond_certain_acceptance_only_step_times_are_measured() -> None:
    test = ProbeTest()
    test.begin(Prospect(gain=0.0, break_even=1.4, worthwhile=0.97))
    test.add(48, 48)
    assert test.verdict() is None
    test.add(16, 16)
    assert test.verdict() is False
