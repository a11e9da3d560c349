"""The KV guard leaves an engine with one K per batch a K that it can run."""

from __future__ import annotations

import numpy as np
import pytest

from adaptive_spec import Capability, Level
from adaptive_spec.controller.kv_guard import affordable_drafts
from adaptive_spec.step import StepContext


@pytest.mark.parametrize(("free", "k"), [(2, 1), (6, 1), (9, 3), (12, 5)])
def test_trimming_stays_on_the_ladder(free: int, k: int) -> None:
    context = StepContext(
        step=0,
        capability=Capability(level=Level.UNIFORM, max_draft_tokens=5, ladder=(1, 3, 5)),
        request_ids=["a", "b"],
        slots=np.arange(2),
        context_tokens=np.array([10, 20]),
        draft_available=np.array([5, 5]),
        draft_possible=np.array([5, 5]),
        engine_k=5,
        tpot_target=np.full(2, np.inf),
        task=np.full(2, -1),
        temperature=np.zeros(2),
        kv_free_tokens=free,
    )
    assert affordable_drafts(context) == k
