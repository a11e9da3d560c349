"""Hazards are fitted without the bias of censoring, measured on other requests, and written."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from adaptive_spec.errors import ConfigError, DataError
from adaptive_spec.policies.regression import load_model
from adaptive_spec.policy import build_policy
from adaptive_spec.sim.acceptance.imputation import RecordedSteps
from adaptive_spec.sim.commands.fit import fit
from adaptive_spec.sim.engine.options import EngineOptions
from adaptive_spec.sim.fit import average_hazards, fit_hazards, fit_model, histories, joined
from adaptive_spec.sim.scenario import Scenario
from tests.refused import refused
from tests.sim.recorded_steps import step_row, write_steps

pytest.importorskip("sklearn")

TRUE_HAZARDS = np.array([0.8, 0.6, 0.4, 0.3])
APP = typer.Typer(pretty_exceptions_enable=False)
APP.command()(fit)


def run(*arguments: object) -> Any:
    result = CliRunner().invoke(APP, [str(each) for each in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def recorded(
    requests: int = 60,
    steps: int = 40,
    *,
    spread: float = 0.0,
    confident: bool = False,
    seed: int = 0,
    k_follows: bool = False,
) -> RecordedSteps:
    """Steps of requests with known hazards; K is drawn, or follows how good the request is."""
    random = np.random.default_rng(seed)
    effect = spread * random.standard_normal(requests)
    request = np.repeat(np.arange(requests), steps)
    logits = np.log(TRUE_HAZARDS / (1 - TRUE_HAZARDS)) + effect[request][:, None]
    shown = np.full((len(request), 4), np.nan)
    if confident:
        signal = 1.5 * random.standard_normal(shown.shape)
        logits = logits + signal
        shown = 1 / (1 + np.exp(-signal))
    hits = random.random(logits.shape) < 1 / (1 + np.exp(-logits))
    k = random.integers(1, 5, len(request))
    if k_follows:
        k = np.where(effect[request] > 0, 4, 1)
    accepted = np.minimum(hits.cumprod(axis=1).sum(axis=1), k)
    return RecordedSteps(k, accepted, accepted + 1, np.arange(requests + 1) * steps, shown)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Record the trace of a simulated server whose policy varies K."""
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
    request = np.repeat(np.arange(30), 30)
    np.savez(path, accepted=hits, request=request, max_prob=confidence.astype(np.float16))
    return path


def test_hazards_are_those_of_the_drafter_whatever_k_cut_off() -> None:
    steps, at = recorded(200), np.arange(4)[:, None]
    seen = at < np.minimum(steps.accepted + 1, steps.verified)
    assert average_hazards(at < steps.accepted, seen, 4) == pytest.approx(TRUE_HAZARDS, abs=0.03)


def test_history_is_what_was_known_before_the_step() -> None:
    steps = recorded(5, 30, spread=1.5)
    x = histories(steps, TRUE_HAZARDS.tolist()).reshape(5, 30)
    assert not x[:, 0].any()
    assert x[:, 1:].any()
    last = np.where(np.arange(150) % 30 == 29, 0, steps.accepted)
    assert (
        histories(replace(steps, accepted=last), TRUE_HAZARDS.tolist()).reshape(5, 30) == x
    ).all()


def test_requests_that_differ_are_told_apart_on_others() -> None:
    model = fit_hazards(recorded(150, spread=1.2), held_out=0.4)
    alike = fit_hazards(recorded(150), held_out=0.4)
    assert model.calibration is not None
    assert alike.calibration is not None
    assert (model.calibration["requests"], model.calibration["held_out"]) == (90, 60)
    found, blind = (each.calibration["without_confidence"] for each in (model, alike))
    assert found["auc"] > blind["auc"] + 0.03
    assert found["ece"] < 0.06


def test_k_that_follows_acceptance_does_not_bias_a_position() -> None:
    """Only good requests verify positions 2 to 4; history tells that they are good."""
    model = fit_hazards(recorded(300, spread=1.0, k_follows=True, seed=3), held_out=0.3)
    raw = float(np.log(model.average[1] / (1 - model.average[1])))
    true = float(np.log(0.6 / 0.4))
    assert abs(model.history.intercepts[1] - true) < abs(raw - true)


def test_draft_confidence_is_fitted_where_it_was_recorded() -> None:
    model = fit_hazards(recorded(100, confident=True), held_out=0.3)
    assert model.drafts is not None
    assert model.calibration is not None
    assert model.drafts.confidence == pytest.approx(1.0, abs=0.15)
    with_it, without = (model.calibration[f"with{each}_confidence"] for each in ("", "out"))
    assert with_it["auc"] > without["auc"] + 0.1
    assert with_it["ece"] < 0.05
    assert fit_hazards(recorded(60), held_out=0.3).drafts is None


def test_sources_are_joined_and_their_requests_numbered_on() -> None:
    short = recorded(40, confident=True, seed=1)
    assert short.confidence is not None
    bare, narrow = (
        replace(short, confidence=None),
        replace(short, confidence=short.confidence[:, :2]),
    )
    both = joined([bare, narrow])
    assert both.offsets.tolist() == (40 * np.arange(81)).tolist()
    assert both.confidence is not None
    assert both.confidence.shape == (3200, 4)
    assert np.isnan(both.confidence[:1600]).all()
    assert np.isfinite(both.confidence[1600:, :2]).all()


@pytest.mark.parametrize(
    ("steps", "held_out", "says"),
    [
        (recorded(5), 0.3, "5 requests"),
        (recorded(20, 2), 0.3, "drafts were observed"),
        (recorded(12), 0.01, "held out"),
        (replace(recorded(), accepted=np.zeros(2400, dtype=np.int64)), 0.3, "same outcome"),
    ],
)
def test_too_little_to_fit_to_is_said(steps: RecordedSteps, held_out: float, says: str) -> None:
    with pytest.raises(DataError, match=says):
        fit_hazards(steps, held_out=held_out, source="trace")


def test_the_model_is_written_measured_and_runs(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "model.json"
    said = run(trace, npz(tmp_path), "--out", out).output
    assert "with confidence: AUC 0." in said
    model = load_model(out)
    assert model.drafts is not None
    assert model.step_time_error is not None
    assert model.step_time_error < 0.03
    assert model.source.endswith(", draft_t0.8.npz")
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
    value = json.loads(run(npz(tmp_path), "--out", out, "--json").output)
    assert value["output"] == str(out)
    assert value["calibration"]["with_confidence"]["auc"] > 0.7


def test_without_scikit_learn_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.linear_model", None)
    with pytest.raises(ConfigError, match=r"'\.\[fit\]' in a checkout"):
        run(npz(tmp_path), "--out", tmp_path / "model.json")
    assert not (tmp_path / "model.json").exists()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "no such directory or file"),
        ('{"schema": 1, "ids": ["a"], "k": [1], "accepted": [2]}\n', "step None: .*`step`"),
        ("not json\n", ":1: not a step record"),
        (step_row(0, ["a"], [0], [0], mode="off_warm"), "no step verified a draft"),
    ],
)
def test_a_source_that_cannot_be_used_is_one_clear_error(
    tmp_path: Path, content: Any, says: str
) -> None:
    path = tmp_path / "steps-1-000000.jsonl"
    if isinstance(content, str):
        path.write_text(content)
    elif content is not None:
        write_steps(path, content)
    with refused(DataError, str(path), match=says):
        run(path, "--out", tmp_path / "model.json")


def test_an_empty_folder_and_a_place_that_cannot_be_written_are_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="without steps"):
        run(tmp_path, "--out", tmp_path / "model.json")
    with pytest.raises(DataError, match="no folder"):
        run(npz(tmp_path), "--out", tmp_path / "none" / "model.json")


@pytest.mark.long
def test_the_shipped_model_is_what_our_own_records_give(data: Path) -> None:
    shipped = load_model(Path(__file__).parents[2] / "policies" / "regression_model.json")
    fitted = fit_model(sorted((data / "own").glob("*.npz")), name="default")
    assert shipped.average == pytest.approx(fitted.average, abs=1e-4)
    assert shipped.calibration is not None
    assert fitted.calibration is not None
    for way in ("without_confidence", "with_confidence"):
        assert shipped.calibration[way] == pytest.approx(fitted.calibration[way], abs=2e-3)
