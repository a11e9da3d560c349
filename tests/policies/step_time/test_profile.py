"""A cost profile is where the cost model starts, and is what the cost model gives back."""

import msgspec
import pytest

from adaptive_spec.policies.cost_profile import CostProfile
from adaptive_spec.policies.step_time.model import CostModel
from adaptive_spec.step import Capability, Level

FULL = Capability(level=Level.FULL, max_draft_tokens=6)


def test_a_profile_predicts_from_the_first_step() -> None:
    profile = CostProfile(
        tokens=[1, 64, 128],
        seconds=[0.01, 0.02, 0.04],
        draft_pass=0.001,
        any_draft_per_context_token=1e-6,
    )
    model = CostModel(FULL, profile)
    assert model.ready
    verify = model.verify_seconds(64, 0, 0)
    assert verify[0] == pytest.approx(0.02, rel=0.02)
    assert verify[64] == pytest.approx(0.04, rel=0.02)
    longer = model.verify_seconds(64, 10_000, 0) - verify
    assert longer[0] == pytest.approx(0.0)
    assert longer[1] == pytest.approx(0.01)
    assert model.draft_seconds(64)[3] == pytest.approx(0.003)
    learned = model.profile()
    assert learned is not None
    assert msgspec.json.decode(msgspec.json.encode(learned), type=CostProfile) == learned
