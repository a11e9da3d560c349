"""Steps for tests: what an engine says before one and after it, with plain values for the rest."""

from typing import Any

import numpy as np

from adaptive_spec.step import Capability, IntArray, Level, StepContext, StepOutcome


def full(kmax: int, **fields: Any) -> Capability:
    """An engine that runs one K per request."""
    return Capability(level=Level.FULL, max_draft_tokens=kmax, **fields)


def rows(value: Any, batch: int) -> IntArray:
    """[B] integers; one number stands for all requests."""
    return np.array(np.broadcast_to(value, batch), dtype=np.int64)


def context(batch: int = 1, capability: Capability | int = 5, **changes: Any) -> StepContext:
    """A step of requests in slots 0, 1, ..., with Kmax drafts at hand and no signal.

    Args:
        batch: requests; where `slots` are given, their number.
        capability: of the engine; a number: Kmax of one that runs one K per request.
        **changes: fields; an integer of every request may be given as one number or a list.
    """
    engine = full(capability) if isinstance(capability, int) else capability
    kmax = engine.max_draft_tokens
    slots: IntArray = np.array(changes.pop("slots", np.arange(batch)), dtype=np.int64)
    batch = len(slots)
    integers = {"context_tokens": 100, "draft_available": kmax, "draft_possible": kmax, "task": -1}
    fields: dict[str, Any] = {
        "step": 0,
        "capability": engine,
        "request_ids": [f"r{slot}" for slot in slots],
        "slots": slots,
        "engine_k": kmax,
        "tpot_target": np.full(batch, np.inf),
        "temperature": np.zeros(batch),
    }
    fields |= {name: rows(changes.pop(name, value), batch) for name, value in integers.items()}
    return StepContext(**(fields | changes))


def outcome(of: StepContext, verified: Any, accepted: Any = 0, **changes: Any) -> StepOutcome:
    """The outcome of a step, in which each request emits what was accepted and one token more.

    Args:
        of: the step.
        verified, accepted: drafts of each request; one number stands for all of them.
        **changes: fields. The drafter went as deep as the most drafts verified, by default.
    """
    ran, right = rows(verified, of.batch_size), rows(accepted, of.batch_size)
    fields: dict[str, Any] = {
        "step": of.step,
        "slots": of.slots,
        "verified": ran,
        "accepted": right,
        "emitted": right + 1,
        "batch_size": of.batch_size,
        "batch_tokens": of.batch_size + int(ran.sum()),
        "context_tokens": int(of.context_tokens.sum()),
        "prefill_tokens": of.prefill_tokens,
        "draft_depth": int(ran.max(initial=0)),
        "ragged": len(set(ran.tolist())) > 1,
        "seconds": 0.01,
        "now": of.now,
    }
    return StepOutcome(**(fields | changes))
