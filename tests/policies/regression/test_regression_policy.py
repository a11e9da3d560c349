"""regression: keeps the contract, ranks by confidence without a bias, and comes near the best K."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_spec.errors import PolicyError
from adaptive_spec.policy import build_policy
from adaptive_spec.step import FinishedStep, SpecPlan
from tests.policies.closed_loop import GPU, LAPTOP, alike, run
from tests.policies.no_exploration import without_exploration
from tests.policies.regression.fake_models import context, known_model, outcome, regression, written

# --------------------------------------------------------------------- contract


@pytest.mark.slow
def test_scikit_learn_is_never_imported_where_the_policy_runs() -> None:
    program = (
        "import sys\n"
        "from adaptive_spec import build_policy, check_policy, Level\n"
        "check_policy(lambda s: build_policy('regression', seed=s), levels=[Level.UNIFORM])\n"
        "found = {name.partition('.')[0] for name in sys.modules}\n"
        "assert 'adaptive_spec' in found\n"
        "assert not found & {'sklearn', 'scipy', 'joblib', 'torch'}, found\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


# ------------------------------------------------------------------ live ranking


def test_confident_drafts_are_verified_and_doubtful_ones_are_not(tmp_path: Path) -> None:
    policy = regression(model=written(known_model(), tmp_path))
    shown = np.full((8, 4), 0.97)
    shown[4:] = 0.03
    with without_exploration():
        plan = after_some_steps(policy, 8, np.array([1, 2, 0, 1] * 2), shown)
    assert plan.reason == "ranked by confidence"
    assert plan.verify[:4].min() > plan.verify[4:].max()


def after_some_steps(policy: Any, batch: int, most: Any, shown: Any) -> SpecPlan:
    """The plan of a step whose drafts show this, after a few of every K."""
    for step in range(8):
        now = context(batch, 4, step)
        plan = policy.plan(now)
        accepted = np.minimum(np.full(batch, step % 5), most)
        came = outcome(now, np.full(batch, step % 5), accepted)
        policy.observe(FinishedStep(now, plan, came))
    return cast(SpecPlan, policy.plan(context(batch, 4, 20, confidence=shown)))


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), request_=st.integers(0, 5), position=st.integers(0, 3))
def test_verifying_a_draft_does_not_depend_on_what_follows_it(
    seed: int, request_: int, position: int
) -> None:
    """Confidences deeper than a position depend on its token; they must not decide on it."""
    random = np.random.default_rng(seed)
    shown = random.uniform(0.02, 0.98, (6, 4))
    changed = shown.copy()
    changed[request_, position + 1 :] = random.uniform(0.02, 0.98, 3 - position)
    admitted, depths = [], []
    for signal in (shown, changed):
        with without_exploration():
            plan = after_some_steps(regression(), 6, np.full(6, 3), signal)
        admitted.append(plan.verify > position)
        depths.append(plan.draft_depth)
    assert depths[0] == depths[1]
    assert admitted[0][request_] == admitted[1][request_]


# ------------------------------------------------------------------- closed loop


@pytest.mark.slow
@pytest.mark.parametrize(
    ("machine", "concurrency", "hazard"), [(LAPTOP, 4, 0.5), (GPU, 16, 0.8), (LAPTOP, 16, 0.1)]
)
def test_with_the_shipped_model_it_comes_near_the_best_fixed_k(
    machine: Any, concurrency: int, hazard: float
) -> None:
    setting: dict[str, Any] = {
        "concurrency": concurrency,
        "hazards": lambda r: alike(hazard)(r)[:6],
        "machine": machine,
        "steps": 400,
    }
    fixed = [build_policy("static", {"k": k}) for k in range(7)]
    best = max(run(policy, **setting).tokens_per_second for policy in fixed)
    reached = run(regression(), warmup=400, **setting)
    assert reached.tokens_per_second >= 0.95 * best


# ------------------------------------------------------------------------- state


def test_state_is_taken_up_again_and_a_wrong_one_is_refused(tmp_path: Path) -> None:
    setting: dict[str, Any] = {"concurrency": 4, "machine": LAPTOP, "steps": 200}
    policy = regression()
    run(policy, hazards=lambda r: alike(0.8)(r)[:6], **setting)
    state = json.loads(json.dumps(policy.state(), allow_nan=False))
    fresh = regression()
    fresh.restore(state)
    assert fresh.state() == state
    for change in (
        {"schema": 9},
        {"corrections": None},
        {"corrections": {"history": {}, "drafts": {}}},
        {"profile": {"tokens": []}},
    ):
        with pytest.raises(PolicyError):
            plan_after(state | change, kmax=6)
    with pytest.raises(PolicyError):
        plan_after(state, kmax=5)


def plan_after(state: dict[str, Any], kmax: int) -> None:
    policy = regression()
    policy.restore(state)
    policy.plan(context(3, kmax, 0))
