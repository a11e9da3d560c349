"""A saved state with one thing wrong in it is refused in a line, or does no harm.

States are read from files that people and other versions write, so anything may stand anywhere.
"""

import copy
import json
import math
from collections.abc import Iterator
from typing import Any

from adaptive_spec import PolicyError
from adaptive_spec.policy import Policy, build_policy
from tests.policies.closed_loop import LAPTOP, mixed, run

WRONG: list[Any] = [None, "x", -1, math.nan, math.inf, [], {}]
GONE = object()


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Everything that stands somewhere in a state; of a list, its first entry."""
    if place:
        yield place
    if place and place[-1] in ("profile", "acceptance"):  # what is in them the core checks
        return
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*place, key))
    elif isinstance(value, list) and value:
        yield from places(value[0], (*place, 0))


def damaged(state: dict[str, Any], place: tuple[Any, ...], wrong: Any) -> dict[str, Any]:
    result = copy.deepcopy(state)
    inner: Any = result
    for key in place[:-1]:
        inner = inner[key]
    if wrong is GONE:
        del inner[place[-1]]
    else:
        inner[place[-1]] = wrong
    return result


def short_run(policy: Policy, steps: int) -> None:
    run(
        policy,
        concurrency=3,
        hazards=lambda random: mixed(random)[:4],
        kmax=4,
        machine=LAPTOP,
        steps=steps,
    )


def refusal(policy: Policy, state: dict[str, Any]) -> str:
    """What is said against the state; empty if it was taken up."""
    try:
        policy.restore(state)
    except PolicyError as error:
        return str(error)
    return ""


def test_a_damaged_state_is_refused_in_one_line_or_does_no_harm() -> None:
    policy = build_policy("regression", {}, seed=1)
    short_run(policy, 40)
    state = json.loads(json.dumps(policy.state()))
    assert state
    for place in places(state):
        for wrong in (*WRONG, GONE):
            fresh = build_policy("regression", {}, seed=1)
            before = fresh.state()
            refused = refusal(fresh, damaged(state, place, wrong))
            if refused:
                assert "\n" not in refused, place
                assert fresh.state() == before, f"refused, but something was taken up: {place}"
                continue
            try:
                short_run(fresh, 2)
            except PolicyError:
                # Only the engine's Kmax shows that it doesn't fit. Said once, it begins anew.
                short_run(fresh, 2)
            json.dumps(fresh.state(), allow_nan=False)
