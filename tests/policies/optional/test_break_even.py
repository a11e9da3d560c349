"""The table of break-even acceptance says which loads were seen, and what was found there."""

import msgspec
import numpy as np
import pytest

from adaptive_spec.policies.goodput import GoodputOptions, GoodputPolicy
from adaptive_spec.policies.optional.break_even import BreakEven
from adaptive_spec.step import Capability, Level
from tests.policies.closed_loop import plain_steps
from tests.policies.test_figures import PLAIN, run_steps

COPIES = Capability(level=Level.FULL, max_draft_tokens=4, off_pass=False, cold_off=True)


def table_of(policy: GoodputPolicy) -> BreakEven:
    return msgspec.convert(policy.break_even(), BreakEven, strict=False)


def test_loads_that_have_run_are_told_from_predicted_ones() -> None:
    policy = GoodputPolicy(GoodputOptions())
    assert policy.break_even() == {}
    run_steps(policy, PLAIN, 60, batch=4, context_tokens=3000)
    found = table_of(policy)
    assert (found.now.batch, found.now.context, found.now.seen) == (4, 3000, True)
    seen = {(cell.batch, cell.context) for cell in found.cells if cell.seen}
    assert seen == {(4, 4096)}
    assert {cell.batch for cell in found.cells} == {1, 2, 4, 8, 16}
    assert {cell.context for cell in found.cells} == {512 << n for n in range(6)}


def test_the_load_of_most_requests_is_not_the_last() -> None:
    policy = GoodputPolicy(GoodputOptions())
    run_steps(policy, PLAIN, 60, batch=4)
    run_steps(policy, PLAIN, 120, batch=1, first=60)
    found = table_of(policy)
    assert (found.now.batch, found.most.batch) == (1, 4)


def test_a_drafter_that_copies_is_credited_for_what_it_finds() -> None:
    found = []
    for available in ([4, 4, 4, 4], [4, 0, 0, 0]):
        policy = GoodputPolicy(GoodputOptions())
        ran = plain_steps(policy, COPIES, 400, batch=4, draft_available=np.array(available))
        share = np.mean([plan.verify.mean() for _, plan in ran])
        assert share > 0.0
        found.append(table_of(policy).accepted)
        assert policy.figures.table.found == pytest.approx(sum(available) / 16, abs=0.02)
    everybody, one = found
    assert everybody[0] / everybody[1] == pytest.approx(one[0] / one[1], rel=0.2)
    assert everybody[0] / one[0] == pytest.approx(4.0, rel=0.2)
