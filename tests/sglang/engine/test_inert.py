"""Installed but not enabled, or only watching: SGLang behaves exactly as without us."""

import json
import re
import subprocess
import sys
from typing import Any

import pytest
from records import plans, read
from serving import HERE, PATIENT, Job, environment, write_config
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
def not_enabled(shelf: Any) -> Any:
    engine = shelf.get("EAGLE")
    answered, changes = schedule_of(engine)
    assert len(changes) > 2, "SGLang's own K should have moved"
    assert "adaptive_spec:" not in engine.log
    return answered, changes


@pytest.mark.long
def test_not_enabled_schedules_as_without_the_plugin(shelf: Any, not_enabled: Any) -> None:
    assert schedule_of(shelf.get("EAGLE", variables=WITHOUT_US)) == not_enabled


@pytest.mark.long
def test_shadow_schedules_as_not_enabled_and_decides_all_the_same(
    shelf: Any, not_enabled: Any
) -> None:
    watching = {"mode": "shadow", "policy": "recorded_policies:CyclePolicy", "fail_open": PATIENT}
    engine = shelf.get("EAGLE", adaptive=watching)
    assert schedule_of(engine) == not_enabled
    record = plans(read(engine.record_file))
    assert len(record) > 100
    assert any(line["k"] != line["engine_k"] for line in record)


@pytest.mark.long
def test_shadow_share_runs_other_k_and_the_text_stays(shelf: Any, not_enabled: Any) -> None:
    sharing = {"mode": "shadow", "shadow_share": 1.0, "policy": "static", "fail_open": PATIENT}
    engine = shelf.get("EAGLE", adaptive={**sharing, "options": {"k": 3}})
    answered, _ = schedule_of(engine)
    assert [tokens for tokens, _ in answered] == [tokens for tokens, _ in not_enabled[0]]
    own = {counters["spec_verify_ct"] for _, counters in not_enabled[0]}
    assert {counters["spec_verify_ct"] for _, counters in answered} != own


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """A scheduler process with its plugins: nothing switched on, and switched on."""
    config = write_config(tmp_path_factory.mktemp("probe"), policy="static", options={"k": 1})
    done = subprocess.run(
        [sys.executable, str(HERE / "probe.py"), str(config)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()[-2:]]


@pytest.mark.every_version
def test_not_enabled_no_function_of_sglang_is_changed(probed: list[dict[str, Any]]) -> None:
    described = probed[0]
    assert described["ours"] == [], described
    assert described["functions"] > 100
    assert described["hooks"] == []
    assert "adaptive_spec.adapters.sglang.plugin" in described["modules"]
    assert "adaptive_spec.adapters.sglang.hooks" not in described["modules"]


@pytest.mark.every_version
def test_enabled_functions_of_sglang_are_hooked(probed: list[dict[str, Any]]) -> None:
    """So that the test before this one can fail."""
    described = probed[1]
    assert "Scheduler.run_batch" in described["ours"]
    assert described["hooks"]
