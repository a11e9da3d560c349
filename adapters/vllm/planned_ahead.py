"""A step that was planned while the step before it was running.

Its plan knows neither what that step accepts nor the confidence of the drafts that it makes. Both
are newer than everything a plan may use anyway (docs/losslessness.md), so the output keeps its
distribution. What must be exact is asked when the plan is applied: how many tokens a request has
left that is about to end, whether a grammar will be asked about its drafts, and whether copied
drafts follow what has been emitted since.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from adaptive_spec.adapters.vllm.context import Batch, escapes_the_grammar
from adaptive_spec.adapters.vllm.outcome import PlannedStep


class PlannedAhead:
    """A planned step, and the requests that need a look before it runs.

    Args:
        step: the planned step.
        batch: what it was planned from.
        blocks: free KV blocks from which no draft lacks one.
    """

    def __init__(self, step: PlannedStep, batch: Batch, blocks: int) -> None:
        self.step = step
        self._blocks = blocks
        self._ending = batch.ending if step.plan.acts else ()
        self._structured = batch.structured if step.plan.acts else ()
        self.trims = bool(step.cuts or self._ending or self._structured)
        """`apply` has something to do."""

    def holds(self, free_blocks: int) -> bool:
        """Return whether all drafts find KV blocks."""
        return free_blocks >= self._blocks

    def apply(self) -> None:
        """Trim the drafts at hand."""
        cut(self.step.cuts)
        for request in self._ending:
            left = request.num_prompt_tokens + request.max_tokens - request.num_tokens
            if request.num_output_placeholders:
                left -= 1
            cut([(request, max(left - 1, 0))])
        for request in self._structured:
            if escapes_the_grammar(request):
                cut([(request, 0)])


def cut(cuts: Iterable[tuple[Any, int]]) -> None:
    """Limit the drafts of each request.

    A new list: with asynchronous scheduling all requests share one.
    """
    for request, k in cuts:
        drafts = request.spec_token_ids
        if len(drafts) > k:
            request.spec_token_ids = drafts[:k]
