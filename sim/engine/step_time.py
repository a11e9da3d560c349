"""Duration of a step: the target's pass, graph padding, and drafting."""

from __future__ import annotations

from bisect import bisect_left

from adaptive_spec.sim.drafters.base import Drafter
from adaptive_spec.sim.hardware.base import Hardware


class StepTime:
    """Seconds of a step of one drafter on one machine."""

    def __init__(self, hardware: Hardware, drafter: Drafter, ragged_penalty: float) -> None:
        self._hardware = hardware
        self._buckets = hardware.token_buckets
        self._outside = hardware.outside_graph_seconds
        self._verify_context = hardware.verify_per_context_token
        self._any_draft = hardware.any_draft
        self._any_draft_per_request = hardware.any_draft_per_request
        self._draft_cost = drafter.cost_on(hardware)
        self._off_pass = drafter.off_pass
        self._ragged_penalty = ragged_penalty

    def verify(
        self,
        batch_size: float,
        batch_tokens: float,
        context_tokens: float,
        prefill_tokens: float,
        prefill_context_tokens: float,
        *,
        any_draft: bool,
        ragged: bool,
    ) -> float:
        """Target pass with N = `batch_tokens`, prompts in the same pass, engine overhead.

        Inside captured graphs N runs as the next captured size; a batch that leaves them, by its
        size or because prompts share the step, pays for the launches.
        """
        outside = 0.0
        if self._buckets:
            if prefill_tokens or batch_tokens > self._buckets[-1]:
                outside = self._outside
            elif batch_tokens:
                batch_tokens = self._buckets[bisect_left(self._buckets, batch_tokens)]
        seconds = outside + self._hardware.verify_seconds(
            batch_size, batch_tokens, context_tokens, prefill_tokens, prefill_context_tokens
        )
        if any_draft:
            seconds += (
                self._any_draft
                + self._any_draft_per_request * batch_size
                + self._verify_context * context_tokens
            )
        if ragged:
            seconds *= 1.0 + self._ragged_penalty
        return seconds

    def draft(self, batch_size: float, depth: int, context_tokens: float, *, cold: bool) -> float:
        """Drafting so deep; at depth 0 the pass that keeps the drafter in step, unless cold."""
        if batch_size == 0 or cold:
            return 0.0
        if depth == 0:
            if not self._off_pass:
                return 0.0
            return self._draft_cost.warm_seconds(batch_size, context_tokens)
        return self._draft_cost.seconds(depth, batch_size, context_tokens)
