"""`make test-trtllm`: on the installed package where there is one, and on the stand-in."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from harness.cases import CASES, GATE, LIMIT, LOOPS, SLOTS
from older_trees import before_19204

HERE = Path(__file__).parent


def run_harness(*arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("TLLM", "ADAPTIVE_SPEC"))}
    return subprocess.run(
        [sys.executable, "-m", "harness", *arguments],
        env={**environ, "PYTHONPATH": str(HERE)},
        capture_output=True,
        text=True,
        timeout=600,
    )


def results_of(tree: Path, folder: Path, *arguments: str) -> dict[str, dict[str, Any]]:
    file = folder / "results.json"
    done = run_harness("--tree", str(tree), "--json", str(file), *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return {result["name"]: result for result in json.loads(file.read_text())}


def test_the_installed_tensorrt_llm_is_as_the_adapter_needs_it() -> None:
    if importlib.util.find_spec("tensorrt_llm") is None:
        pytest.skip("TensorRT-LLM is not installed")
    done = run_harness()
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(
    importlib.util.find_spec("tensorrt_llm") is not None, reason="TensorRT-LLM is installed"
)
def test_without_the_package_it_says_so_in_one_line() -> None:
    done = run_harness()
    assert done.returncode == 0
    assert done.stdout.count("\n") == 1
    assert "TensorRT-LLM is not installed" in done.stdout
    assert done.stderr == ""


def test_every_case_is_as_wanted_on_the_stand_in(tmp_path: Path) -> None:
    found = results_of(HERE / "stand_in", tmp_path)
    assert len(found) == len(CASES)
    for name, result in found.items():
        adapter = name.startswith(("on", "shadow"))
        assert (result["labels"] > 100) == adapter, name
        assert result["unknown"] == [], name
    assert found["on, overlap, RandomPolicy"]["k"] == [1, 2, 3, 5]
    assert all(len(found[f"on, {loop}, goodput"]["k"]) > 1 for loop in LOOPS)
    assert found[f"on, overlap, static, {LIMIT}"]["k"] == [0, 5]
    assert found[f"on, overlap, RandomPolicy, {SLOTS}"]["dummies"] == 1
    assert 0 in found[f"on, plain, RandomPolicy, {GATE}"]["k"]


@pytest.mark.long
def test_main_before_19204_is_as_wanted_too(tmp_path: Path) -> None:
    found = results_of(before_19204(tmp_path / "tree"), tmp_path, "--only", "on, overlap")
    assert len(found) > 5


def test_a_tree_with_a_fault_fails_the_run(tmp_path: Path) -> None:
    tree = before_19204(tmp_path)
    sampler = tree / "tensorrt_llm/_torch/speculative/spec_sampler_base.py"
    text = sampler.read_text()
    assert "k - (count - 1)" in text
    sampler.write_text(text.replace("k - (count - 1)", "k - (count - 1) + 1"))
    done = run_harness("--tree", str(tree), "--only", "off, overlap")
    assert done.returncode == 1
    assert "KvOverrunError" in done.stdout
