"""The KV guard leaves an engine with one K per batch a K that it can run."""

import pytest

from adaptive_spec import Capability, Level
from adaptive_spec.controller.kv_guard import affordable_drafts
from tests import steps


@pytest.mark.parametrize(("free", "k"), [(2, 1), (6, 1), (9, 3), (12, 5)])
def test_trimming_stays_on_the_ladder(free: int, k: int) -> None:
    context = steps.context(
        2,
        Capability(level=Level.UNIFORM, max_draft_tokens=5, ladder=(1, 3, 5)),
        context_tokens=[10, 20],
        kv_free_tokens=free,
    )
    assert affordable_drafts(context) == k
