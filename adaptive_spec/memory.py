"""The memory guard: K shrinks before the KV pool runs out.

A speculating request needs K + 1 new KV positions per step instead of one. When the pool is
nearly full, that difference is what preempts a request, and a preempted request repays its whole
prefill. So drafts are given up first.
"""

from __future__ import annotations

import msgspec
import numpy as np

from adaptive_spec.values import StepContext


def affordable_drafts(context: StepContext) -> int:
    """The largest K the free KV pool affords to every request of the batch.

    Free tokens must cover K + 1 new positions of each of the B requests, for this step and the
    next one (its drafts are under way before this step's rejected positions are returned).
    """
    batch_size = max(context.batch_size, 1)
    per_request = context.kv_free_tokens // (2 * batch_size) - 1
    return int(min(max(per_request, 0), context.capability.max_draft_tokens))


def limit_to_memory(context: StepContext) -> StepContext:
    """The same context with drafts capped to what memory affords; unchanged if it does."""
    drafts = affordable_drafts(context)
    if drafts >= context.capability.max_draft_tokens:
        return context
    return msgspec.structs.replace(
        context,
        draft_available=np.minimum(context.draft_available, drafts),
        draft_possible=np.minimum(context.draft_possible, drafts),
    )
