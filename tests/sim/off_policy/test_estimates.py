"""Estimates from a trace, held against running the policies."""

import math
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from adaptive_spec.operation.trace import read_trace
from adaptive_spec.policy import build_policy
from adaptive_spec.sim.off_policy.evaluation import Evaluation, evaluate
from adaptive_spec.sim.off_policy.logged_steps import DrawKind
from adaptive_spec.sim.off_policy.step_model import StepModel
from adaptive_spec.sim.policy_choice import parse_policy
from adaptive_spec.step import Level
from tests.sim.off_policy.worlds import (
    HARDWARE,
    KMAX,
    Drawn,
    busier_server,
    mixed_server,
    prompted_server,
    record,
)

ENDLESS = 1_000_000
BY_TASK = ({2: 0.1, 4: 0.2, 6: 0.7}, {2: 0.7, 4: 0.2, 6: 0.1})
"""Where drafts are good, deep ones are likely: K depends on what decides its worth."""
BY_LOAD = ({1: 0.1, 3: 0.2, 5: 0.7}, {1: 0.7, 3: 0.2, 5: 0.1})
POLICIES = ["static:k=2", "static:k=4", "static:k=6"]


def evaluated(folder: Path, names: list[str], **options: object) -> Evaluation:
    return evaluate(folder, [parse_policy(name) for name in names], **options)


@cache
def when_run(name: str) -> float:
    """Tokens per second of a policy on the server of eight endless requests."""
    engine = mixed_server(parse_policy(name).build(0), 999, output=ENDLESS)
    return engine.run(max_tokens=40_000, warmup_steps=20).throughput_tok_s


def by_request(seed: int, folder: Path, steps: int) -> Evaluation:
    logger = Drawn(seed, *BY_TASK, by_request=True)
    record(mixed_server, logger, seed, folder, steps, output=ENDLESS)
    return evaluated(folder, POLICIES)


def on_recorded_steps(folder: Path, k: int, hazard: float = 0.8) -> float:
    """True tokens per second of a fixed K on the steps of a trace that count."""
    per_request = sum(hazard**j for j in range(k + 1))
    tokens = seconds = 0.0
    for number, step in enumerate(read_trace(folder)):
        if number < 50 or step["propensity"] is None:
            continue
        batch = step["batch_size"]
        tokens += batch * per_request
        seconds += HARDWARE.fixed + HARDWARE.token * (batch * (k + 1) + step["prefill_tokens"])
        seconds += 0.7e-3 * k
    return tokens / seconds


def test_estimates_agree_with_running_the_policy(tmp_path: Path) -> None:
    found = by_request(3, tmp_path, 800)
    assert found.draw is DrawKind.REQUEST
    for value in found.policies:
        truth = when_run(value.policy)
        assert not value.problem
        assert value.doubly_robust.low <= truth <= value.doubly_robust.high
        assert value.doubly_robust.value == pytest.approx(truth, rel=0.05)


def test_weights_make_up_for_a_wrong_acceptance_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StepModel, "survival", lambda _, slots: np.full((KMAX, len(slots)), 0.1))
    for value in by_request(3, tmp_path, 800).policies:
        truth = when_run(value.policy)
        assert value.doubly_robust.low <= truth <= value.doubly_robust.high
        assert value.doubly_robust.value == pytest.approx(truth, rel=0.08)


def test_intervals_cover_the_truth_about_as_often_as_they_say(tmp_path: Path) -> None:
    covered = total = 0
    widths = []
    for seed in range(8):
        for value in by_request(seed, tmp_path / str(seed), 400).policies:
            low, high = value.doubly_robust.low, value.doubly_robust.high
            covered += low <= when_run(value.policy) <= high
            widths.append((high - low) / value.doubly_robust.value)
            total += 1
    assert covered >= 0.85 * total
    assert sum(widths) / total < 0.15  # an interval that says nothing covers everything


@pytest.mark.long
def test_intervals_cover_the_truth_over_many_seeds(tmp_path: Path) -> None:
    """Prints the figures of docs/simulator.md."""
    inside: dict[str, list[bool]] = {}
    errors: dict[str, list[float]] = {}
    for seed in range(100):
        for value in by_request(seed, tmp_path / str(seed), 600).policies:
            truth = when_run(value.policy)
            found = value.doubly_robust
            inside.setdefault(value.policy, []).append(found.low <= truth <= found.high)
            errors.setdefault(value.policy, []).append(found.value / truth - 1.0)
    for policy, covered in inside.items():
        mean = sum(errors[policy]) / len(errors[policy])
        root = math.sqrt(sum(error**2 for error in errors[policy]) / len(errors[policy]))
        rate = sum(covered) / len(covered)
        print(f"{policy:12} bias {mean:+.3f} rms {root:.3f} covered {rate:.2f}")
        assert rate >= 0.90
        assert abs(mean) < 0.01


def test_a_k_drawn_for_the_batch_by_load_is_weighed_with_its_seconds(tmp_path: Path) -> None:
    logger = Drawn(5, *BY_LOAD, by_request=False)
    record(busier_server, logger, 5, tmp_path, 1200, busy_after=7.0)
    found = evaluated(tmp_path, ["static:k=1", "static:k=5"])
    assert found.draw is DrawKind.BATCH
    for value, k in zip(found.policies, (1, 5), strict=True):
        truth = on_recorded_steps(tmp_path, k)
        assert value.doubly_robust.value == pytest.approx(truth, rel=0.05)
        gain = truth / found.logged.value
        assert value.gain.low <= gain <= value.gain.high
        # What the policy and the record share, here two loads, cancels in the gain.
        assert (
            value.gain.high - value.gain.low
            < (value.doubly_robust.high - value.doubly_robust.low) / found.logged.value
        )


def test_a_policy_that_emits_faster_is_charged_for_the_prompts_that_follow(tmp_path: Path) -> None:
    evenly = {1: 0.5, 6: 0.5}
    logger = Drawn(4, evenly, evenly, by_request=False)
    record(prompted_server, logger, 4, tmp_path, 700)
    found = evaluated(tmp_path, ["static:k=1", "static:k=6"])
    assert found.draw is DrawKind.BATCH
    for value in found.policies:
        engine = prompted_server(parse_policy(value.policy).build(0), 5)
        truth = engine.run(max_tokens=10_000, warmup_steps=50).throughput_tok_s
        assert value.doubly_robust.value == pytest.approx(truth, rel=0.06)


def test_a_trace_of_static_with_draws_can_be_evaluated(tmp_path: Path) -> None:
    logger = build_policy("static", {"k": 2, "uniform_fraction": 0.5}, seed=2)
    record(busier_server, logger, 2, tmp_path, 700, busy_after=1e9)
    found = evaluated(tmp_path, ["static:k=3", "goodput"])
    assert found.draw is DrawKind.BATCH
    fixed, learned = found.policies
    truth = on_recorded_steps(tmp_path, 3)
    assert fixed.doubly_robust.value == pytest.approx(truth, rel=0.06)
    assert fixed.support.value == pytest.approx(1.0, abs=0.3)
    assert learned.doubly_robust is not None


def test_what_the_log_never_tried_is_said_to_have_no_support(tmp_path: Path) -> None:
    logger = Drawn(1, {2: 0.5, 3: 0.5}, {2: 0.5, 3: 0.5}, by_request=True)
    record(mixed_server, logger, 1, tmp_path, 300, output=ENDLESS)
    within, partly, beyond = evaluated(
        tmp_path, ["static:k=2", "static:k=6", "static:k=0"]
    ).policies
    assert not within.problem
    assert within.support.low <= 1.0 <= within.support.high
    for value in (partly, beyond):
        assert value.doubly_robust is None
        assert "no recorded decision" in value.problem


def test_deeper_drafts_than_were_made_are_reported(tmp_path: Path) -> None:
    logger = Drawn(1, {1: 0.5, 2: 0.5}, {1: 0.5, 2: 0.5}, by_request=False)
    record(busier_server, logger, 1, tmp_path, 300, busy_after=1e9, level=Level.FULL)
    [value] = evaluated(tmp_path, ["static:k=5"]).policies
    assert value.wants_deeper == 1.0
    assert value.problem


def test_the_same_trace_and_seed_give_the_same_estimates(tmp_path: Path) -> None:
    logger = Drawn(1, *BY_TASK, by_request=True)
    record(mixed_server, logger, 1, tmp_path, 200, output=60)
    names = ["static:k=4", "goodput"]
    assert evaluated(tmp_path, names, seed=3) == evaluated(tmp_path, names, seed=3)
