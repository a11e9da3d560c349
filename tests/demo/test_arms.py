import json
from pathlib import Path

import pytest

from demo.arms import ROOT, Files, parse_arm, serve_command, server_environment


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(models=tmp_path / "models", output=tmp_path / "out")


def option(command: list[str], name: str) -> dict[str, object]:
    value: dict[str, object] = json.loads(command[command.index(name) + 1])
    return value


def test_arms_differ_only_in_speculation(files: Files) -> None:
    none, static, ours = (
        serve_command(parse_arm(name), 8000, files) for name in ("none", "k2", "goodput")
    )
    assert static[: len(none)] == none
    assert ours[: len(none)] == none
    assert "--speculative-config" not in none
    assert option(static, "--speculative-config")["num_speculative_tokens"] == 2
    assert option(ours, "--speculative-config")["num_speculative_tokens"] == 6
    assert "--additional-config" not in static
    config = option(ours, "--additional-config")["adaptive_spec"]
    assert config == {
        "policy": "goodput",
        "status_file": str(files.status),
        "trace": {"directory": str(files.trace)},
    }


def test_no_arm_inherits_a_configuration_of_ours() -> None:
    environment = server_environment(
        {"ADAPTIVE_SPEC_CONFIG": "elsewhere.yaml", "PYTHONPATH": "mine", "HOME": "/home"}
    )
    assert "ADAPTIVE_SPEC_CONFIG" not in environment
    assert environment["HOME"] == "/home"
    assert environment["PYTHONPATH"] == f"{ROOT}:mine"
