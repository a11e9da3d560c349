"""What a sweep says on standard error while it runs."""

import re

from adaptive_spec.sim.commands import printing
from tests.sim.sweep.fake_sweep import CONFIG, RUNS, call, write_sweep


def test_a_log_gets_lines_with_the_time_left(tmp_path, monkeypatch):
    monkeypatch.setattr(printing, "LINE_SECONDS", 0.0)
    result = call(write_sweep(tmp_path), "--output", tmp_path / "out", "--jobs", 1)
    lines = re.findall(rf"(\d+) of {RUNS} runs, about (\d+):(\d\d) left", result.stderr)
    assert [int(done) for done, *_ in lines] == list(range(1, RUNS + 1))
    assert lines[-1][1:] == ("0", "00")


def test_acceptance_of_other_drafts_than_copied_ones_is_warned_of_once(tmp_path):
    copied = CONFIG.replace("[eagle]", "[ngram]")
    config = write_sweep(tmp_path, copied.replace("acceptance.jsonl", "model:mixed"))
    result = call(config, "--output", tmp_path / "out", "--jobs", 1)
    assert result.stderr.count("not known to come from copied drafts") == 1
    listed = write_sweep(tmp_path, copied)
    assert "warning" not in call(listed, "--output", tmp_path / "other", "--jobs", 1).stderr
