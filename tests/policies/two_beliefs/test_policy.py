"""`goodput2` in closed loops: near the best fixed K, within the contract, and restorable."""

import copy
import itertools
import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from adaptive_spec import Capability, Level, Mode, PolicyError, check_policy
from adaptive_spec.controller.plan_validation import plan_fault
from adaptive_spec.policies.two_beliefs.policy import Goodput2Options, Goodput2Policy
from adaptive_spec.policy import build_policy
from adaptive_spec.testing.fake_engine import FakeEngine
from adaptive_spec.testing.noninterference import check_noninterference
from tests import steps as made
from tests.policies.closed_loop import GPU, LAPTOP, alike, mixed, run
from tests.policies.finished_steps import finished
from tests.refused import refused

KMAX = 6


def goodput2(seed: int = 1, **options: Any) -> Goodput2Policy:
    return Goodput2Policy(Goodput2Options(**options), seed=seed)


class Recorded:
    """A policy, and what each of its steps would bring on average with hazards that are known."""

    def __init__(self, policy: Any, machine: Any, hazard: float, warmup: int) -> None:
        self.policy, self.observe, self.forget = policy, policy.observe, policy.forget
        self._machine, self._warmup, self._known = machine, warmup, set()
        # Expected tokens with 0, 1, ... drafts.
        self._tokens = np.cumsum(hazard ** np.arange(KMAX + 1))
        self.plans: list[Any] = []
        self.reached, self.fixed = np.zeros(2), np.zeros((KMAX + 1, 2))

    def plan(self, context: Any) -> Any:
        plan = self.policy.plan(context)
        self.plans.append(plan)
        if len(self.plans) > self._warmup:
            old = np.array([name in self._known for name in context.request_ids])
            self.reached += self._step(context, plan.verify, plan.draft_depth)
            for k in range(KMAX + 1):
                verify = np.where(old, np.minimum(context.draft_possible, k), 0)
                self.fixed[k] += self._step(context, verify, k)
        self._known = set(context.request_ids)
        return plan

    def _step(self, context: Any, verify: Any, depth: int) -> Any:
        batch, total = context.batch_size, int(context.context_tokens.sum())
        seconds = self._machine.seconds(batch + int(verify.sum()), batch, max(depth, 1), total)
        return np.array([self._tokens[verify].sum(), seconds])

    @property
    def ratio(self) -> float:
        """Expected tokens per second over those of the best fixed K."""
        tokens, seconds = self.fixed.T
        return float(self.reached[0] / self.reached[1] / (tokens / seconds).max())


def loop(hazard: Any, concurrency: int, machine: Any, steps: int = 400, **more: Any):
    kind = alike(hazard) if isinstance(hazard, float) else hazard
    return dict(
        concurrency=concurrency,
        machine=machine,
        steps=steps,
        hazards=lambda random: kind(random)[:KMAX],
    ) | more


@pytest.mark.parametrize(
    ("concurrency", "machine", "hazard"),
    [(1, GPU, 0.8), (16, LAPTOP, 0.6), (16, GPU, 0.7), (64, GPU, 0.5)],
    ids=["1", "16 laptop", "16", "64"],
)
def test_it_reaches_the_best_fixed_k(concurrency: int, machine: Any, hazard: float) -> None:
    """In expectation, so that luck plays no part; after 300 steps."""
    policy = Recorded(goodput2(), machine, hazard, warmup=300)
    run(policy, **loop(hazard, concurrency, machine, steps=600))
    print("RATIO", policy.ratio, (policy.fixed[:,0]/policy.fixed[:,1]).argmax(), np.mean([p.verify.mean() for p in policy.plans[300:]]))
    measured = [p.verify.max() for p in policy.plans if p.measures]
    print(len(measured), [n for n,p in enumerate(policy.plans) if p.measures], measured)
    assert policy.ratio >= 0.97
