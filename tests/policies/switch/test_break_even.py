"""Break-even acceptance equals what a search over every number of drafts finds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_spec.policies.switch.break_even import prospect
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
