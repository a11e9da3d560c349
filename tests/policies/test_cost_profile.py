"""A cost profile is read as it was written, and a bad file is one error."""

import json
from pathlib import Path

import msgspec
import pytest

from adaptive_spec.errors import ConfigError
from adaptive_spec.policies.cost_profile import CostProfile, load_profile


def test_a_profile_is_read_as_it_was_written(tmp_path: Path) -> None:
    profile = CostProfile(tokens=[1, 64, 128], seconds=[0.01, 0.02, 0.04], draft_pass=0.001)
    path = tmp_path / "profile.json"
    path.write_bytes(msgspec.json.encode(profile))
    assert load_profile(path) == profile


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
