"""What a finished sweep has written and printed."""

import csv
import json
import re
import shutil
from collections import Counter

import pytest

from adaptive_spec.errors import DataError
from adaptive_spec.sim.report.leaderboard import EVERYTHING, by_load
from adaptive_spec.sim.sweep.results import read_results
from tests.refused import refused
from tests.sim.sweep.fake_sweep import CELLS, POLICIES, RUNS, call


def rows_by(results, kind):
    return [row for row in results.rows if row.kind == kind]


def test_every_cell_has_every_policy_every_fixed_k_and_foresight(finished):
    results = read_results(finished)
    assert not results.failures
    for cell in {row.cell for row in results.rows}:
        rows = [row for row in results.rows if row.cell == cell]
        assert [r.result.policy for r in rows if r.kind == "policy"] == list(POLICIES)
        assert [r.result.policy for r in rows if r.kind == "static"] == [
            f"static:k={k}" for k in range(4)
        ]
        assert [r.result.policy for r in rows if r.kind == "foresight"] == ["foresight"]
    assert len({row.cell for row in results.rows}) == CELLS


def test_regret_is_the_score_over_the_best_fixed_k_of_the_cell(finished):
    results = read_results(finished)
    for row in results.rows:
        fixed = [r.result for r in rows_by(results, "static") if r.cell == row.cell]
        scores = [result.score(closed=row.closed) for result in fixed]
        score, regret = row.result.score(closed=row.closed), row.result.regret
        assert regret.best_static_k == scores.index(max(scores))
        assert regret.of_best_static == pytest.approx(score / max(scores))
        assert regret.of_no_speculation == pytest.approx(score / scores[0])


def test_a_closed_loop_is_scored_by_throughput_and_arrivals_by_tpot(finished):
    closed = {row.cell.load: row.closed for row in read_results(finished).rows}
    assert closed == {"closed:2": True, "poisson:20": False}


def test_a_fixed_k_as_a_policy_equals_the_oracle_of_that_k(finished):
    results = read_results(finished)
    for row in rows_by(results, "policy"):
        if row.result.policy == "static:k=2":
            (twin,) = (
                r.result
                for r in rows_by(results, "static")
                if r.cell == row.cell and r.result.policy == "static:k=2"
            )
            assert twin.throughput_tok_s == row.result.throughput_tok_s
            assert twin.tpot_ms == row.result.tpot_ms


def test_csv_has_the_same_figures_in_flat_columns(finished):
    with (finished / "results.csv").open() as file:
        found = list(csv.DictReader(file))
    rows = read_results(finished).rows
    assert [float(each["throughput_tok_s"]) for each in found] == [
        row.result.throughput_tok_s for row in rows
    ]
    assert [float(each["regret_of_best_static"]) for each in found] == [
        row.result.regret.of_best_static for row in rows
    ]
    assert Counter(each["kind"] for each in found) == {"policy": 12, "static": 16, "foresight": 4}
    assert not [value for each in found for value in each.values() if value[:1] in ("[", "{")]


def test_the_table_has_each_policy_under_each_load(finished):
    printed = (finished.parent / "output.txt").read_text()
    for load in ("closed:2", "poisson:20", EVERYTHING):
        table = printed.partition(f"{load} ·")[2].partition("seeds")[2].partition("·")[0]
        for policy in POLICIES:
            assert policy in table, (load, policy)


def test_summary_names_the_worst_cell_not_the_mean(finished):
    results = read_results(finished)
    for condition in by_load(results):
        for line in condition.standings:
            ratios = [
                row.result.regret.of_best_static
                for row in rows_by(results, "policy")
                if row.result.policy == line.policy
                and condition.name in (row.cell.load, EVERYTHING)
            ]
            assert line.of_best_static == pytest.approx(sum(ratios) / len(ratios))
            assert line.worst[0] <= line.of_best_static


def test_json_output_is_one_value_with_the_summary(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "out")
    config = finished.parent / "config.yaml"
    result = call(config, "--output", tmp_path / "out", "--json")
    assert result.exit_code == 0
    value = json.loads(result.stdout)
    assert value["rows"] == RUNS + CELLS * 4
    lines = [line for each in value["summary"] for line in each["standings"]]
    assert {line["policy"] for line in lines} == set(POLICIES)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "not results of a sweep"),
        (b'{"schema": 1, "version": "0"', "not results of a sweep"),
        (b'{"schema": 2}', "schema"),
        (b"\xff\xfe", "not results of a sweep"),
    ],
)
def test_damaged_results_are_named(tmp_path, content, complaint):
    (tmp_path / "results.json").write_bytes(content)
    with refused(DataError, "results.json", match=complaint):
        read_results(tmp_path)


def test_a_directory_that_is_no_sweep_is_told_from_an_unfinished_one(finished, tmp_path):
    with pytest.raises(DataError, match="give the directory"):
        read_results(tmp_path)
    shutil.copy(finished / "runs.jsonl", tmp_path)
    with pytest.raises(DataError, match="has not finished"):
        read_results(tmp_path)


def test_the_summary_shows_means_and_worst_cells_beside_each_other(finished):
    text = (finished.parent / "output.txt").read_text()
    header = next(line for line in text.splitlines() if "/ best K" in line)
    names = " ".join(header.split())
    assert names == "policy / best K worst / no spec. worst / foresight tok/s TPOT ms"
    assert "± half the range of the seeds, and behind each" in " ".join(text.split())
    assert re.search(r"static:k=2 .*?[\d.]+±[.]\d{3} ", text)
