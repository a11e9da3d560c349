"""The fixed rules between two sources of drafts."""

import numpy as np

from adaptive_spec.sim.baselines.engines.lookup_rule import LookupRuleOptions, LookupRulePolicy
from tests.policies.planning.test_plans import context

FOUND = np.array([4, 4, 1, 0])
MATCH = np.array([6, 3, 9, 0])


def plan(**options: int | None) -> tuple[list[int], list[bool] | None]:
    policy = LookupRulePolicy(LookupRuleOptions(**options))
    made = policy.plan(context(0, [4, 4, 4, 2], lookup_available=FOUND, lookup_match=MATCH))
    assert made.draft_depth == options["k"]
    taken = None if made.from_lookup is None else made.from_lookup.tolist()
    return made.verify.tolist(), taken


def test_tensorrt_llm_takes_the_look_up_from_a_match_of_four_tokens_on() -> None:
    assert plan(k=3) == ([4, 3, 1, 2], [True, False, True, False])


def test_arctic_takes_the_look_up_where_it_has_as_many_drafts() -> None:
    assert plan(k=3, match=None) == ([4, 4, 3, 2], [True, True, False, False])
    assert plan(k=1, match=None) == ([4, 4, 1, 1], [True, True, True, False])


def test_without_a_look_up_the_drafters_drafts_are_verified() -> None:
    made = LookupRulePolicy(LookupRuleOptions(k=2)).plan(context(0, [4, 1]))
    assert made.verify.tolist() == [2, 1]
    assert made.from_lookup is None
