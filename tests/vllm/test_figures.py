"""The file by which an engine's figures reach the API server; no engine runs here."""

import os
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from adaptive_spec import Capability, Config, Controller, Level
from adaptive_spec.adapters.vllm.metrics import EngineFigures, Metrics, status_path


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("PROMETHEUS_MULTIPROC_DIR", raising=False)


def server(name: str) -> Any:
    return SimpleNamespace(
        instance_id=name,
        parallel_config=SimpleNamespace(data_parallel_index=0, data_parallel_size=1),
        model_config=SimpleNamespace(served_model_name="bench"),
    )


def engine(name: str) -> tuple[Metrics, Controller]:
    capability = Capability(level=Level.FULL, max_draft_tokens=4)
    controller = Controller.from_config(Config(policy="static"), capability)
    return Metrics(server(name), controller), controller


def test_figures_of_a_killed_engine_are_removed_at_the_next_start(tmp_path: Path) -> None:
    status_path("killed", 0).write_text("{}")
    (tmp_path / "of-somebody-else.json").write_text("{}")
    alive, _ = engine("alive")
    alive.refresh(10.0)
    engine("new")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [status_path("alive", 0).name, "of-somebody-else.json"]
    )


def test_a_full_disk_is_counted_and_the_figures_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics, controller = engine("a")

    def full(handle: int, content: bytes) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.write", full)
        metrics.refresh(10.0)
    assert controller.status()["output_failures"] == {"figures": 1}
    assert not list(tmp_path.iterdir())
    metrics.refresh(100.0)
    names = {family.name for family in EngineFigures(server("a")).collect()}
    assert {"adaptive_spec_status_timestamp_seconds", "adaptive_spec_output_failures"} <= names


def test_a_planted_pipe_does_not_stop_the_page() -> None:
    os.mkfifo(status_path("a", 0))
    assert list(EngineFigures(server("a")).collect()) is not None
    metrics, controller = engine("a")
    metrics.refresh(10.0)
    assert controller.status()["output_failures"] == {}
    assert list(EngineFigures(server("a")).collect())
