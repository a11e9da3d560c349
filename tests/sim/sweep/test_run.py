"""A sweep says how far it is, reports failures, and goes on where it was stopped."""

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from adaptive_spec.errors import AdaptiveSpecError, ConfigError, DataError
from adaptive_spec.sim.commands import printing
from adaptive_spec.sim.sweep.process_pool import DIED
from tests.sim.sweep.fake_sweep import CELLS, CONFIG, RUNS, call, without_timing, write_sweep

DEADLY = """
import os, pathlib, signal
import adaptive_spec.policies.off as off

class Deadly(off.OffPolicy):
    def plan(self, context):
        if not pathlib.Path(__file__).with_name("mended").exists():
            os.kill(os.getpid(), signal.SIGKILL)
        return super().plan(context)

class KilledOnce(off.OffPolicy):
    def plan(self, context):
        mark = pathlib.Path(__file__).with_name("killed")
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().plan(context)
"""
ONE_CELL = CONFIG.replace("seeds: 2", "seeds: 1").replace(
    'loads: ["closed:2", {load: "poisson:20", tokens: 300}]', 'loads: ["closed:2"]'
)


@pytest.fixture
def deadly(tmp_path, monkeypatch):
    (tmp_path / "deadly_policies.py").write_text(DEADLY)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def with_policy(policy: str) -> str:
    config = ONE_CELL.replace("  - static:k=2\n", f'  - "{policy}"\n')
    assert policy in config
    return config


def policies_in(folder):
    rows = without_timing(folder)["rows"]
    return [row["result"]["policy"] for row in rows if row["kind"] == "policy"]


def test_a_policy_that_kills_its_worker_is_reported_and_tried_again_later(deadly):
    config = write_sweep(deadly, with_policy("deadly_policies:Deadly"))
    result = call(config, "--output", deadly / "out", "--jobs", 2, "--json")
    assert result.exit_code == 1
    (failure,) = json.loads(result.stdout)["failures"]
    assert failure["policy"] == "deadly_policies:Deadly"
    assert failure["error"] == DIED
    assert DIED in " ".join(result.stderr.split())
    assert policies_in(deadly / "out") == ["off", "ours"]

    (deadly / "mended").touch()
    result = call(config, "--output", deadly / "out", "--jobs", 1)
    assert result.exit_code == 0, result.output
    assert policies_in(deadly / "out") == ["off", "deadly_policies:Deadly", "ours"]


def test_a_sweep_of_which_every_run_fails_says_so_and_writes_no_rows(deadly):
    config = ONE_CELL.replace("  - off\n  - static:k=2\n", '  - "deadly_policies:Deadly"\n')
    config = config.replace('  - {policy: "goodput:prior_hazard=0.5", name: ours}\n', "")
    path = write_sweep(deadly, config + "oracles: false\n")
    for output in ([], ["--json"]):
        result = call(path, "--output", deadly / "out", "--jobs", 1, *output)
        assert isinstance(result.exception, SystemExit), result.exception
        assert result.exit_code == 1
        assert DIED in " ".join(result.stdout.split())
    results = without_timing(deadly / "out")
    assert results["rows"] == []
    assert [failure["policy"] for failure in results["failures"]] == ["deadly_policies:Deadly"]
    assert (deadly / "out" / "results.csv").read_text().strip() == ""


def test_a_worker_killed_from_outside_costs_no_result(deadly):
    config = write_sweep(deadly, with_policy("deadly_policies:KilledOnce"))
    result = call(config, "--output", deadly / "out", "--jobs", 1)
    assert (deadly / "killed").exists()
    assert result.exit_code == 0, result.output
    assert policies_in(deadly / "out") == ["off", "deadly_policies:KilledOnce", "ours"]


def test_a_damaged_trace_fails_its_runs_until_it_is_mended(tmp_path):
    trace = tmp_path / "arrivals.csv"
    good = "arrival_s,input_tokens,output_tokens\n0.0,10,5\n0.1,10,5\n"
    trace.write_text(good + "0.2,ten,5\n" + "0.3,10,5\n" * 3)
    config = ONE_CELL.replace('["closed:2"]', '["closed:2", arrivals.csv]')
    path = write_sweep(tmp_path, config)
    result = call(path, "--output", tmp_path / "out", "--jobs", 1)
    assert result.exit_code == 1
    failures = without_timing(tmp_path / "out")["failures"]
    assert [failure["policy"] for failure in failures] == ["oracles", "off", "static:k=2", "ours"]
    for failure in failures:
        assert failure["error"].startswith("DataError: ")
        assert "arrivals.csv" in failure["error"]
        assert "row 4" in failure["error"]
    assert policies_in(tmp_path / "out") == ["off", "static:k=2", "ours"]

    trace.write_text(good + "0.2,10,55\n" + "0.3,10,5\n" * 3)
    assert call(path, "--output", tmp_path / "out", "--jobs", 1).exit_code == 0
    assert len(policies_in(tmp_path / "out")) == 6


def test_a_log_gets_lines_with_the_time_left(tmp_path, monkeypatch):
    monkeypatch.setattr(printing, "LINE_SECONDS", 0.0)
    result = call(write_sweep(tmp_path), "--output", tmp_path / "out", "--jobs", 1)
    lines = re.findall(rf"(\d+) of {RUNS} runs, about (\d+):(\d\d) left", result.stderr)
    assert [int(done) for done, *_ in lines] == list(range(1, RUNS + 1))
    assert lines[-1][1:] == ("0", "00")


def test_acceptance_of_other_drafts_than_copied_ones_is_warned_of_once(tmp_path):
    copied = ONE_CELL.replace("[eagle]", "[ngram]")
    config = write_sweep(tmp_path, copied.replace("acceptance.jsonl", "model:mixed"))
    result = call(config, "--output", tmp_path / "out", "--jobs", 1)
    assert result.stderr.count("not known to come from copied drafts") == 1
    listed = write_sweep(tmp_path, copied)
    assert "warning" not in call(listed, "--output", tmp_path / "other", "--jobs", 1).stderr


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra [ray]")
@pytest.mark.long
def test_ray_gives_the_same_results_as_processes(finished, tmp_path):
    out = tmp_path / "out"
    result = call(write_sweep(tmp_path), "--output", out, "--ray", "local", "--jobs", 1)
    assert result.exit_code == 0, result.output
    assert without_timing(out) == without_timing(finished)


def test_without_ray_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    result = call(write_sweep(tmp_path), "--output", tmp_path / "out", "--ray", "local")
    assert isinstance(result.exception, ConfigError)
    assert "pip install '.[ray]'" in str(result.exception)


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


def test_runs_are_made_again_where_what_they_depend_on_has_changed(finished, tmp_path):
    out = copied(finished, tmp_path)
    config = write_sweep(tmp_path, CONFIG.replace("k=2", "k=1"))
    again = call(config, "--output", out, "--jobs", 1)
    assert f"{RUNS - CELLS} of {RUNS} runs were finished before" in again.stderr
    data = tmp_path / "acceptance.jsonl"
    data.write_text(data.read_text().replace("made-up", "made-op", 1))
    again = call(config, "--output", out, "--jobs", 1)
    assert "finished before" not in again.stderr
    assert again.exit_code == 0


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


def test_an_output_that_is_a_file_is_refused(finished, tmp_path):
    (tmp_path / "out").write_text("")
    error = run_again(finished, tmp_path / "out").exception
    assert isinstance(error, AdaptiveSpecError)
    assert "--output" in str(error)
