"""The simulator comparison reads SGLang's class from its source and runs it as a policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from adaptive_spec.controller.steps_in_flight import finished_step
from adaptive_spec.errors import DataError
from adaptive_spec.policy import Policy, build_policy
from adaptive_spec.step import (
    Capability,
    FinishedStep,
    Level,
    Mode,
    SpecPlan,
    StepContext,
    StepOutcome,
)
from benchmarks.sglang_arms import FILE, LADDER, Restricted, SGLangSchedule, sglang_classes

SOURCE = """
from __future__ import annotations
import logging
from sglang.srt.utils import log_info_on_rank0
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

DEFAULT_ADAPTIVE_CONFIG = {"1": {"candidate_steps": [0, 1]}}


class AdaptiveSpeculativeParams:
    def __init__(self, initial_steps, cfg_path=None):
        self.k, self.fed = initial_steps, []
        log_info_on_rank0(logging.getLogger(__name__), "hello")

    def get_steps_for_batch(self, batch_size):
        return self.k

    def on_verify_complete(self, correct, batch_size):
        self.fed.append((correct, batch_size))
        self.k = 0
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    file = tmp_path / FILE
    file.parent.mkdir(parents=True)
    file.write_text(SOURCE)
    return tmp_path


def context(step: int, available: int) -> StepContext:
    capability = Capability(level=Level.UNIFORM, max_draft_tokens=LADDER[-1], ladder=LADDER)
    return StepContext(
        step=step,
        capability=capability,
        request_ids=["a", "b"],
        slots=np.arange(2),
        context_tokens=np.full(2, 100),
        draft_available=np.full(2, available),
        draft_possible=np.full(2, 7),
        engine_k=3,
        tpot_target=np.full(2, np.inf),
        task=np.full(2, -1),
        temperature=np.zeros(2),
        now=0.01 * step,
    )


def finished(
    asked: StepContext, plan: SpecPlan, seconds: float = 0.01, *, accepts: bool = False
) -> FinishedStep:
    k = int(plan.verify.max())
    outcome = StepOutcome(
        step=asked.step,
        slots=np.arange(2),
        verified=np.full(2, k),
        accepted=np.full(2, k * accepts),
        emitted=np.full(2, 1 + k * accepts),
        batch_size=2,
        batch_tokens=2 * (k + 1),
        context_tokens=200,
        prefill_tokens=0,
        draft_depth=k,
        ragged=False,
        seconds=seconds,
        now=asked.now,
    )
    return finished_step(asked, plan, outcome)


def test_sglangs_class_runs_without_the_rest_of_sglang(tree: Path) -> None:
    params: Any = sglang_classes(tree)["AdaptiveSpeculativeParams"](initial_steps=3)
    policy = SGLangSchedule(params)
    asked = context(0, available=1)
    plan = policy.plan(asked)
    assert (plan.verify.tolist(), plan.draft_depth) == ([1, 1], 3)
    policy.observe(finished(asked, plan))
    assert params.fed == [([0, 0], 2)]
    assert policy.plan(context(1, available=3)).draft_depth == 0


def test_a_missing_source_is_one_line_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="--sglang FOLDER") as caught:
        sglang_classes(tmp_path)
    assert "\n" not in str(caught.value)


def test_ours_keeps_to_the_candidates_of_the_batch_size() -> None:
    policy = Restricted(lambda batch_size: (0, 1), 1, seed=0)
    ran = []
    for step in range(40):
        asked = context(step, available=7)
        plan = policy.plan(asked)
        ran.append(int(plan.verify.max()))
        assert plan.draft_depth in (0, 1)
        policy.observe(finished(asked, plan))
    assert set(ran) <= {0, 1}
    assert len(set(ran)) == 2


def test_ours_never_goes_off_without_the_drafter_pass() -> None:
    def run(policy: Policy) -> tuple[set[Mode], float]:
        modes, verified = set(), []
        for step in range(1000):
            here = context(step, available=7)
            capability = msgspec.structs.replace(here.capability, off_pass=True, cold_off=True)
            asked = msgspec.structs.replace(here, capability=capability)
            plan = policy.plan(asked)
            modes.add(plan.mode)
            k = int(plan.verify.max())
            verified.append(k)
            # The drafter is good at first, then of no use.
            policy.observe(finished(asked, plan, 0.01 + 0.005 * k, accepts=step < 60))
        return modes, float(np.mean(verified[200:]))

    modes, verified = run(Restricted(lambda batch_size: LADDER, 1, seed=0))
    assert Mode.OFF_COLD not in modes
    assert verified < 0.02
    modes, _ = run(build_policy("goodput", {}, seed=0))
    assert Mode.OFF_COLD in modes, "what is left out has no effect here"
