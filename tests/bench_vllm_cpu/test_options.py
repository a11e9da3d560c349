from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.vllm_cpu.arms import parse_arm
from benchmarks.vllm_cpu.errors import BenchmarkError
from benchmarks.vllm_cpu.options import parse


def test_conditions_are_all_combinations() -> None:
    options = parse(["--draft", "good,poor", "--workload", "mixed,json", "--temperature", "0.8,0"])
    names = [condition.name for condition in options.conditions]
    assert len(set(names)) == 8
    assert "poor-json-t0" in names
    assert "good-mixed-t0.8-probabilistic" in names


def test_quick_is_smaller_and_keeps_its_own_files() -> None:
    quick, full = parse(["--quick"]), parse([])
    assert len(quick.arms) < len(full.arms)
    assert quick.repeats == 1
    assert quick.output != full.output


def test_quick_can_be_overridden() -> None:
    options = parse(["--quick", "--arms", "none,ours", "--concurrency", "2", "--repeats", "2"])
    assert [arm.name for arm in options.arms] == ["none", "ours"]
    assert options.concurrencies == (2,)
    assert options.repeats == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--arms", "none,static9"], "unknown arm 'static9'"),
        (["--concurrency", "0"], "'0' is not a number from 1 to 16"),
        (["--concurrency", "17"], "'17' is not a number from 1 to 16"),
        (["--draft", "best"], "'best' is none of good, poor, mtp, eagle3"),
        (["--temperature", "hot"], "'hot' is not a temperature"),
        (["--repeats", "-1"], "must be above 0"),
        (["--seconds-per-cell", "0"], "must be above 0"),
        (["--beside", "-1"], "a number of cores, 0 or more"),
        (["--beside", "nan"], "a number of cores, 0 or more"),
    ],
)
def test_a_mistake_is_named(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse(arguments)
    assert said in capsys.readouterr().err


def test_arms_say_which_engine_serves_them() -> None:
    engines = {name: parse_arm(name).engine for name in ("none", "static3", "schedule", "ours")}
    assert engines == {"none": "none", "static3": "vllm", "schedule": "vllm", "ours": "plugin"}
    assert parse_arm("own-engine3").engine not in engines.values()
    assert parse_arm("plugin3").policy == "static"
    with pytest.raises(BenchmarkError, match="unknown arm"):
        parse_arm("static0")


def test_models_folder_is_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse(["--models", "models"]).models == tmp_path / "models"
