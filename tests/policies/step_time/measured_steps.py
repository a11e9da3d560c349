"""Steps as an engine measures them."""

from __future__ import annotations

import numpy as np

from adaptive_spec.step import Capability, Level, StepOutcome

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
