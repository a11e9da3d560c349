"""Installed but not enabled, or only watching: SGLang behaves exactly as without us."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import pytest
from records import plans, read
from serving import HERE, PATIENT, Job, environment
from traffic import prompts

pytestmark = pytest.mark.engine

WITHOUT_US = {"SGLANG_PLUGINS": "sgl_kernel_stand_in"}


def schedule_of(engine: Any) -> Any:
    """Tokens, SGLang's counters and its changes of K, of one request after another.

    One at a time, so that batches don't depend on timing.
    """
    answered = []
    for index, text in enumerate(prompts(8, 41)):
        job = Job(f"inert-{index}", text, {"max_new_tokens": 60})
        answer = engine.run([job])[job.name]
        own = {key: value for key, value in answer.meta.items() if key.startswith("spec_")}
        answered.append((answer.tokens, own))
    changes = re.findall(r"Switch adaptive runtime state.*", engine.log)
    return answered, changes


@pytest.fixture(scope="module")
def stock(shelf: Any) -> Any:
    answered, changes = schedule_of(shelf.get("EAGLE", variables=WITHOUT_US))
    assert len(changes) > 2, "SGLang's own K should have moved"
    return answered, changes


def test_not_enabled_schedules_as_stock(shelf: Any, stock: Any) -> None:
    engine = shelf.get("EAGLE")
    assert schedule_of(engine) == stock
    assert "adaptive_spec:" not in engine.log


def test_shadow_schedules_as_stock_and_decides_all_the_same(shelf: Any, stock: Any) -> None:
    watching = {"mode": "shadow", "policy": "recorded_policies:CyclePolicy", "fail_open": PATIENT}
    engine = shelf.get("EAGLE", adaptive=watching)
    assert schedule_of(engine) == stock
    record = plans(read(engine.record_file))
    assert len(record) > 100
    assert any(line["k"] != line["engine_k"] for line in record)


def test_not_enabled_no_function_of_sglang_is_changed() -> None:
    described = json.loads(run_probe(environment()))
    assert described["ours"] == [], described
    assert described["functions"] > 100
    assert described["hooks"] == []
    assert "adaptive_spec.adapters.sglang.hooks" not in described["modules"]


def test_enabled_functions_of_sglang_are_hooked(tmp_path: Any) -> None:
    """So that the test before this one can fail."""
    from serving import write_config

    config = write_config(tmp_path, policy="static", options={"k": 1})
    described = json.loads(run_probe(environment(config=config)))
    assert "Scheduler.run_batch" in described["ours"]
    assert described["hooks"]


def run_probe(variables: dict[str, str]) -> str:
    """What a process that has loaded its plugins as a scheduler does looks like."""
    done = subprocess.run(
        [sys.executable, str(HERE / "probe.py")],
        env=variables,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()[-1]
