"""A policy that decides at random, and now and then wrongly."""

import random

import msgspec
import numpy as np

from adaptive_spec.policy_helpers import StatelessPolicy
from adaptive_spec.step import Mode, SpecPlan


class RandomOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    faults: float = 0.0
    """Share of steps in which it raises or plans nonsense."""


class RandomPolicy(StatelessPolicy):
    name = "random"
    summary = "for tests"
    Options = RandomOptions

    def __init__(self, options, *, seed=0):
        self._random = random.Random(seed)
        self._faults = options.faults

    def plan(self, context):
        values = context.capability.uniform_values
        k = self._random.choice(values)
        if self._random.random() < self._faults:
            if self._random.random() < 0.5:
                raise RuntimeError("planned fault")
            k = context.capability.max_draft_tokens + 3
        return SpecPlan(
            step=context.step,
            verify=np.minimum(k, context.draft_available)
            if k <= max(values)
            else np.full(context.batch_size, k),
            draft_depth=self._random.randint(0, context.capability.max_draft_tokens),
            mode=Mode.ON,
            reason="random",
        )
