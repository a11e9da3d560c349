"""`adaptive-spec trtllm ...`, and what the doctor says."""

import re
import shutil
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from adaptive_spec.adapters.tensorrt_llm import doctor, install, switch, versions
from adaptive_spec.adapters.tensorrt_llm.commands import app
from adaptive_spec.errors import ConfigError

STAND_IN = Path(__file__).parent / "stand_in"


def call(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return result.output


def test_install_status_remove(tmp_path: Path) -> None:
    where = ("--site-packages", str(tmp_path))
    assert "not installed" in call("status", *where)
    assert "TLLM_ADAPTIVE_SPEC=1" in call("install-hook", *where)
    assert call("status", *where).startswith("installed in")
    (tmp_path / f"{install.MODULE}.py").write_text("# older\n")
    assert "another version" in call("status", *where)
    assert call("remove-hook", *where).count("deleted") == 2
    assert "no hook is installed" in call("remove-hook", *where)


def test_doctor_without_tensorrt_llm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TLLM_ADAPTIVE_SPEC", raising=False)
    report = doctor.describe()
    assert report.installed_version is None
    assert not report.supported
    assert "not installed" in report.detail
    assert report.enabled == "no hook; TLLM_ADAPTIVE_SPEC is not set"
    monkeypatch.setenv("TLLM_ADAPTIVE_SPEC", "/no/such/file.yaml")
    assert "error: TLLM_ADAPTIVE_SPEC: " in doctor.describe().enabled
    monkeypatch.setenv("TLLM_ADAPTIVE_SPEC", "1")
    assert "mode on, policy goodput" in doctor.describe().enabled


def test_doctor_looks_at_an_installed_tree_without_importing_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shutil.copytree(STAND_IN / "tensorrt_llm", tmp_path / "tensorrt_llm")
    (tmp_path / "tensorrt_llm" / "__init__.py").write_text("raise RuntimeError('no GPU')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    report = doctor.describe()
    assert report.supported
    assert "one-engine, host drafter" in report.detail
    (tmp_path / "tensorrt_llm" / "_torch" / "pyexecutor" / "py_executor.py").write_text("")
    assert "differs from what was read" in doctor.describe().detail


class TestSwitch:
    def test_off(self) -> None:
        for value in ("", "0", "off", "OFF", '{"mode": "off"}'):
            assert switch.requested({switch.VARIABLE: value}) is None
        assert switch.requested({}) is None

    def test_on_with_defaults_a_file_or_json(self, tmp_path: Path) -> None:
        found = switch.requested({switch.VARIABLE: "1"})
        assert found.config.policy == "goodput"
        file = tmp_path / "spec.yaml"
        file.write_text("policy: static\n")
        for value in (str(file), '{"policy": "static"}'):
            found = switch.requested({switch.VARIABLE: value})
            assert found.config.policy == "static"
        found = switch.requested({switch.VARIABLE: "1", "ADAPTIVE_SPEC_CONFIG": str(file)})
        assert found.config.policy == "static"

    @pytest.mark.parametrize("value", ["one,two", "-1,2"])
    def test_a_wrong_ladder_is_named(self, value: str) -> None:
        with pytest.raises(ConfigError, match="TLLM_ADAPTIVE_SPEC_LADDER"):
            switch.requested({switch.VARIABLE: "1", switch.LADDER_VARIABLE: value})


class TestDocumentation:
    TEXT = (Path(__file__).parents[2] / "docs" / "tensorrt_llm.md").read_text()

    def test_no_version_is_called_executed(self) -> None:
        assert not any(row.executed for row in versions.VERSIONS.rows)

    def test_examples_are_valid(self) -> None:
        blocks = re.findall(r"```(\w+)\n(.*?)```", self.TEXT, re.DOTALL)
        for language, text in blocks:
            if language == "python":
                compile(text, "docs", "exec")
        (example,) = [yaml.safe_load(text) for language, text in blocks if language == "yaml"]
        speculation = example["speculative_config"]
        schedule = {example["max_batch_size"]: speculation["max_draft_len"]}
        assert speculation["draft_len_schedule"] == schedule
