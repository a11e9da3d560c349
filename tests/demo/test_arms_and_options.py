from __future__ import annotations

import json
from pathlib import Path

import pytest

from demo.arms import Files, parse_arm, serve_command, server_environment
from demo.errors import DemoError
from demo.options import parse


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(models=tmp_path / "models", output=tmp_path / "out")


def option(command: list[str], name: str) -> dict[str, object]:
    value: dict[str, object] = json.loads(command[command.index(name) + 1])
    return value


def test_arms_differ_only_in_speculation(files: Files) -> None:
    none, static, ours = (
        serve_command(parse_arm(name), 8000, files) for name in ("none", "static2", "ours")
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


@pytest.mark.parametrize("name", ["static0", "static7", "static", "best", ""])
def test_unknown_arm(name: str) -> None:
    with pytest.raises(DemoError, match="there are none, ours and static1 to static6"):
        parse_arm(name)


def test_no_arm_inherits_a_configuration_of_ours(files: Files) -> None:
    environment = server_environment(
        files, {"ADAPTIVE_SPEC_CONFIG": "elsewhere.yaml", "PYTHONPATH": "mine", "HOME": "/home"}
    )
    assert "ADAPTIVE_SPEC_CONFIG" not in environment
    assert environment["HOME"] == "/home"
    folder, *_, last = environment["PYTHONPATH"].split(":")
    assert last == "mine"
    text = (Path(folder) / "sitecustomize.py").read_text()
    compile(text, "sitecustomize.py", "exec")
    assert "vllm_cpu_sampling_fix" in text


def test_defaults() -> None:
    options = parse([])
    assert [arm.name for arm in options.arms] == ["none", "static2", "static6", "ours"]
    assert (options.concurrencies, options.repeats) == ((1, 4, 16), 3)
    assert [arm.name for arm in parse(["--quick"]).arms] == ["ours"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--arms", "none,static2"], "`ours` must be among them"),
        (["--arms", "ours,fast"], "unknown arm 'fast'"),
        (["--concurrency", "0"], "numbers from 1 to 16 expected"),
        (["--concurrency", "4,x"], "is not a list of numbers"),
        (["--repeats", "-1"], "is not a number of at least 1"),
    ],
)
def test_bad_options(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_models_folder_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADAPTIVE_SPEC_MODELS", str(tmp_path))
    assert parse([]).files.models == tmp_path
