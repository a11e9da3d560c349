"""Memory of very many live requests."""

import tracemalloc

import numpy as np

from adaptive_spec import Capability, Controller, Level, build_policy
from tests import steps

LIVE, BATCH, KMAX = 100_000, 250, 6
MOST_BYTES = 100e6


def test_a_hundred_thousand_live_requests_hold_less_than_100_mb() -> None:
    """With confidence, labels, targets and look-ups, so that every array per request is in use."""
    capability = Capability(max_draft_tokens=KMAX, level=Level.FULL)
    random, row = np.random.default_rng(0), np.ones(BATCH, dtype=np.int64)
    tracemalloc.start()
    controller = Controller(build_policy("goodput", seed=1), capability)
    for step in range(LIVE // BATCH):
        names = [f"cmpl-{step}-{number}" for number in range(BATCH)]
        slots = np.array([controller.slots.assign(name) for name in names])
        context = steps.context(
            capability=capability,
            step=step,
            request_ids=names,
            slots=slots,
            context_tokens=500,
            tpot_target=0.01 * row,
            task=slots % 5 - 1,
            confidence=random.random((BATCH, KMAX)),
            lookup_available=3 * row,
            lookup_match=5 * row,
            now=0.02 * step,
        )
        plan = controller.plan(context)
        accepted = np.minimum(random.geometric(0.3, BATCH) - 1, plan.verify)
        controller.observe(
            steps.outcome(
                context,
                plan.verify,
                accepted,
                draft_depth=plan.draft_depth,
                seconds=0.02,
                now=0.02 * step + 0.02,
                lookup_agreed=np.minimum(accepted, 3),
            )
        )
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(controller.slots) == LIVE
    assert held < MOST_BYTES
