"""regression: plans by its model, follows requests, and never reads a bad file silently."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from adaptive_spec.errors import PolicyError
from adaptive_spec.policies.regression import (
    MOST,
    Head,
    History,
    load_model,
    logit_of,
    survival_of,
)
from adaptive_spec.policy import Policy, build_policy
from adaptive_spec.step import Capability, FinishedStep, Level, Mode, SpecPlan, StepContext
from benchmarks.changes import GPUS, profile_of
from benchmarks.policy_loop import run
from tests import steps
from tests.refused import refused

TIMES = {"tokens": [1, 1024], "seconds": [0.010, 1.2], "draft_pass": 1e-4}


def model(**changes: Any) -> dict[str, Any]:
    """Half of the drafts are accepted; confidence, if shown, is believed."""
    head = {"intercepts": [0.0], "history": 1.0}
    believing = {"intercepts": [0.0], "history": 0.0, "confidence": 1.0}
    fields = {"schema": 2, "average": [0.5], "history": head, "drafts": believing}
    return {**fields, "step_times": TIMES} | changes


def regression(folder: Path, content: Any = None, **options: Any) -> Policy:
    path = folder / "model.json"
    path.write_text(json.dumps(model() if content is None else content))
    return build_policy("regression", {"model": str(path), **options})


def context(
    batch: int = 4, step: int = 0, level: Level = Level.FULL, **changes: Any
) -> StepContext:
    capability = Capability(level=level, max_draft_tokens=4)
    return steps.context(batch, **({"capability": capability, "step": step} | changes))


def observe(policy: Policy, accepted: list[int], step: int) -> SpecPlan:
    """All drafts are verified, and so many accepted."""
    now = context(len(accepted), step)
    plan = policy.plan(now)
    verified = np.full(len(accepted), 4, dtype=np.int64)
    seconds = 0.010 + 0.00116 * 5 * len(accepted)
    came = steps.outcome(now, verified, np.array(accepted), draft_depth=4, seconds=seconds)
    policy.observe(FinishedStep(now, plan, came))
    return plan


# ------------------------------------------------------------------------ hazards


def test_logits_are_the_formula_and_deeper_positions_count_as_the_last() -> None:
    head = Head(intercepts=[0.1, -0.4], history=0.7, confidence=1.2)
    x, y = np.array([0.2, -1.0]), np.array([[0.5, 0.0], [0.5, 1.0], [0.5, -2.0]])
    found = head.logits(np.arange(3)[:, None], x, y)
    for j in range(3):
        for i in range(2):
            b = head.intercepts[min(j, 1)]
            assert found[j, i] == pytest.approx(b + 0.7 * x[i] + 1.2 * y[j, i])
    survival = survival_of(found)
    assert (np.diff(survival, axis=0) <= 0.0).all()
    assert survival[0] == pytest.approx(1.0 / (1.0 + np.exp(-found[0])))


def test_confidence_is_bounded_and_stays_unknown() -> None:
    found = logit_of(np.array([0.0, 0.5, 1.0, np.nan]))
    assert found[:3] == pytest.approx([-9.21, 0.0, 9.21], abs=0.01)
    assert np.isnan(found[3])


@pytest.mark.parametrize("k", [1, 2, 4])
def test_history_of_an_average_request_is_near_zero_whatever_its_k(k: int) -> None:
    random, average = np.random.default_rng(k), [0.4, 0.5, 0.7, 0.8]
    past, slots = History(average), np.arange(400, dtype=np.int64)
    for _ in range(40):
        hits = (random.random((400, 4)) < average).cumprod(axis=1).sum(axis=1)
        past.learn(slots, np.full(400, k), np.minimum(hits, k))
    assert abs(float(past.x(slots).mean())) < 0.04


def test_history_tells_requests_apart_and_fades_without_drafts() -> None:
    past, slots = History([0.5]), np.array([0, 200], dtype=np.int64)
    none = np.zeros(2, dtype=np.int64)
    for _ in range(20):
        past.learn(slots, np.array([2, 2]), np.array([2, 0]))
    good, bad = past.x(slots)
    assert MOST >= good > 1.0
    assert bad < -1.0
    for _ in range(300):  # one that waits for its first drafts again is not given up
        past.learn(slots, none, none)
    assert np.abs(past.x(slots)).max() < 0.1
    past.sums.reset(slots)
    assert not past.x(slots).any()


# -------------------------------------------------------------------------- plans


def test_requests_that_do_well_get_more_drafts_until_they_end(tmp_path: Path) -> None:
    policy = regression(tmp_path)
    first = observe(policy, [4, 4, 0, 0], 0)
    assert len(set(first.verify.tolist())) == 1
    for step in range(1, 15):
        observe(policy, [4, 4, 0, 0], step)
    verify = policy.plan(context(step=15)).verify
    assert verify[:2].min() > verify[2:].max()
    policy.forget(np.arange(4))
    assert len(set(policy.plan(context(step=16)).verify.tolist())) == 1


def test_confident_drafts_are_verified_and_doubtful_ones_are_not(tmp_path: Path) -> None:
    shown = np.full((4, 4), 0.97)
    shown[2:] = 0.03
    shown[0, 1] = np.nan  # as if it were not shown: history speaks
    plan = regression(tmp_path).plan(context(confidence=shown))
    assert plan.reason == "admitted by confidence"
    assert plan.verify[1] == 4
    assert not plan.verify[2:].any()
    blind = regression(tmp_path, confidence=False).plan(context(confidence=shown))
    assert len(set(blind.verify.tolist())) == 1
    one_k = regression(tmp_path).plan(context(level=Level.UNIFORM, confidence=shown))
    assert len(set(one_k.verify.tolist())) == 1


def test_where_no_draft_pays_the_drafter_stays_warm(tmp_path: Path) -> None:
    hopeless = {"intercepts": [-4.0], "history": 0.0}
    policy = regression(tmp_path, model(history=hopeless))
    plan = policy.plan(context())
    assert (plan.mode, plan.draft_depth, plan.verify.any()) == (Mode.OFF_WARM, 0, False)
    prompts = policy.plan(context(0, 1))
    assert (prompts.mode, prompts.draft_depth) == (Mode.ON, 0)


@pytest.mark.slow
def test_with_a_model_of_its_traffic_it_comes_near_the_best_fixed_k(tmp_path: Path) -> None:
    world = GPUS["H100, 8B"]
    head = {"intercepts": [float(np.log(world.hazard / (1.0 - world.hazard)))], "history": 0.1}
    times = msgspec.to_builtins(profile_of(world))
    policy = regression(tmp_path, model(average=[world.hazard], history=head, step_times=times))
    assert run(policy, lambda _: world, lambda _: 16, 600, 0).score(200, 600) >= 0.97


@pytest.mark.slow
def test_scikit_learn_is_never_imported_where_the_policy_runs() -> None:
    program = (
        "import sys\n"
        "from adaptive_spec import build_policy, check_policy, Level\n"
        "check_policy(lambda s: build_policy('regression', seed=s), levels=[Level.UNIFORM])\n"
        "found = {name.partition('.')[0] for name in sys.modules}\n"
        "assert not found & {'sklearn', 'joblib', 'torch'}, found\n"
        # numba loads scipy.linalg for its own BLAS where scipy is installed.
        "assert not {'scipy.optimize', 'scipy.stats'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


# --------------------------------------------------------------------- model file


def test_without_a_model_the_shipped_one_is_used_and_that_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level("INFO"):
        build_policy("regression")
    assert "adaptive-spec fit" in caplog.text


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "truncated"),
        ("[1, 2]", "object"),
        (json.dumps(model(schema=1)), r"\$.schema"),  # of a version before
        (json.dumps(model(average=[0.5, 1.5])), "average"),
        (json.dumps(model(average=[])), "average"),
        (json.dumps(model(history={"intercepts": [0.0]})), "history"),
        (json.dumps(model(history={"intercepts": [1e300], "history": 0.0})), "intercepts"),
        (json.dumps(model(drafts={"intercepts": [0.0], "history": 99.0})), "drafts"),
        (json.dumps(model(tasks={"code": 1.0})), "tasks"),
        (json.dumps(model(step_times=TIMES | {"seconds": [0.0, 1.0]})), "seconds"),
        (json.dumps(model()).replace("0.5", "NaN"), "malformed"),
    ],
)
def test_a_bad_model_is_one_clear_line(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "model.json"
    path.write_text(content)
    with refused(PolicyError, str(path), "adaptive-spec fit", match=says):
        load_model(path)


def test_a_missing_model_and_an_option_of_old_are_one_clear_line(tmp_path: Path) -> None:
    with refused(PolicyError, "nowhere.json", "adaptive-spec fit", match="No such file"):
        build_policy("regression", {"model": str(tmp_path / "nowhere.json")})
    with refused(PolicyError, match="tasks"):
        build_policy("regression", {"tasks": ["code"]})
    with pytest.raises(PolicyError):
        build_policy("regression").restore({"schema": 1, "corrections": {}})
