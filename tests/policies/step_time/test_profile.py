"""A cost profile is read, is where the cost model starts, and is what the cost model gives back."""

import json
from pathlib import Path

import msgspec
import pytest

from adaptive_spec.errors import ConfigError
from adaptive_spec.policies.step_time.model import CostModel
from adaptive_spec.policies.step_time.profile import CostProfile, load_profile
from adaptive_spec.step import Capability, Level

FULL = Capability(level=Level.FULL, max_draft_tokens=6)


def test_a_profile_predicts_from_the_first_step(tmp_path: Path) -> None:
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
    path = tmp_path / "profile.json"
    path.write_bytes(msgspec.json.encode(profile))
    assert load_profile(path) == profile
    learned = model.profile()
    assert learned is not None
    assert msgspec.json.decode(msgspec.json.encode(learned), type=CostProfile) == learned


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        json.dumps({"tokens": [1, 2], "seconds": [0.1]}),
        json.dumps({"tokens": [2, 1], "seconds": [0.1, 0.2]}),
        json.dumps({"tokens": [1, 2], "seconds": [0.1, -0.2]}),
        json.dumps({"tokens": [1, 2], "seconds": [0.1, 0.2], "schema": 2}),
        json.dumps({"tokens": [1, 2], "seconds": [0.1, 0.2], "draft": 1}),
    ],
)
def test_a_bad_profile_is_one_error_that_names_the_file(text: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"bad\.json"):
        load_profile(path)
