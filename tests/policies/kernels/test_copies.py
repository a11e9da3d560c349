"""In the controller's steps no kernel copies its arguments: numba takes them as they come."""

from typing import Any

import numpy as np
import pytest

from adaptive_spec.config import Config
from adaptive_spec.controller.controller import Controller
from adaptive_spec.policies.goodput import GoodputOptions, GoodputPolicy
from adaptive_spec.policies.kernels import load_kernels, select_kernel
from adaptive_spec.policies.kernels.kernel import Kernel
from adaptive_spec.step import Capability, Level
from tests import steps as made

KMAX = 4


@pytest.mark.usefixtures("needs_numba")
@pytest.mark.parametrize("level", list(Level))
def test_no_step_of_goodput_makes_a_kernel_copy_its_arguments(
    level: Level, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Numba refuses read-only arrays where a signature says writable ones, and the controller makes
    # the limits of a plan read-only. The refusal, the copies and the second call took 190 us.
    compiled, refused = Kernel.compile, []

    def watched(kernel: Kernel[Any, Any]) -> Any:
        loop = compiled(kernel)

        def run(*arguments: Any) -> Any:
            try:
                return loop(*arguments)
            except TypeError:
                refused.append(kernel.__name__)
                raise

        return run

    monkeypatch.setattr(Kernel, "compile", watched)
    select_kernel("numba")
    try:
        load_kernels()
        drive(Controller(GoodputPolicy(GoodputOptions()), capability(level), Config()))
    finally:
        select_kernel("numpy")
    assert not refused


def capability(level: Level) -> Capability:
    """An engine whose graphs are captured for multiples of 8 tokens."""
    return Capability(level=level, max_draft_tokens=KMAX, token_buckets=tuple(range(8, 65, 8)))


def drive(controller: Controller, batch: int = 8, steps: int = 60) -> None:
    """Run steps whose requests accept half of their drafts and report a confidence."""
    random = np.random.default_rng(0)
    names = [f"r{i}" for i in range(batch)]
    slots = np.array([controller.slots.assign(name) for name in names])
    depth = KMAX
    for step in range(steps):
        context = made.context(
            capability=controller.capability,
            step=step,
            request_ids=names,
            slots=slots,
            context_tokens=100 + step,
            draft_available=depth,
            confidence=random.random((batch, KMAX)),
            now=1.0 + 0.01 * step,
        )
        plan = controller.plan(context)
        accepted = np.minimum(random.geometric(0.5, batch) - 1, plan.verify)
        depth = KMAX if controller.capability.level is Level.VERIFY else plan.draft_depth
        controller.observe(
            made.outcome(
                context,
                plan.verify,
                accepted,
                draft_depth=depth,
                seconds=0.01 + 1e-4 * float(plan.verify.sum()),
                now=context.now + 0.01,
            )
        )
    assert not controller.counters.failures
