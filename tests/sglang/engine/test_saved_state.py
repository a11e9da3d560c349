"""An engine starts with the state that the last one saved, in its own folder or a shared one."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from serving import PATIENT
from traffic import mixed_lengths

pytestmark = [pytest.mark.engine, pytest.mark.long]
SECONDS = 150.0
"""State is saved every 30 seconds; SGLang kills its processes, so not at their end."""


# A replica has something to tell others after 300 steps.
@pytest.mark.parametrize(
    ("key", "times", "said"),
    [
        ("state_directory", 1, "resumes from"),
        ("state", 8, "starts from 1 objects"),
    ],
)
def test_the_next_engine_starts_with_what_the_last_one_learned(
    shelf: Any, tmp_path: Path, key: str, times: int, said: str
) -> None:
    adaptive = {"policy": "goodput", "fail_open": PATIENT, key: str(tmp_path)}
    engine = shelf.get("EAGLE", adaptive=adaptive)
    until = time.monotonic() + SECONDS
    while times > 0 or (not list(tmp_path.iterdir()) and time.monotonic() < until):
        answers, times = engine.run(mixed_lengths()), times - 1
    assert said not in engine.log
    shelf.clear()
    (path,) = tmp_path.iterdir()
    saved = json.loads(path.read_bytes())
    assert saved["state"]["step_times"]["steps"] > 0
    identity = saved["identity"]
    assert identity["engine"].startswith("sglang ")
    named = "model", "drafter", "device", "dtype", "method"
    assert not {"None", ""} & {identity[name] for name in named}

    engine = shelf.get("EAGLE", adaptive=adaptive)
    again = engine.run(mixed_lengths())
    assert said in engine.log
    shelf.clear()
    assert {name: each.tokens for name, each in again.items()} == {
        name: each.tokens for name, each in answers.items()
    }
