"""`adaptive-spec fit`: sources of each kind in, a model file out."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from adaptive_spec.errors import ConfigError, DataError
from adaptive_spec.policies.regression import load_model
from adaptive_spec.policy import build_policy
from adaptive_spec.sim.commands.fit import fit
from adaptive_spec.sim.engine.options import EngineOptions
from adaptive_spec.sim.fit.sources import read_source
from adaptive_spec.sim.scenario import Scenario
from tests.refused import refused
from tests.sim.recorded_steps import step_row, write_steps

APP = typer.Typer(pretty_exceptions_enable=False)
APP.command()(fit)


def run(*arguments: object) -> Any:
    result = CliRunner().invoke(APP, [str(each) for each in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a simulated server records under a policy that varies K."""
    folder = tmp_path_factory.mktemp("trace")
    scenario = Scenario(
        load="closed:8",
        acceptance=("model:good",),
        drafter="eagle",
        hardware="h100-llama-8b",
        engine=EngineOptions(max_draft_tokens=4),
        tokens=9000,
        trace_directory=str(folder),
        confidence_auc=0.85,
    )
    scenario.run(build_policy("static", {"uniform_fraction": 0.8}, seed=0), "static")
    return folder


def npz(folder: Path) -> Path:
    random = np.random.default_rng(0)
    confidence = random.uniform(0.05, 0.95, (900, 4))
    hits = (random.random((900, 4)) < confidence).cumprod(axis=1).sum(axis=1)
    path = folder / "draft_t0.8.npz"
    np.savez(
        path,
        accepted=hits.astype(np.int8),
        request=np.repeat(np.arange(30), 30).astype(np.int16),
        max_prob=confidence.astype(np.float16),
        entropy=(1 - confidence).astype(np.float16),
    )
    return path


def lists(folder: Path) -> Path:
    random = np.random.default_rng(0)
    path = folder / "lists.jsonl"
    rows = [
        {"id": n, "prompt_len": 50, "eagle": random.geometric(0.35, 80).clip(1, 9).tolist()}
        for n in range(25)
    ]
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    return path


def test_traces_records_and_lists_are_read(trace: Path, tmp_path: Path) -> None:
    traced = read_source(trace)
    assert traced.times
    assert np.isfinite(traced.steps.confidence[traced.steps.verified > 0, 0]).all()
    (segment,) = trace.glob("steps-*.jsonl")
    assert read_source(segment).steps.requests == traced.steps.requests

    from_npz = read_source(npz(tmp_path)).steps
    assert (from_npz.verified == 4).all()
    assert np.isfinite(from_npz.confidence).all()

    from_lists = read_source(lists(tmp_path), kmax=5).steps
    assert set(from_lists.verified.tolist()) == {1, 2, 3, 4, 5}
    assert (from_lists.accepted <= from_lists.verified).all()


def test_the_model_is_written_measured_and_runs(trace: Path, tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    out = tmp_path / "model.json"
    result = run(trace, lists(tmp_path), npz(tmp_path), "--out", out)
    assert "AUC" in result.output
    assert "ECE" in result.output
    model = load_model(out)
    assert model.drafts is not None
    assert model.step_times is not None
    assert len(model.calibration["history"]) > 2
    policy = build_policy("regression", {"model": str(out)}, seed=0)
    scenario = Scenario(
        load="closed:4",
        acceptance=("model:good",),
        drafter="eagle",
        hardware="h100-llama-8b",
        engine=EngineOptions(max_draft_tokens=4),
        tokens=2000,
    )
    assert scenario.run(policy, "regression").fail_opens == 0


def test_step_times_of_a_trace_are_found(trace: Path, tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    out = tmp_path / "model.json"
    run(trace, "--out", out, "--json")
    model = load_model(out)
    assert model.step_time_error is not None
    assert model.step_time_error < 0.03


def test_json_tells_calibration_by_position(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    out = tmp_path / "model.json"
    result = run(npz(tmp_path), "--out", out, "--json")
    value = json.loads(result.output)
    assert value["output"] == str(out)
    assert [row["position"] for row in value["calibration"]["drafts"]][:3] == [0, 1, 2]


def test_without_scikit_learn_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import builtins
    import importlib

    real = importlib.import_module

    def absent(name: str, package: str | None = None) -> Any:
        if name.startswith("sklearn"):
            raise ImportError(name)
        return real(name, package)

    del builtins
    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(ConfigError, match=r"'\.\[fit\]' in a checkout"):
        run(npz(tmp_path), "--out", tmp_path / "model.json")
    assert not (tmp_path / "model.json").exists()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "no such file"),
        ('{"schema": 1, "ids": ["a"], "k": [1], "accepted": [2]}\n', "step None: .*`step`"),
        ("not json\n", "row 1"),
        ("", "empty"),
    ],
)
def test_a_source_that_cannot_be_used_is_one_clear_error(
    tmp_path: Path, content: str | None, says: str
) -> None:
    path = tmp_path / "steps.jsonl"
    if content is not None:
        path.write_text(content)
    with refused(DataError, str(path), match=says):
        run(path, "--out", tmp_path / "model.json")


def test_an_empty_folder_and_a_place_that_cannot_be_written_are_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="without steps"):
        run(tmp_path, "--out", tmp_path / "model.json")
    with pytest.raises(DataError, match="no folder"):
        run(npz(tmp_path), "--out", tmp_path / "none" / "model.json")


def test_a_trace_that_never_speculated_is_said(tmp_path: Path) -> None:
    row = step_row(0, ["a"], [0], [0], mode="off_warm")
    write_steps(tmp_path / "steps-1-000000.jsonl", row)
    with pytest.raises(DataError, match="no step verified a draft"):
        run(tmp_path, "--out", tmp_path / "model.json")
