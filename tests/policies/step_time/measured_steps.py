"""Steps as an engine measures them."""

from __future__ import annotations

import numpy as np

from adaptive_spec.step import Capability, Level, StepContext, StepOutcome

FULL = Capability(level=Level.FULL, max_draft_tokens=6)


def step(batch: int, k: int, depth: int, seconds: float, prefill: int = 0) -> StepOutcome:
    full = np.full(batch, k, dtype=np.int64)
    return StepOutcome(
        step=0,
        slots=np.arange(batch),
        verified=full,
        accepted=full,
        emitted=full + 1,
        batch_size=batch,
        batch_tokens=batch * (1 + k),
        context_tokens=100 * batch,
        prefill_tokens=prefill,
        draft_depth=depth,
        ragged=False,
        seconds=seconds,
    )


def decoding(batch: int) -> StepContext:
    """A step in which every request has as many drafts as it can use."""
    full = np.full(batch, FULL.max_draft_tokens, dtype=np.int64)
    return StepContext(
        step=0,
        capability=FULL,
        request_ids=[f"r{n}" for n in range(batch)],
        slots=np.arange(batch),
        context_tokens=np.full(batch, 100),
        draft_available=full,
        draft_possible=full,
        engine_k=3,
        tpot_target=np.full(batch, np.inf),
        task=np.full(batch, -1),
        temperature=np.zeros(batch),
    )
