"""The memory guard: K shrinks where drafts alone would make the engine preempt a request.

A speculating request needs K + 1 new KV positions in a step instead of one. Where the pool has room
for the bonus tokens of this step but not for its drafts, the drafts would preempt a request, which
then repays its whole prompt; giving up some drafts of one step costs less. In all other cases
nothing is cut:

* Without room for the bonus tokens a request is preempted whatever K is.
* While requests wait, admission keeps the pool full, and the blocks that drafts leave free are
  given away. Slower requests then hold their blocks for longer, so that cutting K brings as many
  preemptions per token, or more.

KV memory is given out in blocks. An engine that says for how many drafts of each request there are
blocks (`StepContext.kv_draft_limit`) has only those requests cut whose drafts would begin a block
that isn't there. Those drafts would preempt for certain, so they are cut whether or not requests
wait; tests/vllm/test_tight_memory.py has fewer preemptions by it and the same answers. Without
such a limit, what is free is shared evenly, token by token.
"""

from __future__ import annotations

import msgspec
import numpy as np

from adaptive_spec.step import StepContext


def affordable_drafts(context: StepContext) -> int:
    """The largest K that the free KV pool affords to every request in this step.

    What the bonus positions of the B requests leave of the free tokens, shared evenly; Kmax where
    cutting is of no use, see the module.
    """
    kmax = context.capability.max_draft_tokens
    left = context.kv_free_tokens - context.batch_size
    if context.waiting or left < 0 or left >= int(context.draft_available.sum()):
        return kmax
    return min(left // max(context.batch_size, 1), kmax)


def limit_to_memory(context: StepContext) -> StepContext:
    """The same context with the drafts at hand cut to what memory affords; unchanged if it does."""
    limit = context.kv_draft_limit
    if limit is not None:
        if (limit >= context.draft_available).all():
            return context
        return msgspec.structs.replace(
            context, draft_available=np.minimum(context.draft_available, limit)
        )
    drafts = affordable_drafts(context)
    if drafts >= context.capability.max_draft_tokens:
        return context
    return msgspec.structs.replace(
        context, draft_available=np.minimum(context.draft_available, drafts)
    )
