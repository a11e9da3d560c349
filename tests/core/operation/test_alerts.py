"""Alert rules and dashboard: their metrics exist, and Prometheus's own tool accepts the rules."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytest.importorskip("prometheus_client")

from adaptive_spec.operation.metrics import DISTRIBUTIONS, FIGURES

ROOT = Path(__file__).resolve().parents[3]
DASHBOARDS = ROOT / "dashboards"


@pytest.mark.parametrize("file", ["alerts.yml", "adaptive_spec.json"])
def test_every_metric_that_is_asked_for_exists(file):
    known = {figure.name + "_total" * (figure.kind == "counter") for figure in FIGURES}
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
        ["promtool", *command.split()], cwd=DASHBOARDS, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_recorded_series_that_is_shown_is_recorded():
    rules = (DASHBOARDS / "alerts.yml").read_text()
    shown = set(
        re.findall(r"adaptive_spec:[a-z0-9_:]+", (DASHBOARDS / "adaptive_spec.json").read_text())
    )
    assert shown
    assert shown <= set(re.findall(r"record: (\S+)", rules))


def test_each_alert_names_a_section_of_operate():
    page = (ROOT / "docs" / "operate.md").read_text()
    headings = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9 -]", "", each.lower()).replace(" ", "-") for each in headings}
    groups = yaml.safe_load((DASHBOARDS / "alerts.yml").read_text())["groups"]
    alerts = [rule for group in groups for rule in group["rules"] if "alert" in rule]
    assert alerts
    for alert in alerts:
        file, _, anchor = alert["annotations"]["runbook_url"].partition("#")
        assert file == "docs/operate.md"
        assert anchor in anchors, alert["alert"]
        assert f"`{alert['alert']}`" in page


def test_the_files_for_kubernetes_hold_the_dashboard_and_the_rules():
    command = [sys.executable, str(ROOT / "scripts" / "kubernetes_files.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_dashboard_begins_with_what_speculation_is_worth():
    panels = json.loads((DASHBOARDS / "adaptive_spec.json").read_text())["panels"]
    first = [panel["title"] for panel in panels if panel["type"] == "stat"][:4]
    assert first == [
        "Gain over no speculation",
        "Measured gain over the engine's own K",
        "Mean K",
        "Accepted",
    ]
    assert all("instance=~" in t["expr"] for p in panels for t in p.get("targets", []))
