"""KV memory guard: trims K where drafts alone would make the engine preempt a request.

A speculating request needs K + 1 new KV positions in a step instead of one. Where the pool has room
for the bonus tokens of a step but not for its drafts, the drafts would preempt a request, which
then recomputes its whole prompt; trimming the drafts of one step costs less. The guard trims
nothing in two cases:

* Without room for the bonus tokens, a preemption happens at any K.
* While requests wait, admission keeps the pool full and takes the blocks that drafts leave free.
  Slower requests then hold their blocks for longer, so trimming K causes as many preemptions per
  token, or more.

The pool hands out KV memory in blocks. Where an engine reports the drafts that fit per request
(`StepContext.kv_draft_limit`), the guard trims only requests whose drafts would need a missing
block. These drafts would certainly preempt, so they are trimmed even while requests wait;
tests/vllm/test_tight_memory.py counts fewer preemptions with the same output. Without such a limit,
the guard shares the free tokens evenly.
"""

from __future__ import annotations

import msgspec
import numpy as np

from adaptive_spec.step import IntArray, Level, StepContext


def affordable_drafts(context: StepContext) -> int:
    """Return the largest K that the free KV pool affords to every request in this step.

    Free tokens minus B bonus positions, shared evenly; Kmax where trimming does not help (see the
    module). An engine with one K for the batch gets a K that it can run, at least its smallest.
    """
    kmax = context.capability.max_draft_tokens
    left = context.kv_free_tokens - context.batch_size
    if context.waiting or left < 0:
        return kmax
    wanted = context.draft_available
    if context.lookup_available is not None:
        wanted = np.maximum(wanted, context.lookup_available)
    if left >= int(wanted.sum()):
        return kmax
    drafts = min(left // max(context.batch_size, 1), kmax)
    if context.capability.level is Level.UNIFORM:
        rungs = context.capability.uniform_values
        return max((k for k in rungs if k <= drafts), default=rungs[0])
    return drafts


def limit_to_memory(context: StepContext) -> StepContext:
    """Trim the available drafts to the free memory; return the same context if they fit."""
    limit = context.kv_draft_limit
    if limit is not None:
        looked_up = context.lookup_available
        fits = (limit >= context.draft_available).all()
        if fits and (looked_up is None or (limit >= looked_up).all()):
            return context
        return _limited(context, limit)
    drafts = affordable_drafts(context)
    if drafts >= context.capability.max_draft_tokens:
        return context
    return _limited(context, drafts)


def _limited(context: StepContext, limit: IntArray | int) -> StepContext:
    looked_up = context.lookup_available
    return msgspec.structs.replace(
        context,
        draft_available=np.minimum(context.draft_available, limit),
        lookup_available=None if looked_up is None else np.minimum(looked_up, limit),
    )
