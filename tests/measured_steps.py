"""Steps as an engine measures them."""

from adaptive_spec.step import StepContext, StepOutcome
from tests import steps

FULL = steps.full(6)


def step(batch: int, k: int, depth: int, seconds: float, prefill: int = 0) -> StepOutcome:
    before = steps.context(batch, FULL, prefill_tokens=prefill)
    return steps.outcome(before, k, k, draft_depth=depth, seconds=seconds)


def decoding(batch: int) -> StepContext:
    """A step in which every request has as many drafts as it can use."""
    return steps.context(batch, FULL, engine_k=3)
