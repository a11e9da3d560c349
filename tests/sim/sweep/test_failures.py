"""One run that fails does not take the others with it, whatever it does to its worker."""

import json
import sys

import polars
import pytest

from adaptive_spec.sim.sweep.process_pool import DIED
from tests.sim.sweep.fake_sweep import CONFIG, call, without_timing, write_sweep

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


def test_without_polars_nothing_is_computed(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "polars", None)
    done = call(write_sweep(tmp_path), "--output", tmp_path / "out")
    assert done.exit_code != 0
    assert str(done.exception) == "sweep needs polars: pip install 'adaptive-spec[sim]'"
    assert not (tmp_path / "out").exists()


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
    assert polars.read_parquet(deadly / "out" / "results.parquet").height == 0


def test_a_worker_killed_from_outside_costs_no_result(deadly):
    config = write_sweep(deadly, with_policy("deadly_policies:KilledOnce"))
    result = call(config, "--output", deadly / "out", "--jobs", 1)
    assert (deadly / "killed").exists()
    assert result.exit_code == 0, result.output
    assert policies_in(deadly / "out") == ["off", "deadly_policies:KilledOnce", "ours"]


def test_a_damaged_trace_fails_its_runs_and_once_mended_asks_for_fresh(tmp_path):
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
    error = call(path, "--output", tmp_path / "out", "--jobs", 1).exception
    assert "a data file has changed" in str(error)
    assert call(path, "--output", tmp_path / "out", "--jobs", 1, "--fresh").exit_code == 0
    assert len(policies_in(tmp_path / "out")) == 6
