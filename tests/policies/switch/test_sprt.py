"""A probe's test is quick where the answer is clear, and patient near break-even."""

import numpy as np

from adaptive_spec.policies.switch.break_even import Prospect
from adaptive_spec.policies.switch.probes import ProbeTest

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
