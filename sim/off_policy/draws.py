"""Kind of a logged draw: the K of single requests, or one K for the batch."""

from __future__ import annotations

import enum
from collections.abc import Iterable

import msgspec
import numpy as np

from adaptive_spec.sim.off_policy.logged_steps import LoggedStep
from adaptive_spec.step import IntArray, Level, StepContext


class DrawKind(enum.StrEnum):
    """The draw whose probability a propensity is."""

    REQUEST = "request"
    """Each request's K was drawn on its own."""
    BATCH = "batch"
    """One K was drawn, and all requests took it as far as they could."""


def kind_of_draw(steps: Iterable[LoggedStep]) -> DrawKind:
    """Batch, if every randomised step is as one K for all would have made it.

    A batch of one request says nothing either way and counts as a batch.
    """
    for step in steps:
        if step.context.capability.level is Level.UNIFORM:
            return DrawKind.BATCH
        if step.propensity is not None and not _is_uniform(step):
            return DrawKind.REQUEST
    return DrawKind.BATCH


def _is_uniform(step: LoggedStep) -> bool:
    verified = step.outcome.verified
    if (verified != np.minimum(limits_before_draw(step.context), verified.max())).any():
        return False
    # Those that took the drawn K whole were equally likely to.
    whole = verified == verified.max()
    assert step.propensity is not None
    found = step.propensity[whole]
    found = found[~np.isnan(found)]
    # A request that could not have gone deeper has the probability of all deeper K added.
    return bool(found.size == 0 or np.unique(np.round(found, 9)).size <= 2)


def limits_before_draw(context: StepContext) -> IntArray:
    """[B] drafts each request could have had, whatever K had been drawn.

    Where depth follows K, the drafts at hand are themselves a result of the draw.
    """
    if context.capability.steers_depth:
        return np.maximum(context.draft_possible, context.draft_available)
    return context.draft_available


def context_before_draw(context: StepContext, kind: DrawKind) -> StepContext:
    """The step as it was before its K had been drawn."""
    if kind is DrawKind.REQUEST or not context.capability.steers_depth:
        return context
    return msgspec.structs.replace(context, draft_available=limits_before_draw(context))
