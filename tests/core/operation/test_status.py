"""What the status counts stays bounded, whatever clients send."""

from __future__ import annotations

import msgspec
import numpy as np

from adaptive_spec.operation.status import Counters
from tests.core.controller.test_controller import outcome


def test_drafts_are_counted_for_the_task_labels_used_last() -> None:
    counters = Counters()
    finished = msgspec.structs.replace(outcome(0), slots=np.arange(3))
    for label in range(1000):
        counters.tasks(np.array([label, 5, -1]), finished)
    counted = counters.snapshot()["drafts_by_task"]
    assert len(counted) == 64
    assert counted["999"] == [3, 1]
    assert counted["5"] == [2000 + 3, 2000 + 1]
