"""The gate holds a sweep against the scores of an earlier one."""

import msgspec
import pytest

from adaptive_spec.sim.results.result import Result
from adaptive_spec.sim.sweep.results import read_results, write_results
from benchmarks.gate import compare, scores

from .fake_sweep import CONFIG, call, write_sweep

GROUPS = """groups:
  one: {cells: [[made-up, "closed:2"]]}
  arrivals: {loads: ["poisson:20"]}
"""


@pytest.fixture
def folder(tmp_path):
    config = write_sweep(tmp_path, f"{CONFIG}oracles: false\n{GROUPS}")
    assert call(config, "--output", tmp_path / "out").exit_code == 0
    return tmp_path / "out"


def test_what_is_lost_is_told_and_another_simulator_is_no_comparison(folder, capsys):
    before = scores(folder)
    assert {name: list(groups) for name, groups in before.items()}["ours"] == ["one", "arrivals"]
    [cell] = before["ours"]["one"]
    assert len(before["ours"]["one"][cell]) == 2  # seeds
    assert compare(before, before)

    def slower(policy: str, result: Result) -> Result:
        if result.policy != policy:
            return result
        return msgspec.structs.replace(result, throughput_tok_s=0.99 * result.throughput_tok_s)

    found = read_results(folder)

    def with_slower(policy: str) -> None:
        rows = [
            msgspec.structs.replace(row, result=slower(policy, row.result)) for row in found.rows
        ]
        write_results(msgspec.structs.replace(found, rows=tuple(rows)), folder)

    with_slower("ours")
    capsys.readouterr()
    assert not compare(before, scores(folder))
    told = capsys.readouterr().out
    assert "-1.00 (spread 0.00): one: made-up" in told
    assert "arrivals: made-up" not in told  # their score is TPOT
    assert compare(scores(folder), before)  # a gain is no loss
    with_slower("static:k=2")
    with pytest.raises(SystemExit, match="the simulator has changed"):
        compare(before, scores(folder))
