"""goodput against true no speculation: a dead drafter costs next to nothing, and may come back."""

from __future__ import annotations

import numpy as np
import pytest

from adaptive_spec.policy import build_policy
from adaptive_spec.sim.acceptance.data import AcceptanceData
from tests.sim.small_server import PlainDrafter, closed_load, independent, server


def run(policy: str, concurrency: int, hazard: float, *, state: bool) -> float:
    """Tokens per second after 1,000 steps."""
    engine = server(
        closed_load(concurrency, output=150),
        policy,
        data=independent(hazard, 20_000),
        drafter=PlainDrafter(off_pass=state, stale=state),
    )
    result = engine.run(max_tokens=2500 * concurrency, warmup_steps=1000)
    assert result.fail_opens == 0
    return result.throughput_tok_s


@pytest.mark.parametrize("state", [True, False], ids=["with a state", "without"])
@pytest.mark.parametrize("concurrency", [1, 4, 32])
def test_a_dead_drafter_costs_at_most_half_a_per_cent(concurrency: int, state: bool) -> None:
    off = run("off", concurrency, 0.05, state=state)
    assert run("goodput", concurrency, 0.05, state=state) >= 0.995 * off


@pytest.mark.parametrize("concurrency", [1, 16])
def test_a_drafter_that_revives_is_used_again_within_30_seconds(concurrency: int) -> None:
    policy = build_policy("goodput", {}, seed=1)
    engine = server(closed_load(concurrency, output=150), policy, data=independent(0.03, 20_000))
    dead = engine.run(max_seconds=30.0)
    assert dead.mode_fraction["off_cold"] > 0.5
    engine.accepted._accepted = independent(0.8, 20_000).accepted.astype(np.int64)
    engine.run(max_seconds=60.0)
    revived = engine.run(max_seconds=65.0)
    assert revived.mode_fraction["on"] > 0.9
    assert revived.mean_k > 1.0


def copied_text(positions: int, passage: int = 150) -> AcceptanceData:
    """Passages of which few are copied, from their first word to their last."""
    random = np.random.default_rng(4)
    copied = np.repeat(random.random(positions // passage) < 0.12, passage)
    accepted = np.where(copied, 8, random.random(positions) < 0.02).astype(np.uint8)
    return AcceptanceData(
        name="copied text",
        source="drawn for a test",
        accepted=accepted,
        offsets=np.array([0, positions]),
        prompt_tokens=np.array([10]),
        labels=("",),
        depth=8,
    )


def test_bursts_of_long_matches_are_not_missed() -> None:
    speed = {}
    for policy in ("goodput", "static:k=6"):
        name, _, k = policy.partition(":k=")
        engine = server(
            closed_load(1, output=450),
            build_policy(name, {"k": int(k)} if k else {}, seed=2),
            data=copied_text(30_000),
            drafter=PlainDrafter(pass_=2e-5, off_pass=False, stale=False),
        )
        speed[name] = engine.run(max_tokens=4_000).throughput_tok_s
    assert speed["goodput"] >= 0.98 * speed["static"]
