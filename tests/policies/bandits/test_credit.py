"""What a bandit learns from: every step that ran, and nothing of the drafts at hand."""

import msgspec
import numpy as np
import pytest

from adaptive_spec import Level
from adaptive_spec.controller.steps_in_flight import finished_step
from tests.policies.bandits.bandits import bandit
from tests.policies.finished_steps import BATCH, KMAX, context, finished, outcome


@pytest.mark.parametrize(("share", "pays"), [(1.0, True), (0.0, False)])
def test_a_bandit_learns_from_steps_that_ran_another_k(share: float, pays: bool) -> None:
    """As in shadow mode: the engine's own K = 3 runs, and all or none of its drafts pass."""
    policy = bandit("ucb", exploration=0.0)
    engines_own = np.full(BATCH, 3, dtype=np.int64)
    for step in range(40):
        now = context(step, KMAX, Level.VERIFY)
        plan = policy.plan(now)
        came = msgspec.structs.replace(
            outcome(plan, engines_own), accepted=(engines_own * share).astype(np.int64)
        )
        policy.observe(finished_step(now, plan, came))
    assert (plan.verify.min() >= 3) == pays


def test_the_confidence_of_a_draft_does_not_decide_about_it() -> None:
    def plans(surprise: float) -> list[list[int]]:
        policy = bandit("linucb")
        made = []
        for step in range(60):
            confidence = np.full((BATCH, KMAX), 0.7)
            if step == 59:
                confidence[:] = surprise
            known = context(
                step, KMAX, Level.VERIFY, confidence=confidence, entropy=1.0 - confidence
            )
            plan = policy.plan(known)
            policy.observe(finished(known, plan))
            made.append(plan.verify.tolist())
        return made

    assert plans(0.01) == plans(0.99)
