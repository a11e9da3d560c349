"""Alert rules and dashboard: their metrics exist, and Prometheus's own tool accepts the rules."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("prometheus_client")

from adaptive_spec.operation.metrics import DISTRIBUTIONS, FIGURES, STATUS_AGE

DASHBOARDS = Path(__file__).resolve().parents[3] / "dashboards"


@pytest.mark.parametrize("file", ["alerts.yml", "adaptive_spec.json"])
def test_every_metric_that_is_asked_for_exists(file):
    known = {STATUS_AGE} | {
        figure.name + "_total" * (figure.kind == "counter") for figure in FIGURES
    }
    known |= {
        f"{each.name}_{part}" for each in DISTRIBUTIONS for part in ("bucket", "sum", "count")
    }
    expressions = re.findall(r"adaptive_spec_[a-z_]+(?=[{\[( ])", (DASHBOARDS / file).read_text())
    assert len(set(expressions)) >= 7
    assert set(expressions) <= known | {"adaptive_spec_output_failures_total"}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool: apt install prometheus")
@pytest.mark.parametrize("command", ["check rules alerts.yml", "test rules alerts_test.yml"])
def test_each_rule_fires_on_its_fault_and_none_on_a_healthy_server(command):
    done = subprocess.run(
        ["promtool", *command.split()],
        cwd=DASHBOARDS,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
