"""What is switched on, refused or left alone, without an SGLang to switch on."""

import importlib.metadata
import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from adaptive_spec.adapters.sglang import doctor, facts, ngram_algorithm, plugin
from adaptive_spec.adapters.sglang.settings import DEFAULT_DWELL, requested
from adaptive_spec.adapters.sglang.versions import VERSIONS
from adaptive_spec.engines.source_check import EngineSource, SourceReport
from adaptive_spec.errors import ConfigError
from tests.refused import refused


def config_file(folder: Path, **values: Any) -> str:
    file = folder / "config.json"
    file.write_text(json.dumps(values))
    return str(file)


def found_in_source(monkeypatch: pytest.MonkeyPatch, *features: str) -> None:
    """SGLang's source has what these features need, and no more."""
    routes = dict.fromkeys(facts.FACTS, "is missing") | dict.fromkeys(features, "usable")
    report = SourceReport("sglang", "", "", [], routes, [])
    monkeypatch.setattr(EngineSource, "require", lambda self, wanted: report)


def test_settings_come_from_the_environment(tmp_path: Path) -> None:
    assert requested({}) is None
    path = config_file(tmp_path, mode="off")
    assert requested({"ADAPTIVE_SPEC_CONFIG": path}) is None
    path = config_file(tmp_path, mode="shadow")
    found = requested({"ADAPTIVE_SPEC_CONFIG": path})
    assert (found.config.mode, found.dwell, found.confidence) == ("shadow", DEFAULT_DWELL, False)
    variables = {
        "ADAPTIVE_SPEC_CONFIG": path,
        "ADAPTIVE_SPEC_SGLANG_DWELL": "1",
        "ADAPTIVE_SPEC_SGLANG_CONFIDENCE": "1",
    }
    found = requested(variables)
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
    with refused(ConfigError, match=name):
        requested(variables)


@pytest.mark.parametrize("version", ["0.5.18", "0.5.20", "0.5.22", "0.5.23", "0.5.23+cpu"])
def test_known_versions_are_used(version: str) -> None:
    VERSIONS.admit(version, allow_untested=False)
    assert VERSIONS.admit("0.5.24")  # that others are refused, tests/core/engines has


def test_only_an_executed_version_says_so() -> None:
    for row in VERSIONS.rows:
        assert VERSIONS.was_executed(row.version) == ("never executed" not in row.checked)


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
        ("0.6.0", {"allow_untested": False}, "SGLang 0.6.0 is untested"),
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
    found_in_source(monkeypatch, facts.BASE)
    with caplog.at_level(logging.INFO, logger="sglang.adaptive_spec"):
        plugin.register()
    (line,) = caplog.messages
    assert "nothing is switched on" in line
    assert said in line
    assert "\n" not in line


def test_a_misspelt_variable_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("ADAPTIVE_SPEC_CONFIG", raising=False)
    monkeypatch.setenv("ADAPTIVE_SPEC_CONFIGURATION", "file.json")
    plugin.register()
    assert "nothing reads the variable ADAPTIVE_SPEC_CONFIGURATION" in caplog.text


def test_doctor_says_what_is_installed_and_enabled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ADAPTIVE_SPEC_CONFIG", raising=False)
    monkeypatch.setattr(doctor, "installed_version", lambda names: None)
    report = doctor.describe()
    assert (report.engine, report.supported) == ("sglang", False)
    assert "not installed" in report.detail
    assert report.enabled.startswith("no ")
    monkeypatch.setattr(doctor, "installed_version", lambda names: "0.9.0")
    found_in_source(monkeypatch, facts.BASE)
    assert "0.9.0 is untested" in doctor.describe().detail
    monkeypatch.setattr(doctor, "installed_version", lambda names: "0.5.19")
    found_in_source(monkeypatch, facts.BASE, facts.STANDALONE)
    monkeypatch.setenv("SGLANG_PLUGINS", "another")
    monkeypatch.setenv("ADAPTIVE_SPEC_CONFIG", config_file(tmp_path, policy="goodput"))
    report = doctor.describe()
    assert report.supported
    assert "STANDALONE" in report.detail
    assert "lacks NGRAM (" in report.detail
    assert "not executed" in report.detail
    assert "does not name adaptive_spec" in report.detail
    assert report.enabled.startswith("mode on, policy goodput")


@pytest.mark.parametrize("values", [{"mode": "sometimes"}, {"policy": "magic"}])
def test_a_server_with_our_ngram_starts_with_any_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: dict[str, Any]
) -> None:
    registered = []
    monkeypatch.setenv("ADAPTIVE_SPEC_CONFIG", config_file(tmp_path, **values))
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.5.23")
    found_in_source(monkeypatch, facts.BASE, facts.NGRAM)
    monkeypatch.setattr(ngram_algorithm, "register_algorithm", lambda: registered.append(True))
    plugin.register()
    assert registered == [True]
