"""The table of break-even acceptance says what the step times and the acceptance say."""

import math
from typing import Any

import msgspec
import numpy as np
import pytest

from adaptive_spec.policies.goodput import GoodputOptions, GoodputPolicy
from adaptive_spec.policies.planning.break_even_table import BreakEven, LoadCell
from adaptive_spec.step import Capability, Level
from tests.policies.planning.test_step_forecast import context
from tests.policies.test_planned import run_step, trained

LADDER = Capability(level=Level.UNIFORM, max_draft_tokens=4, ladder=(0, 1, 3), cold_off=False)
FIXED = Capability(level=Level.VERIFY, max_draft_tokens=4, cold_off=True)


def table_of(policy: GoodputPolicy) -> BreakEven:
    found = policy.break_even_table()
    assert found is not None
    return found


@pytest.mark.parametrize("changes", [{}, {"capability": LADDER}, {"capability": FIXED}], ids=str)
def test_each_cell_holds_what_the_step_times_say(changes: dict[str, Any]) -> None:
    policy = trained(**changes)
    found, cost = table_of(policy), policy._cost
    ks, kmax = [k for k in policy._capability.uniform_values if k], 4
    steers, cold = policy._capability.steers_depth, policy._capability.cold_off
    for cell in (found.now, found.most, *found.cells):
        assert list(cell.needed) == ks
        worth = {0: 1.0}
        for k in ks:
            seconds, covariance, _ = cost.goodput_covariance(
                cell.batch,
                cell.batch * cell.context,
                [cell.batch * k, 0],
                [k if steers else kmax, -1 if cold else 0],
            )
            ratio = seconds[0] / seconds[1]
            error = 1.96 * math.sqrt(
                max(covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1], 0)
            )
            bounds = [ratio * math.exp(sign * error) - 1.0 for sign in (-1, 0, 1)]
            assert cell.needed[k] == pytest.approx(bounds, abs=2e-3)
            worth[k] = (1.0 + found.accepted[k - 1]) / ratio
        assert cell.gain[1] == pytest.approx(max(worth.values()), abs=2e-3)
        assert worth[cell.k] == pytest.approx(cell.gain[1], abs=2e-3)
        assert cell.gain[0] <= cell.gain[1] <= cell.gain[2]


def test_loads_that_have_run_are_told_from_predicted_ones() -> None:
    policy = GoodputPolicy(GoodputOptions())
    assert policy.break_even() == {}
    for n in range(60):
        run_step(policy, n, context_tokens=np.full(4, 3000))
    found = table_of(policy)
    assert (found.now.batch, found.now.context, found.now.seen) == (4, 3000, True)
    seen = {(cell.batch, cell.context) for cell in found.cells if cell.seen}
    assert seen == {(4, 4096)}
    assert {cell.batch for cell in found.cells} == {1, 2, 4, 8, 16}
    assert {cell.context for cell in found.cells} == {512 << n for n in range(6)}


def test_a_step_without_drafts_that_was_never_timed_is_said_to_be_inferred() -> None:
    policy = GoodputPolicy(GoodputOptions())
    nothing = np.zeros(4, dtype=np.int64)
    said = []
    for n in range(60):
        run_step(policy, n, **({"draft_available": nothing} if n == 40 else {}))
        said.append(n > 30 and table_of(policy).now.timed_without)
    assert (said[39], said[41]) == (False, True)


def test_the_load_of_most_requests_is_not_the_last() -> None:
    policy = trained(80)
    for n in range(80, 200):
        policy.plan(context(n, [4]))
    found = table_of(policy)
    assert (found.now.batch, found.most.batch) == (1, 4)


def test_a_drafter_that_copies_is_charged_and_credited_for_what_it_finds() -> None:
    copies = Capability(level=Level.FULL, max_draft_tokens=4, off_pass=False, cold_off=True)
    accepted = []
    for available in ([4, 4, 4, 4], [4, 0, 0, 0]):
        policy = GoodputPolicy(GoodputOptions())
        for n in range(400):
            run_step(policy, n, capability=copies, draft_available=np.array(available))
        found = table_of(policy)
        accepted.append(found.accepted[0])
        drafts = np.array([[4 * sum(available) // 4, 0]])
        longer, _ = policy._cost.ratios([(4, 4 * 50)], drafts, [4, -1])
        assert found.now.needed[4][1] == pytest.approx(longer[0, 0] - 1.0, abs=2e-3)
    assert accepted[1] == pytest.approx(accepted[0] / 4.0, rel=0.1)


def test_it_is_json_and_comes_back_as_it_was() -> None:
    policy = trained()
    sent = msgspec.json.decode(msgspec.json.encode(policy.break_even()))
    assert msgspec.convert(sent, BreakEven, strict=False) == table_of(policy)
    assert all(isinstance(cell, LoadCell) for cell in table_of(policy).cells)
