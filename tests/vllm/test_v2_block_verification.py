"""`rejection_sample_method: block` on model runner V2: vLLM's kernels interpreted, K varied."""

from collections import Counter

import numpy as np
import pytest
from engines import RANDOM, check_same
from v2_block import CALL, DEPTH, draw_rounds
from v2_engines import SMALL, V2Engines, small_crowd

from tests.chi_square import p_value
from tests.losslessness.exact.models import random_model
from tests.losslessness.exact.request import Emitted, Request, Rules

pytestmark = pytest.mark.engine

MODEL = 3
FALSE_ALARM = 1e-6
FROM_THE_LAW = 1_000_000
"""Draws to compare with: so many that their own chance does not count."""


def law(k: int) -> dict[Emitted, float]:
    """Of a round with k drafts, whatever is drafted."""
    request = Request(random_model(np.random.default_rng(MODEL)), Rules(depth=DEPTH, blocks=True))
    found: dict[Emitted, float] = {}
    for drafts, chance in request.drafts(()):
        for emitted, share in request.emitted((), drafts, k).items():
            found[emitted] = found.get(emitted, 0.0) + chance * share
    return found


def check_rounds(v2: V2Engines, calls: int) -> None:
    counts = v2.call(draw_rounds, calls, MODEL)
    accepted = {}
    for k, seen in counts.items():
        wanted = law(k)
        assert set(seen) <= set(wanted)
        shares = np.array(list(wanted.values()))
        drawn = np.random.default_rng(0).multinomial(FROM_THE_LAW, shares / shares.sum())
        expected = Counter(dict(zip(wanted, drawn.tolist(), strict=True)))
        assert p_value([(seen, expected)]) > FALSE_ALARM
        of = np.array([each[1] for each in seen.elements()])
        accepted[k] = [float((of >= j).mean()) for j in range(1, k + 1)]
    # What is learned at one K holds at another.
    spread = 4.0 * np.sqrt(0.5 / min(seen.total() for seen in counts.values()))
    for k in range(1, DEPTH):
        assert accepted[k] == pytest.approx(accepted[DEPTH][:k], abs=spread)


@pytest.mark.long
@pytest.mark.statistics
@pytest.mark.timeout(0)
def test_rounds_have_the_law_of_the_enumeration(v2: V2Engines) -> None:
    check_rounds(v2, 100_000 // CALL)


@pytest.mark.long  # greedy requests are verified as ever
def test_tokens_are_those_without_speculation(v2: V2Engines) -> None:
    observed = v2.run(
        small_crowd(),
        "eagle",
        adaptive=RANDOM,
        asynchronous=True,
        speculation={"rejection_sample_method": "block"},
        **SMALL,
    )
    plain = v2.run(small_crowd(), **SMALL)
    assert observed.capability == ("FULL", True, "")
    check_same(observed.answers, plain.answers)
    assert observed.failures == {}
    assert set(observed.verified) >= {0, 1, 2, 3}, "K did not vary"
