"""Base of baselines that draft in full and verify the most profitable number of drafts.

    B* = argmax over m of (B + sum of the m largest survivals) / T(m),   T: step time with m drafts

The number B* comes from confidences that are a round old; the survivals of the available drafts
select the B* drafts. This is lossless for sampled drafts too. The search covers every m, so that a
staircase or a falling T does not mislead it.

Drafting always runs to Kmax and is no part of the decision. On an engine with one K per batch, the
same ratio of old survivals selects one of its K. Without a confidence signal, the engine's own K
runs, because the originals need the signal.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import msgspec
import numpy as np

from adaptive_spec.per_request import floats
from adaptive_spec.policy_helpers import StatelessPolicy, fixed_plan
from adaptive_spec.sim.baselines.parts.drafts import most_likely, survival_of
from adaptive_spec.sim.baselines.parts.start_up_profile import StartUpProfile
from adaptive_spec.step import (
    Capability,
    FinishedStep,
    FloatArray,
    IntArray,
    Level,
    Mode,
    SpecPlan,
    StepContext,
)

_MEASURING_PERIOD = 4


class BudgetOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of every policy with a verification budget."""

    profile: str | None = None
    """File with a cost profile, in place of the original's start-up profiling; without one, step
    times are learned online by running the K whose times are not known.
    """


class BudgetedVerification(StatelessPolicy, ABC):
    """Policy of full drafts, a budget from old confidences, and live ranking within it.

    Subclasses convert the drafter's confidence to acceptance (`calibrated`), learn from outcomes
    (`learn_outcomes`) and may provide cost tables (`seconds`).
    """

    def __init__(self, profile: str | None) -> None:
        self._times = StartUpProfile(profile)
        self._capability: Capability | None = None

    def begin(self, capability: Capability) -> None:
        """Prepare for the engine; called once, before the first decision with confidences."""
        self._times.start(capability)
        kmax = capability.max_draft_tokens
        # New requests are expected to accept all drafts.
        self._old = floats(1.0, kmax)

    @abstractmethod
    def calibrated(self, context: StepContext, confidence: FloatArray) -> FloatArray:
        """Return [B, Kmax] acceptance from max q, given that earlier drafts were accepted."""

    def learn_outcomes(self, step: FinishedStep) -> None:
        """Learn from a finished step, beyond its duration; its plan's note is `calibrated`."""

    def seconds(self, context: StepContext) -> FloatArray:
        """Return [B * Kmax + 1] non-decreasing step times by verified drafts, with drafting."""
        return self._times.full_draft_seconds(context)

    def plan(self, context: StepContext) -> SpecPlan:
        """Plan the number of drafts by old confidences, and their choice by live ones."""
        if context.confidence is None:
            return fixed_plan(context, context.engine_k, "no confidence signal, engine's K")
        if self._capability is None:
            # Set first, so that an unfit saved state is reported once and not in every step.
            self._capability = context.capability
            self.begin(context.capability)
        live = self.calibrated(context, context.confidence)
        verify, reason, measures = self._chosen(context, live)
        return self._decided(context, verify, reason, live, measures=measures)

    def _chosen(self, context: StepContext, live: FloatArray) -> tuple[IntArray, str, bool]:
        """Return [B] the drafts to verify, the reason, and whether it is to measure step times."""
        available = context.draft_available
        old = self._old[context.slots]
        self._old[context.slots] = np.where(np.isnan(live), 1.0, live)
        measured = None
        if context.step % _MEASURING_PERIOD == 0:
            measured = self._times.unmeasured(context, room=0.0)
        if not self._times.ready:
            return available, "no step measured yet", True
        if measured is not None:
            return np.minimum(available, measured), "measuring", True
        seconds = self.seconds(context)
        survival = survival_of(old)
        if context.capability.level is Level.UNIFORM:
            k = best_uniform(survival, available, seconds, context.capability.uniform_values)
            return np.minimum(available, k), f"one K, {k}", False
        budget = best_budget(survival, available, seconds)
        verify = most_likely(survival_of(live), available, budget)
        return verify, f"budget {budget} of {int(available.sum())}", False

    def observe(self, step: FinishedStep) -> None:
        """Learn the step's duration and accepted drafts."""
        if self._capability is not None:
            self._times.record(step.outcome)
            self.learn_outcomes(step)

    def forget(self, slots: IntArray) -> None:
        """Reset these slots: new requests are expected to accept all drafts."""
        if self._capability is not None:
            self._old.reset(slots)

    # ---------------------------------------------------------------- internals

    def _decided(
        self,
        context: StepContext,
        verify: IntArray,
        reason: str,
        live: FloatArray,
        *,
        measures: bool,
    ) -> SpecPlan:
        capability = context.capability
        if capability.level is Level.UNIFORM:
            rungs = capability.uniform_values
            k = next((rung for rung in rungs if rung >= int(verify.max(initial=0))), rungs[-1])
            verify = np.minimum(context.draft_available, k)
        return SpecPlan(
            step=context.step,
            verify=verify,
            draft_depth=capability.uniform_values[-1],
            mode=Mode.ON,
            reason=reason,
            measures=measures,
            notes=(live,),
        )


def best_budget(survival: FloatArray, available: IntArray, seconds: FloatArray) -> int:
    """Return the number of drafts with the most expected tokens per second; ties go to the smaller.

    Args:
        survival: [B, Kmax] old survivals.
        available: [B] available drafts.
        seconds: [M + 1] step time with m drafts, M >= sum of `available`.
    """
    inside = np.arange(survival.shape[1]) < available[:, None]
    ranked = np.sort(survival[inside])[::-1]
    tokens = float(len(available)) + np.concatenate(([0.0], np.cumsum(ranked)))
    return int(np.argmax(tokens / seconds[: len(tokens)]))


def best_uniform(
    survival: FloatArray, available: IntArray, seconds: FloatArray, rungs: tuple[int, ...]
) -> int:
    """Return the K of `rungs` with the most expected tokens per second if all verify it."""
    position = np.arange(survival.shape[1])
    best, chosen = -1.0, rungs[0]
    for k in rungs:
        verify = np.minimum(available, k)
        value = float(np.sum(survival, where=position < verify[:, None]))
        goodput = (len(available) + value) / float(seconds[int(verify.sum())])
        if goodput > best:
            best, chosen = goodput, k
    return chosen
