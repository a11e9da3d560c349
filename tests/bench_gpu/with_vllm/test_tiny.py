"""The whole bench with toy models on a CPU: killed in the middle, resumed, all stages, the page."""

import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm", reason="of the environment `vllm`")

from adaptive_spec.audit.blocks import BLOCK_STEPS
from benchmarks.bench_pair.llama_shapes import write_all
from benchmarks.judge.gpu.bench import Results
from benchmarks.judge.gpu.page import main as write_page
from benchmarks.judge.gpu.setups import METHODS, Options, arguments_of

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[3]
SECONDS = 600.0
HALF_A_LINE = b'{"key": "sweep/eagle/t0.8/2/none/0", "result": {"tok'
MEASURED_ONCE = "identity/eagle"


def lines(out: Path, name: str = "results.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / name).read_text().splitlines()]


def start(out: Path, models: Path, *arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "benchmarks.judge.gpu.main", str(out), "--models", str(models)]
    with (out.parent / "log").open("ab") as log:
        return subprocess.Popen(
            [*command, "--tiny", *arguments], cwd=ROOT, stdout=log, stderr=subprocess.STDOUT
        )


def call(part: str, out: Path, models: Path, **other: str) -> None:
    """Run a part of the script of the first minutes, as on a GPU machine, with toy models."""
    environment = os.environ | {
        "OUT": str(out),
        "SCRATCH": str(out),
        "MODELS": str(models),
        "PACKED": "none",
        "PYTHON": sys.executable,
        "SECONDS_LEFT": str(int(SECONDS)),
        "TINY": "--tiny",
        **other,
    }
    command = ["sh", "benchmarks/judge/first_call.sh", part]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def killed_after(key: str, run: subprocess.Popen[bytes], out: Path) -> list[int]:
    """Kill a run once a result is there; the processes that it had started."""
    until = time.monotonic() + SECONDS
    path = out / "results.jsonl"
    while not path.exists() or f'"{key}"' not in path.read_text():
        assert run.poll() is None, (out.parent / "log").read_text()[-3000:]
        assert time.monotonic() < until
        time.sleep(0.05)
    started = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
    run.send_signal(signal.SIGKILL)
    run.wait()
    return [int(pid) for pid in started]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "zombie" not in Path(f"/proc/{pid}/status").read_text()


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the toy models."""
    folder = tmp_path_factory.mktemp("models")
    write_all(folder, "tiny", "cpu", ["target", "eagle"])
    return folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, models: Path) -> Path:
    """The folder of a run that was killed in its first stage and then finished."""
    folder = tmp_path_factory.mktemp("gpu")
    out = folder / "out"
    children = killed_after(MEASURED_ONCE, start(out, models, "--stage", "smoke"), out)
    until = time.monotonic() + 60
    while any(map(alive, children)) and time.monotonic() < until:
        time.sleep(0.1)
    assert not any(map(alive, children)), "an engine outlives the run that started it"
    with (out / "results.jsonl").open("ab") as file:
        file.write(HALF_A_LINE)
    for part in ("first", "second"):
        call(part, out, models)
    return out


@pytest.mark.engine
def test_finished_results_are_not_measured_again(finished: Path) -> None:
    counts = Counter(line["key"] for line in lines(finished))
    assert counts[MEASURED_ONCE] == 1
    runs = [key for key in counts if key.startswith("run/")]
    assert len(runs) == 4
    once = [key for key in counts if key.partition("/")[0] not in ("about", "options", "engine")]
    assert {counts[key] for key in once} == {1}


@pytest.mark.engine
def test_every_stage_has_its_results(finished: Path) -> None:
    found = Results(finished / "results.jsonl").found
    assert not [key for key in found if key.startswith("failed/")]
    for key in (
        "versions",
        "sweep/eagle/t0.8/2/none/0",
        "sweep/eagle/t0.8/2/table-constant/1",
        "sweep/eagle/t0.8/2/goodput cold/1",
        "sweep/eagle/t0.8/2/goodput warm/1",
        "status/eagle",
        "steps/none/3/32",
        "steps/eagle-ours/3/32",
        "acceptance/eagle-ours/t0.8",
        "ragged_penalty",
        "sweep/eagle/t0.8/2/off/1",
        "sweep/eagle/t0.8/2/fixed5/1",
        "own/eagle-ours/2",
    ):
        assert key in found, key


@pytest.mark.engine
def test_every_file_of_the_two_calls_is_there(finished: Path) -> None:
    for name in ("results.jsonl", "gpu.json", "gpu.md", "logs.tgz", "traces.tgz"):
        assert (finished / name).stat().st_size > 0, name
    found = Results(finished / "results.jsonl").found
    assert "graphs/draft_model/varlen/3" in found
    assert "graphs/draft_model/t0.8/16/fixed5/0" in found
    assert "identity/ngram" in found
    assert "sweep/ngram/t0.8/2/goodput warm/0" in found
    audited = found["audit/ngram-ours/4"]
    assert audited["blocks"] >= 1
    assert audited["steps"] > 4 * BLOCK_STEPS


def pack(folder: Path, name: str, text: str) -> str:
    """Pack a site folder of one file."""
    file, packed = folder / "site" / name, folder / "site.tar.xz"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    with tarfile.open(packed, "w:xz") as archive:
        archive.add(folder / "site", ".")
    return str(packed)


@pytest.mark.engine
def test_a_vllm_that_does_not_start_is_replaced(tmp_path: Path, models: Path) -> None:
    """By what the fallback has: nothing, so that the environment's vLLM runs."""
    broken = pack(tmp_path / "broken", "vllm/__init__.py", "raise ImportError('no such symbol')")
    fallback = pack(tmp_path / "fallback", "empty.txt", "")
    out, site = tmp_path / "out", str(tmp_path / "unpacked")
    call("first", out, models, PACKED=broken, FALLBACK=fallback, SITE=site, SECONDS_LEFT="60")
    found = Results(out / "results.jsonl").found
    assert {"engine/eagle-ours", MEASURED_ONCE} <= set(found)
    assert not [key for key in found if key.startswith("failed/")]
    first = Counter(line["key"] for line in lines(out, "nothing_started.jsonl"))
    # Of three ways to compile: each tries each engine in one stage only.
    assert first["failed/smoke"] == 3
    assert not [key for key in first if key.startswith(("engine/", "failed/sweep"))]


@pytest.mark.engine
def test_greedy_answers_are_the_targets_own_while_k_changes(finished: Path) -> None:
    found = Results(finished / "results.jsonl").found[MEASURED_ONCE]
    assert set(found) == {"none again", "k5", "drawn K", "drawn K per request"}
    for row in found.values():
        assert row["identical"] == row["answers"] > 0
        assert row["largest_gap_nats"] == 0.0  # float32: no rounding of another batch shape


@pytest.mark.engine
def test_the_arms_run_the_k_they_are_named_after(finished: Path) -> None:
    found = Results(finished / "results.jsonl").found

    def ks(arm: str) -> set[int]:
        steps = found[f"sweep/eagle/t0.8/2/{arm}/0"]["graphs_by_k"]
        return {int(k) for k in steps if int(k) >= 0}

    assert ks("none") == {0}
    assert ks("k2") <= {0, 2}
    assert 2 in ks("k2")
    assert 5 in ks("k5")
    assert not found["sweep/eagle/t0.8/2/off/1"]["drafted"]
    for row in found["steps/eagle-ours/3/32"]:
        steps = sum(row["graphs"].values())
        assert row["drafted"] == 3 * row["k"] * steps


@pytest.mark.engine
def test_our_own_time_is_counted_in_the_engines_process(finished: Path) -> None:
    found = Results(finished / "results.jsonl").found["own/eagle-ours/2"]
    assert found["own_us"] > 0
    assert {"StepDriver.before_schedule", "StepDriver.think"} <= set(found["functions_us"])


@pytest.mark.engine
def test_profile_simulator_and_page_come_of_it(finished: Path) -> None:
    assert write_page([str(finished), "--simulate"]) == 0
    found = json.loads((finished / "gpu.json").read_text())
    assert found["profile"]["profile"]["drafts"]["eagle"]
    assert found["profile"]["steps"]["acceptance"] > 20
    assert {row["arm"] for row in found["simulator"]["cells"]} == {"k2", "k5", "goodput warm"}
    page = (finished / "gpu.md").read_text()
    for title in (
        "Bars",
        "Throughput",
        "Step costs",
        "The gain over",
        "The plugin's own time",
        "The simulator",
    ):
        assert f"## {title}" in page


@pytest.mark.engine
def test_results_of_another_machine_are_not_mixed_in(tmp_path: Path) -> None:
    from benchmarks.judge.gpu.main import OTHER_MACHINE, main

    Results(tmp_path / "results.jsonl").add("about", {"gpu": "NVIDIA H200", "method": "eagle"})
    before = (tmp_path / "results.jsonl").read_bytes()
    assert main([str(tmp_path), "--models", "none", "--tiny"]) == OTHER_MACHINE
    assert (tmp_path / "results.jsonl").read_bytes() == before


@pytest.mark.engine
@pytest.mark.parametrize(
    "key",
    ["none", *(f"{method}-{kind}" for method in METHODS for kind in ("vllm", "ours", "ladder"))],
)
def test_vllm_takes_the_arguments_of_every_engine_of_a_gpu(key: str, models: Path) -> None:
    from vllm.engine.arg_utils import EngineArgs

    options = Options(models=str(models), scratch="out")
    assert EngineArgs(**arguments_of(key, options)).cudagraph_metrics
