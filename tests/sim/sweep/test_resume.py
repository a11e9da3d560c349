"""A sweep that is killed, at any moment, goes on where it was; nothing is lost or repeated."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from adaptive_spec.errors import AdaptiveSpecError, ConfigError, DataError
from tests.sim.sweep.fake_sweep import CONFIG, RUNS, call, without_timing, write_sweep

COMMAND = Path(sys.executable).with_name("adaptive-spec")


def copied(finished: Path, to: Path) -> Path:
    return Path(shutil.copytree(finished, to / "out"))


def run_again(finished: Path, out: Path, *more: object):
    return call(finished.parent / "config.yaml", "--output", out, "--jobs", 1, *more)


def children(pid: int) -> list[int]:
    return [int(x) for x in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def wait_for(condition, seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_sigkill_loses_nothing_repeats_nothing_and_leaves_no_worker(finished, tmp_path):
    config = write_sweep(tmp_path)
    out, runs = tmp_path / "out", tmp_path / "out" / "runs.jsonl"
    command = [COMMAND, "sweep", config, "--output", out, "--jobs", "2"]
    sweep = subprocess.Popen(list(map(str, command)), stderr=subprocess.DEVNULL)
    wait_for(lambda: runs.exists() and runs.read_bytes().count(b"\n") >= 2)
    workers = children(sweep.pid)
    os.kill(sweep.pid, signal.SIGKILL)
    sweep.wait()
    assert workers
    wait_for(lambda: not any(map(alive, workers)))

    kept = [line for line in runs.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
    assert 2 <= len(kept) < RUNS
    assert not (out / "results.json").exists()
    assert call(config, "--output", out, "--jobs", 1).exit_code == 0
    after = runs.read_bytes().splitlines(keepends=True)
    assert after[: len(kept)] == kept
    assert len(after) == RUNS
    assert without_timing(out) == without_timing(finished)


def test_a_torn_last_line_is_run_again(finished, tmp_path):
    out = copied(finished, tmp_path)
    runs = (out / "runs.jsonl").read_bytes()
    (out / "runs.jsonl").write_bytes(runs[:-100])
    (out / "results.json").unlink()
    result = run_again(finished, out)
    assert result.exit_code == 0
    assert f"{RUNS - 1} of {RUNS} runs were finished before" in result.stderr
    assert without_timing(out) == without_timing(finished)


def test_a_finished_sweep_runs_nothing_again(finished, tmp_path):
    out = copied(finished, tmp_path)
    before = (out / "runs.jsonl").read_bytes(), (out / "results.json").read_bytes()
    assert run_again(finished, out).exit_code == 0
    assert ((out / "runs.jsonl").read_bytes(), (out / "results.json").read_bytes()) == before


def test_a_damaged_line_is_named(finished, tmp_path):
    out = copied(finished, tmp_path)
    lines = (out / "runs.jsonl").read_bytes().splitlines(keepends=True)
    lines[2] = lines[2][:50] + b"\n"
    (out / "runs.jsonl").write_bytes(b"".join(lines))
    error = run_again(finished, out).exception
    assert isinstance(error, DataError)
    assert "runs.jsonl: row 3 is damaged" in str(error)


@pytest.mark.parametrize(
    ("config", "what"),
    [
        (CONFIG.replace("k=2", "k=1"), "changed since: policies"),
        (CONFIG.replace("seeds: 2", "seeds: 1"), "changed since: seeds"),
    ],
)
def test_another_configuration_is_refused(finished, tmp_path, config, what):
    out = copied(finished, tmp_path)
    error = call(write_sweep(tmp_path, config), "--output", out).exception
    assert isinstance(error, ConfigError)
    assert what in str(error)
    assert "--fresh" in str(error)
    assert (out / "results.json").read_bytes() == (finished / "results.json").read_bytes()


@pytest.mark.parametrize("new", ["made-op", "made-upper"])
def test_changed_data_is_refused(finished, tmp_path, new):
    out = copied(finished, tmp_path)
    config = write_sweep(tmp_path)
    data = tmp_path / "acceptance.jsonl"
    data.write_text(data.read_text().replace("made-up", new, 1))
    error = call(config, "--output", out).exception
    assert isinstance(error, ConfigError)
    assert "a data file has changed" in str(error)


def test_fresh_drops_the_old_runs_and_nothing_else(finished, tmp_path):
    out = copied(finished, tmp_path)
    (out / "notes.txt").write_text("mine")
    config = CONFIG.replace("seeds: 2", "seeds: 1").replace("  - static:k=2\n", "")
    config = config.replace('loads: ["closed:2", ', "loads: [")
    result = call(write_sweep(tmp_path, config), "--output", out, "--jobs", 1, "--fresh")
    assert result.exit_code == 0, result.output
    assert (out / "runs.jsonl").read_bytes().count(b"\n") == 3
    assert (out / "notes.txt").read_text() == "mine"


def test_two_sweeps_do_not_write_into_one_directory(finished, tmp_path):
    import fcntl

    out = copied(finished, tmp_path)
    with (out / "sweep.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        error = run_again(finished, out).exception
    assert isinstance(error, ConfigError)
    assert "another sweep is writing here" in str(error)


def test_runs_of_unknown_origin_are_refused(finished, tmp_path):
    out = copied(finished, tmp_path)
    (out / "sweep.json").unlink()
    assert "unknown what it belongs to" in str(run_again(finished, out).exception)
    (out / "sweep.json").write_text("{}")
    assert "not the header of a sweep" in str(run_again(finished, out).exception)


def test_an_output_that_is_a_file_is_refused(finished, tmp_path):
    (tmp_path / "out").write_text("")
    error = run_again(finished, tmp_path / "out").exception
    assert isinstance(error, AdaptiveSpecError)
    assert "--output" in str(error)
