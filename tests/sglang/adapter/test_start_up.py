"""What is switched on, refused or left alone, without an SGLang to switch on."""

from __future__ import annotations

import importlib.metadata
import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from scheduler_loop import LADDER, OwnSchedule

from adaptive_spec.adapters.sglang import doctor, plugin, signatures, versions
from adaptive_spec.adapters.sglang.attach import params_of
from adaptive_spec.adapters.sglang.capability import (
    NGRAM_NAME,
    SKIP_VARIABLE,
    detect,
    unsupported_here,
)
from adaptive_spec.adapters.sglang.settings import DEFAULT_DWELL, requested
from adaptive_spec.adapters.sglang.steered_params import SteeredParams
from adaptive_spec.errors import ConfigError, UnsupportedEngineError


def config_file(folder: Path, **values: Any) -> str:
    file = folder / "config.json"
    file.write_text(json.dumps(values))
    return str(file)


def test_settings_come_from_the_environment(tmp_path: Path) -> None:
    assert requested({}) is None
    path = config_file(tmp_path, mode="off")
    assert requested({"ADAPTIVE_SPEC_CONFIG": path}) is None
    path = config_file(tmp_path, mode="shadow")
    found = requested({"ADAPTIVE_SPEC_CONFIG": path})
    assert found is not None
    assert (found.config.mode, found.dwell, found.confidence) == ("shadow", DEFAULT_DWELL, False)
    variables = {
        "ADAPTIVE_SPEC_CONFIG": path,
        "ADAPTIVE_SPEC_SGLANG_DWELL": "1",
        "ADAPTIVE_SPEC_SGLANG_CONFIDENCE": "1",
    }
    found = requested(variables)
    assert found is not None
    assert (found.dwell, found.confidence) == (1, True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ADAPTIVE_SPEC_SGLANG_DWELL", "0"),
        ("ADAPTIVE_SPEC_SGLANG_DWELL", "often"),
        ("ADAPTIVE_SPEC_SGLANG_CONFIDENCE", "maybe"),
        ("ADAPTIVE_SPEC_CONFIG", "/no/such/file.json"),
    ],
)
def test_a_wrong_variable_is_named_in_one_line(tmp_path: Path, name: str, value: str) -> None:
    variables = {"ADAPTIVE_SPEC_CONFIG": config_file(tmp_path, mode="on")} | {name: value}
    with pytest.raises(ConfigError, match=name) as caught:
        requested(variables)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("version", ["0.5.14", "0.5.20", "0.5.22", "0.5.23", "0.5.23+cpu"])
def test_known_versions_are_used(version: str) -> None:
    versions.require_in_range(version)


@pytest.mark.parametrize("version", ["0.5.13", "0.4.9", "0.5.24", "0.6.0", "0.5.23rc1", "unknown"])
def test_other_versions_are_refused_with_one_line(version: str) -> None:
    with pytest.raises(UnsupportedEngineError, match=r"SGLang .* untested") as caught:
        versions.require_in_range(version)
    assert "\n" not in str(caught.value)


def test_the_documentation_has_the_table_of_versions() -> None:
    documentation = Path(__file__).parents[3] / "docs" / "sglang.md"
    assert versions.markdown_table() in documentation.read_text()


def test_only_an_executed_version_says_so() -> None:
    rows = {row.version: row.checked for row in versions.KNOWN_VERSIONS}
    for version, checked in rows.items():
        assert versions.was_executed(version) == ("never executed" not in checked)
    assert all(version in versions.markdown_table() for version in rows)


def test_not_switched_on_nothing_of_sglang_or_of_the_adapter_is_loaded() -> None:
    code = (
        "import sys\n"
        "from adaptive_spec.adapters.sglang.plugin import register\n"
        "register()\n"
        "print([m for m in sys.modules if m.startswith(('sglang', 'torch', 'numba'))\n"
        "       or m.startswith('adaptive_spec.adapters.sglang.')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={}
    )
    loaded = done.stdout.strip()
    assert loaded == (
        "['adaptive_spec.adapters.sglang.plugin', 'adaptive_spec.adapters.sglang.settings']"
    )
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("version", "values", "said"),
    [
        ("0.6.0", {"mode": "on"}, "SGLang 0.6.0 is untested"),
        ("0.5.23", {"mode": "sometimes"}, "ADAPTIVE_SPEC_CONFIG: "),
        ("0.5.23", {"policy": "magic"}, "unknown policy 'magic'"),
    ],
)
def test_refusals_are_one_line_and_never_raised(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    version: str,
    values: dict[str, Any],
    said: str,
) -> None:
    monkeypatch.setenv("ADAPTIVE_SPEC_CONFIG", config_file(tmp_path, **values))
    monkeypatch.setattr(importlib.metadata, "version", lambda name: version)
    monkeypatch.setattr(signatures, "installed_folder", lambda: tmp_path)
    monkeypatch.setattr(signatures, "available_features", lambda folder: frozenset())
    with caplog.at_level(logging.INFO, logger="sglang.adaptive_spec"):
        plugin.register()
    (line,) = caplog.messages
    assert "nothing is switched on" in line
    assert said in line
    assert "\n" not in line


def test_doctor_says_what_is_installed_and_enabled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ADAPTIVE_SPEC_CONFIG", raising=False)
    monkeypatch.setattr(doctor, "installed_version", lambda: None)
    report = doctor.describe()
    assert (report.engine, report.supported) == ("sglang", False)
    assert "not installed" in report.detail
    assert report.enabled.startswith("no ")
    monkeypatch.setattr(doctor, "installed_version", lambda: "0.9.0")
    assert "will refuse" in doctor.describe().detail
    monkeypatch.setattr(doctor, "installed_version", lambda: "0.5.18")
    monkeypatch.setattr(signatures, "installed_folder", lambda: tmp_path)
    features = frozenset({signatures.BASE, signatures.STANDALONE})
    monkeypatch.setattr(signatures, "available_features", lambda folder: features)
    monkeypatch.setenv("SGLANG_PLUGINS", "another")
    monkeypatch.setenv("ADAPTIVE_SPEC_CONFIG", config_file(tmp_path, policy="goodput"))
    report = doctor.describe()
    assert report.supported
    assert "STANDALONE" in report.detail
    assert "NGRAM" not in report.detail
    assert "never executed" in report.detail
    assert "does not name adaptive_spec" in report.detail
    assert report.enabled.startswith("mode on, policy goodput")


# --------------------------------------------------------------------- signatures


def tree(folder: Path, text: str) -> Path:
    file = folder / "managers" / "scheduler.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    signatures._parse.cache_clear()
    return folder


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("class S:\n    def run(self, batch, *, extra=None): self.b(self.a())", True),
        ("class S:\n    def run(self, batches): self.a(); self.b()", False),
        ("class T:\n    def run(self, batch): ...", False),
        ("class S:\n    run = None", False),
        ("class S(", False),
    ],
)
def test_a_changed_symbol_is_noticed(tmp_path: Path, text: str, fits: bool) -> None:
    fact = signatures.Fact(
        feature="f", file="managers/scheduler.py", symbol="S.run", parameters=("self", "batch")
    )
    assert signatures._holds(tree(tmp_path, text), fact) is fits


def test_a_changed_order_of_calls_is_noticed(tmp_path: Path) -> None:
    fact = signatures.Fact(
        feature="f", file="managers/scheduler.py", symbol="run", order=("first", "second")
    )
    assert signatures._holds(tree(tmp_path, "def run():\n  x.first()\n  second()"), fact)
    assert not signatures._holds(tree(tmp_path, "def run():\n  second()\n  first()"), fact)


def test_one_of_two_places_is_enough(tmp_path: Path) -> None:
    fact = signatures.Fact(
        feature="f", file="gone.py|managers/scheduler.py", symbol="A.set|S.set", parameters=("x",)
    )
    assert signatures._holds(tree(tmp_path, "class S:\n  def set(self, x): ..."), fact)
    assert not signatures._holds(tree(tmp_path, "class A:\n  def set(self, x): ..."), fact)


def test_without_a_base_fact_nothing_is_switched_on(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedEngineError, match="changed where we hook in") as caught:
        signatures.available_features(tmp_path)
    assert "\n" not in str(caught.value)


# --------------------------------------------------------------------- capability


class Algorithm:
    def __init__(self, name: str) -> None:
        self.name = name

    def is_none(self) -> bool:
        return self.name == "NONE"

    def is_eagle(self) -> bool:
        return self.name.startswith("EAGLE")

    def is_ngram(self) -> bool:
        return "NGRAM" in self.name

    def is_dspark(self) -> bool:
        return self.name == "DSPARK"


class Arguments:
    device = "cpu"
    disable_cuda_graph = False


class Scheduler:
    enable_overlap = True

    def __init__(self, name: str, **arguments: Any) -> None:
        self.spec_algorithm = Algorithm(name)
        self.server_args = Arguments()
        for key, value in arguments.items():
            setattr(self.server_args, key, value)


def test_eagle_is_steered_over_sglangs_own_candidates() -> None:
    support = detect(Scheduler("EAGLE3"), SteeredParams(OwnSchedule()))
    capability = support.capability
    assert capability is not None
    assert capability.uniform_values == LADDER
    assert capability.level.name == "UNIFORM"
    assert capability.off_pass
    assert not capability.cold_off
    assert (support.scheduling, support.shadow, support.notes) == ("overlap", (), ())


def test_a_skipped_draft_extend_makes_off_cold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SKIP_VARIABLE, "1")
    support = detect(Scheduler("EAGLE"), SteeredParams(OwnSchedule()))
    assert support.capability is not None
    assert not support.capability.off_pass
    assert support.capability.cold_off
    assert SKIP_VARIABLE in support.notes[0]


def test_without_k_0_as_a_candidate_it_is_said() -> None:
    own = OwnSchedule()
    own.candidate_steps = [1, 3]
    assert "K = 0 is no candidate" in detect(Scheduler("EAGLE"), SteeredParams(own)).notes[0]
    own.candidate_steps = [0]
    assert "only candidate" in detect(Scheduler("EAGLE"), SteeredParams(own)).inert


@pytest.mark.parametrize(
    ("name", "reason", "said"),
    [
        ("NONE", "", "no speculation is configured"),
        ("DSPARK", "", "left alone"),
        ("NGRAM", "", f"use --speculative-algorithm {NGRAM_NAME}"),
        ("DFLASH", "", "DFLASH has a fixed K"),
        ("STANDALONE", "not with attention DP", "not with attention DP"),
    ],
)
def test_what_is_left_alone_is_said(name: str, reason: str, said: str) -> None:
    support = detect(Scheduler(name), None, reason)
    assert support.capability is None
    assert said in support.inert
    assert "\n" not in support.inert


def test_dspark_is_left_alone_even_with_parameters() -> None:
    assert detect(Scheduler("DSPARK"), SteeredParams(OwnSchedule())).capability is None


def test_ngram_with_graphs_is_only_watched() -> None:
    params = SteeredParams(OwnSchedule())
    support = detect(Scheduler(NGRAM_NAME), params)
    assert support.shadow == ()
    assert support.capability is not None
    assert not support.capability.off_pass
    watched = detect(Scheduler(NGRAM_NAME, device="cuda"), params)
    assert "captured graphs" in watched.shadow[0]
    assert (
        detect(Scheduler(NGRAM_NAME, device="cuda", disable_cuda_graph=True), params).shadow == ()
    )


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("enable_dp_attention", True, "attention DP"),
        ("attn_dp_size", 2, "attention DP"),
        ("enable_two_batch_overlap", True, "two-batch overlap"),
        ("enable_pdmux", True, "pdmux"),
        ("pp_size", 2, "pipeline parallelism"),
    ],
)
def test_set_ups_without_adaptivity_are_named(key: str, value: Any, said: str) -> None:
    arguments = Arguments()
    assert unsupported_here(arguments) == ""
    setattr(arguments, key, value)
    assert said in unsupported_here(arguments)


def test_a_pipeline_is_left_alone() -> None:
    support = detect(Scheduler("EAGLE", pp_size=2), SteeredParams(OwnSchedule()))
    assert support.inert == "not with pipeline parallelism"


def test_parameters_are_found_on_either_kind_of_worker() -> None:
    class Worker:
        adaptive_controller: Any = None
        steered_params: Any = None

    worker = Worker()
    assert params_of(worker) is None
    assert params_of(None) is None
    worker.steered_params = SteeredParams(OwnSchedule())
    assert params_of(worker) is worker.steered_params
    worker.adaptive_controller = Worker()
    worker.adaptive_controller.params = SteeredParams(OwnSchedule())
    assert params_of(worker) is worker.adaptive_controller.params
