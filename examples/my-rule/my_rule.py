"""The policy `my_rule`: replace the rule in `plan` by yours."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from adaptive_spec import FinishedStep, SpecPlan, StatelessPolicy, StepContext, fixed_plan


class MyRuleOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options: the keys of `options` in the configuration."""

    busy: Annotated[int, msgspec.Meta(ge=1)] = 8
    """Batch size from which on one draft is enough."""


class MyRule(StatelessPolicy):
    """All drafts while few requests decode, one draft otherwise."""

    name: ClassVar[str] = "my_rule"
    summary: ClassVar[str] = "all drafts in a small batch, one in a large or waiting one"
    Options: ClassVar[type[msgspec.Struct]] = MyRuleOptions

    def __init__(self, options: MyRuleOptions, *, seed: int = 0) -> None:
        self._options = options

    def plan(self, context: StepContext) -> SpecPlan:
        """Decide one K for the batch; `fixed_plan` keeps it within what the engine can run."""
        busy = context.waiting > 0 or context.batch_size >= self._options.busy
        k = 1 if busy else context.capability.max_draft_tokens
        return fixed_plan(context, k, "busy" if busy else "room for drafts")

    def observe(self, step: FinishedStep) -> None:
        """Learn here: `step.outcome` has verified, accepted and emitted tokens, and seconds."""
