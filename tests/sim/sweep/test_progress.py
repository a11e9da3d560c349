"""Where no bar can be drawn, a sweep says how far it is and how long it will take."""

from __future__ import annotations

import re

from adaptive_spec.sim.commands import sweep
from tests.sim.sweep.fake_sweep import RUNS, call, write_sweep


def test_a_log_gets_lines_with_the_time_left(tmp_path, monkeypatch):
    monkeypatch.setattr(sweep, "LINE_SECONDS", 0.0)
    result = call(write_sweep(tmp_path), "--output", tmp_path / "out", "--jobs", 1)
    lines = re.findall(rf"(\d+) of {RUNS} runs, about (\d+):(\d\d) left", result.stderr)
    assert [int(done) for done, *_ in lines] == list(range(1, RUNS + 1))
    assert lines[-1][1:] == ("0", "00")
