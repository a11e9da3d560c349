"""The demands are answered from the results, and missed where the results miss them."""

from __future__ import annotations

import msgspec
import pytest

from adaptive_spec.sim.results.segments import Recovery
from adaptive_spec.sim.sweep.config import Group
from benchmarks.leaderboard.checks import check
from benchmarks.leaderboard.document import replaced
from tests.sim.report.fake_results import results

LOADS = ("closed:1", "closed:64", "closed:256")
FIXED = dict.fromkeys(LOADS, (50.0, 80.0, 100.0))
BASELINE = "sglang_ema"


def swept(ours=(100.0, 100.0, 100.0), baseline=(90.0, 90.0, 90.0), steps=20, fixed=None):
    """A leaderboard of goodput and a baseline, score by load; steps until a fall was answered."""
    scores = {
        "goodput": {load: (speed,) for load, speed in zip(LOADS, ours, strict=True)},
        BASELINE: {load: (speed,) for load, speed in zip(LOADS, baseline, strict=True)},
    }
    names = ("mixed", "falls", "dies and revives", "gsm8k, AUC .85")
    found = results(scores, fixed or FIXED, acceptance=names)
    groups = {
        "core": Group(acceptance=("mixed",)),
        "acceptance sets": Group(acceptance=("mixed",)),
        "confidence, seeds": Group(acceptance=("gsm8k, AUC .85",)),
        "changes": Group(acceptance=("falls", "dies and revives")),
    }
    config = msgspec.structs.replace(found.config, groups=groups)
    return msgspec.structs.replace(
        found, config=config, rows=tuple(_recovering(row, steps) for row in found.rows)
    )


def _recovering(row, steps):
    seconds = None if steps is None else steps * 1.0
    recovery = Recovery(
        at=1.0, best_static_k=0, steps=steps, seconds=seconds, lost_seconds=1.0, of_best_static=1.0
    )
    regret = msgspec.structs.replace(row.result.regret, recoveries=[recovery])
    return msgspec.structs.replace(row, result=msgspec.structs.replace(row.result, regret=regret))


def verdict(found, words):
    (demand,) = [each for each in check(found) if words in each.wanted]
    return demand


@pytest.mark.parametrize(
    ("words", "good", "bad"),
    [
        ("mean >= 0.99", (100, 100, 100), (97, 97, 97)),
        ("worst cell", (100, 100, 98), (110, 110, 97)),
        (">= 1.01 at one client", (101.5, 90, 90), (100.5, 110, 110)),
        (">= 1.06 at 1 clients", (106.5, 0.1, 0.1), (105.5, 110, 110)),
        (">= 1.02 at 64 clients", (0.1, 102.5, 0.1), (110, 101.5, 110)),
        (">= 1.04 at 256 clients", (0.1, 0.1, 104.5), (110, 110, 103.5)),
        ("no speculation >= 0.995", (50, 50, 50), (49.5, 100, 100)),
        ("above every L0/L1 baseline", (91, 90, 90), (89, 90, 90)),
        ("more than 1 % below", (90, 89.2, 90), (110, 89, 110)),
    ],
)
def test_a_demand_is_met_or_missed_by_the_ratios(words, good, bad):
    assert verdict(swept(good), words).passed is True
    assert verdict(swept(bad), words).passed is False


def test_recovery_counts_steps_after_a_fall_and_seconds_after_a_revival():
    assert verdict(swept(steps=50), "falls from 0.8").passed is True
    assert verdict(swept(steps=51), "falls from 0.8").passed is False
    assert verdict(swept(steps=30), "revives").passed is True
    assert verdict(swept(steps=31), "revives").passed is False
    assert verdict(swept(steps=None), "falls from 0.8").passed is False


def test_writing_renews_the_section_and_nothing_else():
    page = "before\n<!-- leaderboard -->\nold\n<!-- /leaderboard -->\nafter\n"
    assert replaced(page, "new \\1\n") == page.replace("old", "new \\1")
    with pytest.raises(SystemExit, match="no single section"):
        replaced("no marks", "new")
