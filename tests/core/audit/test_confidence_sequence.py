"""The interval holds at all times at once, also with weights and skewed observations."""

import math

import numpy as np
import pytest

from adaptive_spec.audit.confidence_sequence import LEAST, Sequence

DRAWS = {
    "normal": lambda random: random.normal(0.02, 0.03),
    "skewed": lambda random: random.exponential(0.05) - 0.03,
    "two loads": lambda random: random.normal(*((0.1, 0.07), (0.0, 0.02))[random.integers(2)]),
}
MEAN = {"normal": 0.02, "skewed": 0.02, "two loads": 0.05}


@pytest.mark.parametrize("drawn", DRAWS)
def test_the_mean_is_missed_at_any_time_at_most_as_often_as_stated(drawn: str) -> None:
    random = np.random.default_rng(3)
    missed = naive = 0
    for _ in range(300):
        sequence, out, out_naive = Sequence(), False, False
        for _ in range(150):
            sequence.add(DRAWS[drawn](random), random.uniform(0.5, 2.0))
            interval = sequence.interval(0.05)
            if interval is None:
                continue
            out |= not interval.low <= MEAN[drawn] <= interval.high
            _, w, w2, _, w2x, w2xx = sequence.sums
            spread = w2xx - 2.0 * interval.mean * w2x + interval.mean**2 * w2
            out_naive |= abs(interval.mean - MEAN[drawn]) > 1.96 * math.sqrt(spread) / w
        missed, naive = missed + out, naive + out_naive
    assert missed <= 0.05 * 300
    assert naive > 0.2 * 300  # which an ordinary interval does not hold


def test_the_interval_narrows_with_the_root_of_the_number() -> None:
    random = np.random.default_rng(0)
    sequence, widths = Sequence(), {}
    for number in range(1, 1601):
        sequence.add(random.normal(0.0, 0.03), 1.0)
        if number in (LEAST - 1, LEAST, 100, 400, 1600):
            found = sequence.interval(0.05)
            widths[number] = found and (found.high - found.low) / 2.0
    assert widths[LEAST - 1] is None
    assert widths[100] == pytest.approx(3.0 * 0.03 / 10.0, rel=0.25)
    assert widths[400] / widths[1600] == pytest.approx(2.0, rel=0.15)


def test_sequences_of_several_servers_add_up() -> None:
    random = np.random.default_rng(1)
    parts, whole = [Sequence(), Sequence()], Sequence()
    for number in range(40):
        value, weight = random.normal(), random.uniform(0.5, 2.0)
        for each in (parts[number % 2], whole):
            each.add(value, weight)
    both = Sequence(parts[0].sums)
    both.add_all(parts[1])
    assert both.count == 40
    assert both.interval(0.05) == pytest.approx(whole.interval(0.05))
