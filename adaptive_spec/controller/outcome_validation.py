"""Validation of outcomes: what no engine can have run must not be learned."""

from __future__ import annotations

from operator import gt

from adaptive_spec.step import Capability, StepOutcome


def outcome_fault(outcome: StepOutcome, capability: Capability) -> str:
    """Describe what is impossible about an outcome in a few words; empty if nothing is.

    Checks: rows of one length, 0 <= accepted <= verified <= Kmax, emitted tokens and slots not
    negative, totals that fit the batch, depth within 0..Kmax. Durations are left to the cost model,
    and requests that the context lacks to `finished_step`: both leave out what they cannot use.
    """
    slots, verified, accepted = outcome.slots, outcome.verified, outcome.accepted
    kmax, batch = capability.max_draft_tokens, outcome.batch_size
    if not slots.shape == verified.shape == accepted.shape == outcome.emitted.shape:
        return "rows differ in number"
    if slots.size:
        # Lists: each reduction by numpy takes microseconds, more than a small batch.
        right, drafts = accepted.tolist(), verified.tolist()
        if min(right) < 0 or max(drafts) > kmax or any(map(gt, right, drafts)):
            return "not 0 <= accepted <= verified <= Kmax"
        if min(outcome.emitted.tolist()) < 0 or min(slots.tolist()) < 0:
            return "a negative count or slot"
        agreed = outcome.lookup_agreed
        if agreed is not None and (agreed.shape != slots.shape or agreed.min() < 0):
            return "looked-up drafts are not counted by request"
    if not slots.size <= batch <= outcome.batch_tokens:
        return "totals do not fit the batch"
    if not 0 <= outcome.draft_depth <= kmax:
        return "draft depth leaves 0..Kmax"
    return "a negative count" if min(outcome.context_tokens, outcome.prefill_tokens) < 0 else ""
