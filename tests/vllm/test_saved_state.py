"""What was learned in one run of an engine is there in the next one of the same engine only."""

import json
from pathlib import Path
from typing import Any

import pytest
from engines import PATIENT, Job, check_same
from scenarios import prompts


def jobs() -> list[Job]:
    return [
        Job(f"request-{place}", text, 0, {"max_tokens": 24})
        for place, text in enumerate(prompts(6, 19))
    ]


@pytest.mark.engine
def test_a_restarted_engine_goes_on_from_what_the_last_one_learned(
    shelf: Any, tmp_path: Path
) -> None:
    adaptive = {
        "policy": "goodput",
        "state_directory": str(tmp_path),
        "fail_open": PATIENT,
    }
    engine = shelf.get("draft_model", adaptive=adaptive)
    assert not engine.controller.policy.state()
    answers = engine.run(jobs())
    learned = json.loads(json.dumps(engine.controller.policy.state()))
    assert learned["step_times"]["steps"] > 0
    positions = learned["acceptance"]["positions"]
    assert positions["mean"] != positions["prior_mean"]
    shelf.clear()
    (path,) = tmp_path.iterdir()
    identity = json.loads(path.read_bytes())["identity"]
    assert identity["engine"].startswith("vllm ")
    assert {"model", "drafter", "device", "dtype", "capability"} <= identity.keys()
    assert "None" not in (identity["model"], identity["drafter"], identity["device"])

    engine = shelf.get("draft_model", adaptive=adaptive)
    assert engine.controller.policy.state() == learned
    again = engine.run(jobs())
    check_same(again, answers)
    assert engine.controller.counters.failures == {}
    shelf.clear()
    assert list(tmp_path.iterdir()) == [path]

    other = {"num_speculative_tokens": 3}
    engine = shelf.get("draft_model", adaptive=adaptive, speculation=other)
    assert not engine.controller.policy.state()
    engine.run(jobs())
    shelf.clear()
    assert len(list(tmp_path.iterdir())) == 2
