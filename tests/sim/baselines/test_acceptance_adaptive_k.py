"""AcceptanceAdaptiveK: thresholds, hysteresis, warm-up, probes and the cap of a table."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_spec import Level
from adaptive_spec.sim.baselines.engines.acceptance_adaptive_k import (
    AcceptanceAdaptiveKOptions,
    PositionRates,
)
from tests.sim.baselines.baseline_support import build_baseline
from tests.sim.baselines.tiny_engine import TinyEngine

NAME = "acceptance_adaptive_k"


def adaptive(**options: Any) -> Any:
    return build_baseline(NAME, options)


def rates(positions: int, **options: Any) -> PositionRates:
    return PositionRates(positions, AcceptanceAdaptiveKOptions(**options))


def feed(found: PositionRates, accepted: list[int], k: int) -> None:
    for count in accepted:
        found.record(np.array([k]), np.array([count]))


def test_the_leading_positions_above_the_threshold_are_drafted() -> None:
    found = rates(5, threshold=0.4, window=100)
    feed(found, [5] * 20 + [4] * 5 + [3] * 10 + [2] * 10 + [1] * 25 + [0] * 30, 5)
    assert found.rates == pytest.approx([0.7, 0.45, 0.35, 0.25, 0.2])
    assert found.leading() == 2


def test_positions_never_drafted_stay_enabled() -> None:
    found = rates(5, threshold=0.4, window=4)
    feed(found, [2] * 4, 2)
    assert found.leading() == 5


def test_a_disabled_position_needs_the_hysteresis_to_come_back() -> None:
    found = rates(2, threshold=0.5, window=20, hysteresis=0.1)
    feed(found, [2, 1] * 10, 2)
    assert (found.rates[1], found.leading()) == (pytest.approx(0.5), 2)
    feed(found, [1], 2)
    assert found.leading() == 1
    while found.rates[1] < 0.55:
        feed(found, [2], 2)
    assert found.leading() == 1
    while found.rates[1] < 0.6:
        feed(found, [2], 2)
    assert found.leading() == 2


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=60),
    st.integers(1, 30),
)
def test_a_batch_counts_like_its_requests_one_after_another(
    requests: list[tuple[int, int]], window: int
) -> None:
    verified = np.array([k for k, _ in requests])
    accepted = np.minimum(np.array([a for _, a in requests]), verified)
    at_once, one_by_one = rates(4, window=window), rates(4, window=window)
    at_once.record(verified, accepted)
    mean = [0.0] * 4
    seen = [0] * 4
    for k, a in zip(verified.tolist(), accepted.tolist(), strict=True):
        one_by_one.record(np.array([k]), np.array([a]))
        for position in range(k):
            step = 1 / (seen[position] + 1) if seen[position] < window else 1 / window
            mean[position] += step * (float(a > position) - mean[position])
            seen[position] += 1
    assert at_once.rates == pytest.approx(mean)
    assert one_by_one.rates == pytest.approx(mean)
    assert at_once.counts == one_by_one.counts == seen
    assert at_once.drafts == int((verified > 0).sum())


def test_kmax_runs_until_the_window_has_been_seen() -> None:
    engine = TinyEngine(adaptive(window=10, probe_interval=0), accepts=0, batch=1)
    # Step 0 has no drafts; the tenth is verified in step 10.
    assert engine.run(11) == [5] * 11
    assert engine.step().draft_depth == 0


def test_min_k_is_a_floor() -> None:
    engine = TinyEngine(adaptive(window=4, probe_interval=0, min_k=1), accepts=0, batch=1)
    engine.run(10)
    assert set(engine.run(20)) == {1}


def test_every_so_many_steps_a_probe_drafts_and_verifies_kmax() -> None:
    engine = TinyEngine(adaptive(window=8, probe_interval=16), accepts=0, batch=8)
    engine.run(32)
    assert engine.run(32) == [*[0] * 15, 5] * 2
    assert engine.verified(32) == [5, *[0] * 15] * 2


def test_only_probes_bring_a_revived_drafter_back() -> None:
    for probe_interval, k in ((8, 5), (0, 0)):
        options = {"window": 8, "probe_interval": probe_interval}
        engine = TinyEngine(adaptive(**options), accepts=0, batch=8)
        engine.run(50)
        engine.accepts = 5
        engine.run(200)
        assert engine.run(4) == [k] * 4


def test_a_table_caps_k_even_in_a_probe() -> None:
    policy = adaptive(window=4, probe_interval=4, table=[[1, 4, 3], [5, 8, 0]])
    engine = TinyEngine(policy, accepts=5)
    assert set(engine.run(30)) == {3}
    engine.batch = 8
    assert set(engine.run(30)) == {0}


def test_where_depth_is_fixed_a_probe_verifies_kmax() -> None:
    policy = adaptive(window=8, probe_interval=16)
    engine = TinyEngine(policy, accepts=0, batch=8, level=Level.VERIFY)
    engine.run(32)
    # Off drafts nothing, so what the probe drafts is verified in the step after it.
    assert engine.verified(32) == [5, *[0] * 15] * 2
