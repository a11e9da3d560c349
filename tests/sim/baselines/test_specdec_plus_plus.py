"""SpecDec++'s stopping rule."""

from __future__ import annotations

import numpy as np

from .baseline_support import (
    KMAX,
    context,
    live_drafts,
    make,
)

SPECDEC = "specdec_plus_plus"


def kept(confidence: list[float], **options: float) -> int:
    signal = np.array([confidence])
    live, _ = live_drafts(make(SPECDEC, **options), signal, np.full_like(signal, np.nan))
    assert make(SPECDEC, **options).plan(context(confidence=signal)).verify.tolist() == live
    return live[0]


def test_drafting_ends_one_pass_after_a_rejection_became_likely() -> None:
    # 1 - .5 * .5 = .75 > .7 after two drafts; the third is made before that is known.
    assert kept([0.5, 0.5, 0.9, 0.9, 0.9]) == 3
    assert kept([0.6, 0.6, 0.9, 0.9, 0.9], h=0.7) == 5
    assert kept([0.6, 0.6, 0.8, 0.9, 0.9], h=0.7) == 4


def test_the_fewest_drafts_are_made_whatever_is_predicted() -> None:
    assert kept([0.01, 0.9, 0.9, 0.9, 0.9]) == 2
    assert kept([0.01, 0.9, 0.9, 0.9, 0.9], min_drafts=1) == 2  # one pass late
    assert kept([0.01, 0.9, 0.9, 0.9, 0.9], min_drafts=4) == 4


def test_a_lower_h_stops_earlier() -> None:
    confident = [0.9] * KMAX
    assert [kept(confident, h=h) for h in (0.05, 0.15, 0.9)] == [2, 3, 5]


def test_the_head_can_be_shifted() -> None:
    assert kept([0.9] * KMAX, intercept=-4.0) == 2


def test_without_confidence_the_engines_k_runs() -> None:
    assert make(SPECDEC).plan(context(2, engine_k=3)).verify.tolist() == [3, 3]
