"""Baseline: a fixed rule between the drafter's drafts and looked-up ones.

Sources: TensorRT-LLM, `SAEnhancerConfig(threshold=4)` (#11434, #11878): the look-up wins from a
match of so many tokens on. Arctic Inference, arctic_inference/vllm/model_runner.py at 9d46438: it
wins where its score reaches the length of the drafter's draft. The score is a sum of estimated
probabilities; contexts do not hold it, so that the number of its drafts stands for it, which is the
same where the text went on in one way only. Both draft with the model in every step. Granularity:
L2.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
import numpy as np

from adaptive_spec.policy import Provenance
from adaptive_spec.policy_helpers import StatelessPolicy, nearest_allowed
from adaptive_spec.step import Level, Mode, SpecPlan, StepContext


class LookupRuleOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of `lookup_rule`."""

    k: Annotated[int, msgspec.Meta(ge=1)] = 3
    """Drafts of the drafter, for all requests."""
    match: Annotated[int, msgspec.Meta(ge=1)] | None = 4
    """Tokens of a match from which the look-up wins (TensorRT-LLM); null: where it has k drafts
    (Arctic)."""


class LookupRulePolicy(StatelessPolicy):
    """One K, and a threshold from which looked-up drafts are verified instead."""

    name: ClassVar[str] = "lookup_rule"
    summary: ClassVar[str] = "two sources of drafts by a fixed rule, as Arctic or TensorRT-LLM"
    Options: ClassVar[type[msgspec.Struct]] = LookupRuleOptions
    provenance: ClassVar[Provenance] = Provenance(
        source="TensorRT-LLM SAEnhancerConfig; Arctic Inference 9d46438",
        granularity=Level.FULL,
        faults="the rule is fixed, and the model drafts in every step",
    )

    def __init__(self, options: LookupRuleOptions, *, seed: int = 0) -> None:
        del seed
        self._options = options

    def plan(self, context: StepContext) -> SpecPlan:
        """Verify all looked-up drafts of a request, or k of the drafter's."""
        options = self._options
        k = nearest_allowed(options.k, context.capability.uniform_values)
        verify, from_lookup = np.minimum(context.draft_available, k), None
        found, match = context.lookup_available, context.lookup_match
        if found is not None and match is not None and found.any():
            wins = found >= k if options.match is None else match >= options.match
            from_lookup = wins & (found > 0)
            verify = np.where(from_lookup, found, verify)
        return SpecPlan(
            step=context.step,
            verify=verify,
            draft_depth=k,
            mode=Mode.ON,
            reason=f"fixed rule, {k}",
            from_lookup=from_lookup,
        )
