"""A model file is checked whole before anything is decided from it."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from adaptive_spec.errors import PolicyError
from adaptive_spec.policies.regression.model_file import default_model, load_model
from tests.policies.regression.fake_models import known_model, regression
from tests.refused import refused


def test_without_a_model_the_shipped_one_is_used_and_that_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level("INFO"):
        regression()
    assert "adaptive-spec fit" in caplog.text
    assert default_model().calibration is not None


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "No such file"),
        ("{", "adaptive-spec fit"),
        ('{"schema": 2}', "schema"),
        ("[1, 2]", "adaptive-spec fit"),
    ],
)
def test_a_model_that_cannot_be_read_is_one_clear_error(
    tmp_path: Path, content: str | None, says: str
) -> None:
    path = tmp_path / "model.json"
    if content is not None:
        path.write_text(content)
    with refused(PolicyError, str(path), "adaptive-spec fit", match=says):
        regression(model=str(path))


@pytest.mark.parametrize(
    ("place", "value", "says"),
    [
        (["average"], [0.5, 1.5], "average"),
        (["history", "intercepts"], [0.0], "intercepts"),
        (["history", "weights"], [1.0], "differ in length"),
        (["drafts", "features", 0, "name"], "token_probability", "unknown feature"),
        (["drafts", "weights"], [1e300], "out of range"),
        (["drafts", "features", 0, "scale"], 0.0, "scale"),
        (["tasks"], {"code": 1e9}, "tasks"),
    ],
)
def test_a_model_that_does_not_fit_together_is_refused(
    tmp_path: Path, place: list[Any], value: Any, says: str
) -> None:
    content = json.loads(msgspec.json.encode(known_model()))
    inner = content
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    path = tmp_path / "model.json"
    path.write_text(json.dumps(content))
    with pytest.raises(PolicyError, match=says):
        load_model(path)
