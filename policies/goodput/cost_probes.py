"""Which K a load has not been timed with, and when to run it.

It takes two steps: one drafts to that K, the next verifies it.
"""

from __future__ import annotations

from adaptive_spec.cost import CostModel, load_bin
from adaptive_spec.policies.goodput.outlook import Outlook
from adaptive_spec.values import StepContext

_PERIOD = 4
_ATTEMPTS = 5
_MOSTLY_PROMPTS = 4
"""A step with so many times more prompt tokens than the batch could verify measures prompts."""


class CostProbes:
    """Asks for a K to be run, now and then, until every load has been timed with each."""

    def __init__(self, cost: CostModel) -> None:
        self._cost = cost
        self._drafted: int | None = None
        self._attempts: dict[tuple[int, int], int] = {}

    @property
    def pending(self) -> bool:
        """What is drafted now is to be measured, all of it."""
        return self._drafted is not None

    def drop(self) -> None:
        """Do not verify what was drafted to be measured."""
        self._drafted = None

    def to_verify(self, context: StepContext) -> int | None:
        """The K that the step before has drafted to be measured in this one."""
        most_tokens = context.batch_size * (1 + context.capability.max_draft_tokens)
        if context.prefill_tokens > _MOSTLY_PROMPTS * most_tokens:
            self._drafted = None
            return None
        k, self._drafted = self._drafted, None
        return k

    def to_draft(self, context: StepContext, outlook: Outlook | None) -> int | None:
        """A K to draft to in this step, so that the next can verify it."""
        if context.step % _PERIOD:
            return None
        most_tokens = context.batch_size * (1 + context.capability.max_draft_tokens)
        if context.prefill_tokens > _MOSTLY_PROMPTS * most_tokens:
            return None
        for k in self._cost.missing_depths(context.batch_size):
            key = (load_bin(context.batch_size), k)
            tried = self._attempts.get(key, 0)
            # Requests near their end may never reach this K: do not insist.
            if tried >= _ATTEMPTS or (outlook is not None and outlook.hopeless(k)):
                continue
            self._attempts[key] = tried + 1
            self._drafted = k
            return k
        return None
