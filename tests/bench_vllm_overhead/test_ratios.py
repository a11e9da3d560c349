from __future__ import annotations

import json
import math
import random

import pytest

from benchmarks.vllm_overhead.ratios import (
    ADAPTER,
    CONFIDENCE,
    DECIDING,
    PLAIN,
    Block,
    as_json,
    median_interval,
    parts,
    ratios,
    shares,
    text,
)


def block(seconds: float, own: float) -> Block:
    return Block(seconds, 0.5 * seconds, own, 0.25 * own, {"plan": 0.75 * own, "read": 0.25 * own})


def cycles(count: int) -> list[dict[str, Block]]:
    """A machine that gets slower from cycle to cycle; ours takes 2, 3 and 5 % more."""
    made = []
    for number in range(count):
        base = 0.1 * 1.1**number
        made.append(
            {
                PLAIN: block(base, 0.0),
                ADAPTER: block(1.02 * base, 0.0102 * base),
                CONFIDENCE: block(1.03 * base, 0.0206 * base),
                DECIDING: block(1.05 * base, 0.0105 * base),
            }
        )
    return made


def test_interval_ends_are_the_order_statistics_of_the_binomial_law() -> None:
    # Conover, table of the median: for n = 10 the 2nd and 9th values cover 97.9 %, 95 % need them.
    found = median_interval([float(value) for value in range(1, 11)])
    assert (found.middle, found.low, found.high, found.count) == (5.5, 2.0, 9.0, 10)
    assert median_interval([float(value) for value in range(1, 7)]).low == 1.0


def test_too_few_values_have_no_interval() -> None:
    found = median_interval([1.0, 3.0, 2.0, 4.0, 5.0])
    assert found.middle == 3.0
    assert math.isnan(found.low)
    assert math.isnan(found.high)
    with pytest.raises(ValueError, match="no values"):
        median_interval([])


def test_the_interval_covers_the_median_as_often_as_it_says() -> None:
    drawn = random.Random(4)
    missed = 0
    for _ in range(2000):
        found = median_interval([drawn.expovariate(1.0) for _ in range(25)])
        missed += not found.low <= math.log(2) <= found.high
    assert 0.02 * 2000 < missed < 0.07 * 2000  # 4.3 % with 25 values


def test_ratios_are_paired_so_that_a_slower_machine_meets_both() -> None:
    found = ratios(cycles(12), ADAPTER, PLAIN, "seconds")
    assert found.low == pytest.approx(1.02)
    assert found.high == pytest.approx(1.02)
    assert ratios(cycles(12), CONFIDENCE, ADAPTER, "processor").middle == pytest.approx(1.03 / 1.02)


def test_shares_are_of_the_arms_own_step() -> None:
    assert shares(cycles(12), ADAPTER, "seconds").middle == pytest.approx(0.01)
    assert shares(cycles(12), CONFIDENCE, "processor").middle == pytest.approx(0.01)


def test_parts_are_shown_longest_first_and_missing_ones_count_as_nothing() -> None:
    made = cycles(3)
    made[0][ADAPTER].parts["seldom"] = 9.0
    assert list(parts(made, ADAPTER)) == ["plan", "read", "seldom"]
    assert parts(made, ADAPTER)["seldom"] == 0.0


def test_text_and_json_say_the_same() -> None:
    made = cycles(12)
    shown = text("B = 16", made)
    assert "1.000 % (1.000–1.000)" in shown
    assert "1.0200 (1.0200–1.0200)" in shown
    written = json.loads(json.dumps(as_json(made), allow_nan=False))
    assert written["step_ratio"][f"{ADAPTER}/{PLAIN}"]["seconds"] == [1.02, 1.02, 1.02]
    assert len(written["cycles"]) == 12


def test_without_an_interval_json_has_null() -> None:
    written = json.loads(json.dumps(as_json(cycles(3)), allow_nan=False))
    assert written["own_code_share"][ADAPTER]["seconds"] == [0.01, None, None]
