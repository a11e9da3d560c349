from __future__ import annotations

import importlib
from itertools import pairwise
from typing import Any

import pytest

from adaptive_spec import Capability, Level, SpecPlan, check_policy
from benchmarks.gpu.steered import NAME, SteeredOptions, SteeredPolicy


def made(options: SteeredOptions) -> Any:
    return lambda seed: SteeredPolicy(options, seed=seed)


@pytest.mark.parametrize(
    "options",
    [
        SteeredOptions(),
        SteeredOptions(k=2),
        SteeredOptions(k=1, depth=3),
        SteeredOptions(k=2, ragged=True),
        SteeredOptions(k=0, ragged=True),
    ],
)
def test_the_contract_is_kept(options: SteeredOptions) -> None:
    check_policy(made(options), levels=[Level.FULL, Level.VERIFY])


def test_a_drawn_k_is_of_the_ladder() -> None:
    check_policy(made(SteeredOptions()), levels=[Level.UNIFORM])


def plans(options: SteeredOptions, batch: int, level: Level, steps: int = 60) -> list[SpecPlan]:
    import numpy as np

    class Context:
        capability = Capability(level=level, max_draft_tokens=5, ladder=(0, 1, 2, 3, 5))
        batch_size = batch
        draft_available = np.full(batch, 5)

    policy = SteeredPolicy(options, seed=1)
    found = []
    for step in range(steps):
        context: Any = Context()
        context.step = step
        found.append(policy.plan(context))
    return found


def test_every_rung_is_drawn_and_changes_from_step_to_step() -> None:
    drawn = [int(plan.verify[0]) for plan in plans(SteeredOptions(), 3, Level.UNIFORM)]
    assert set(drawn) == {0, 1, 2, 3, 5}
    assert sum(a != b for a, b in pairwise(drawn)) > 30


@pytest.mark.parametrize("batch", [1, 2, 3, 8])
def test_a_ragged_batch_verifies_as_many_drafts_as_a_uniform_one(batch: int) -> None:
    (plan,) = plans(SteeredOptions(k=2, ragged=True), batch, Level.FULL, steps=1)
    assert plan.verify.sum() == 2 * batch
    assert (len(set(plan.verify.tolist())) > 1) is (batch > 1)
    assert plan.draft_depth == 3


def test_the_name_leads_to_the_policy() -> None:
    module, _, name = NAME.partition(":")
    assert getattr(importlib.import_module(module), name) is SteeredPolicy
