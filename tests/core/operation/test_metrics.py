"""One catalogue of figures, the same on both ways to Prometheus."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("prometheus_client")

from prometheus_client import CollectorRegistry, generate_latest

from adaptive_spec.operation.metrics import DISTRIBUTIONS, FIGURES, families
from adaptive_spec.operation.status import DECISION_SECONDS

ROOT = Path(__file__).resolve().parents[3]

STATUS: dict[str, Any] = {
    "mode": "on",
    "policy": "goodput",
    "max_draft_tokens": 3,
    "live_requests": 4,
    "requests_without_drafter": 2,
    "drafted_tokens": 90,
    "verified_tokens": 19,
    "accepted_tokens": 12,
    "emitted_tokens": 22,
    "reasons_by_mode": {"on": {"best of #": 7, "probing": 1}, "engine": {"engine's own K": 2}},
    "requests_by_k": {"0": 1, "2": 5, "3": 3},
    "requests_by_accepted": {"0": 3, "1": 1, "2": 4, "3": 1},
    "lookup": {"found": 9, "agreed": 5, "verified": 4, "accepted": 3},
    "fail_opens": {'plan raised "x"\n': 2},
    "ignored_hints": {"adaptive_spec_k_cap": 1},
    "events": {"steps_cut_for_memory": 3},
    "last_depth": 3,
    "decision_seconds": 0.004,
    "decisions_by_time": [0, 1, 2, 4, 0, 0, 0, 0, 0, 0, 3],
    "goodput": {"predicted": 120.5, "measured": 118.0},
    "output_failures": {"status file": 2},
    "written": 1e9,
}
HAZARDS = {
    "history": {
        "auc": 0.6,
        "ece": 0.04,
        "auc_by_position": [0.61, None, None],
        "ece_by_position": [0.05, 0.03, None],
    }
}
LATER = STATUS | {
    "mode": "shadow",
    "verified_tokens": 22,
    "requests_by_k": {"0": 1, "2": 5, "3": 4},
    "events": {"steps_cut_for_memory": 3, "another": 1},
    "decision_seconds": 0.005,
    "decisions_by_time": [1, 1, 2, 4, 0, 0, 0, 0, 0, 0, 3],
}


class Collected:
    def __init__(self, *statuses: dict[str, Any]) -> None:
        self._rows = [(("bench", str(index)), status) for index, status in enumerate(statuses)]

    def collect(self) -> Any:
        return families(self._rows)


def page(*statuses: dict[str, Any]) -> list[str]:
    registry = CollectorRegistry()
    registry.register(Collected(*statuses))
    return samples(generate_latest(registry).decode())


def samples(text: str) -> list[str]:
    return sorted(line for line in text.splitlines() if not line.startswith("#"))


def gathered(tmp_path: Path, *statuses: dict[str, Any], engine: str = "0") -> list[str]:
    """The page of a second process, where `LiveFigures` was refreshed in a first one."""
    folder = tmp_path / "gathered"
    folder.mkdir(exist_ok=True)
    environment = os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(folder)}

    def run(code: str, given: str = "") -> str:
        done = subprocess.run(
            [sys.executable, "-c", code],
            input=given,
            text=True,
            check=True,
            env=environment,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            timeout=120,
        )
        return done.stdout

    run(
        "import json, sys\n"
        "from adaptive_spec.operation.metrics import LiveFigures\n"
        "statuses, engine = json.load(sys.stdin)\n"
        "live = LiveFigures(statuses[0], model_name='bench', engine=engine)\n"
        "for status in statuses:\n"
        "    live.refresh(status)\n",
        json.dumps((statuses, engine)),
    )
    found = run(
        "from prometheus_client import CollectorRegistry, generate_latest\n"
        "from prometheus_client.multiprocess import MultiProcessCollector\n"
        "registry = CollectorRegistry(); MultiProcessCollector(registry)\n"
        "print(generate_latest(registry).decode())"
    )
    return samples(found.rstrip("\n"))


def test_a_page_says_what_the_status_says() -> None:
    found = "\n".join(page(STATUS))
    common = 'engine="0",{}model_name="bench"'
    for expected in (
        f"adaptive_spec_verified_tokens_total{{{common.format('')}}} 19.0",
        'adaptive_spec_decisions_total{engine="0",mode="on",model_name="bench",reason="best of #"}'
        " 7.0",
        'adaptive_spec_goodput_tokens_per_second{engine="0",model_name="bench",side="measured"}'
        " 118.0",
        f"adaptive_spec_verified_per_request_count{{{common.format('')}}} 9.0",
        f"adaptive_spec_verified_per_request_sum{{{common.format('')}}} 19.0",
        'adaptive_spec_verified_per_request_bucket{engine="0",le="2.0",model_name="bench"} 6.0',
        'adaptive_spec_decision_seconds_bucket{engine="0",le="+Inf",model_name="bench"} 10.0',
        'adaptive_spec_decision_seconds_bucket{engine="0",le="0.02",model_name="bench"} 7.0',
    ):
        assert expected in found


def test_both_ways_show_the_same_figures(tmp_path: Path) -> None:
    assert gathered(tmp_path, STATUS) == page(STATUS)


def test_gauges_of_an_engine_that_has_ended_go_with_it(tmp_path: Path) -> None:
    """A restart over the same folder, and a rank that is gone."""
    for engine in ("1", "0"):
        gathered(tmp_path, STATUS | {"benched": True, "live_requests": 40}, engine=engine)
    found = gathered(tmp_path, LATER | {"benched": False, "live_requests": 0})
    gauges = [line for line in found if line.startswith(("adaptive_spec_state", "adaptive_spec_b"))]
    labels = 'engine="0",model_name="bench"'
    assert gauges == [
        f"adaptive_spec_benched{{{labels}}} 0.0",
        'adaptive_spec_state{engine="0",mode="shadow",model_name="bench",policy="goodput"} 1.0',
    ]
    counted = [line for line in found if line.startswith("adaptive_spec_verified_tokens_total")]
    assert [line.rpartition(" ")[2] for line in counted] == ["41.0", "19.0"]  # counters add up


def test_drafts_are_counted_by_position() -> None:
    found = [line for line in page(STATUS) if line.startswith("adaptive_spec_position_tokens_t")]
    values = {
        tuple(re.findall(r'(?:position|state)="(\w+)"', line)): float(line.rpartition(" ")[2])
        for line in found
    }
    assert values == {
        ("0", "verified"): 8.0,
        ("1", "verified"): 8.0,
        ("2", "verified"): 3.0,
        ("0", "accepted"): 6.0,
        ("1", "accepted"): 5.0,
        ("2", "accepted"): 1.0,
    }


def test_prediction_of_acceptance_is_shown_by_position() -> None:
    found = [line for line in page(STATUS | {"hazards": HAZARDS}) if "_hazard_" in line]
    labels = 'engine="0",model_name="bench",position="{}",source="history"'
    assert found == [
        f"adaptive_spec_hazard_auc{{{labels.format('1')}}} 0.61",
        f"adaptive_spec_hazard_auc{{{labels.format('all')}}} 0.6",
        f"adaptive_spec_hazard_calibration_error{{{labels.format('1')}}} 0.05",
        f"adaptive_spec_hazard_calibration_error{{{labels.format('2')}}} 0.03",
        f"adaptive_spec_hazard_calibration_error{{{labels.format('all')}}} 0.04",
    ]


def test_later_statuses_replace_earlier_ones(tmp_path: Path) -> None:
    expected = page(LATER)
    gone = 'adaptive_spec_state{engine="0",mode="on",model_name="bench",policy="goodput"} 0.0'
    assert gathered(tmp_path, STATUS, STATUS, LATER) == sorted([*expected, gone])


def test_engines_are_told_apart() -> None:
    lines = page(STATUS, LATER)
    for index, verified in (("0", "19.0"), ("1", "22.0")):
        name = "adaptive_spec_verified_tokens_total"
        assert f'{name}{{engine="{index}",model_name="bench"}} {verified}' in lines


def test_names_are_those_prometheus_allows_and_no_two_alike() -> None:
    names = [figure.name for figure in FIGURES] + [figure.name for figure in DISTRIBUTIONS]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"adaptive_spec_[a-z_]+", name) for name in names)
    assert not any(name.endswith("_total") for name in names)


def test_a_controllers_status_has_all_that_is_shown() -> None:
    from adaptive_spec import Capability, Config, Controller, Level

    capability = Capability(level=Level.FULL, max_draft_tokens=3)
    status = Controller.from_config(Config(policy="static"), capability).status()
    assert set(STATUS) <= set(status)
    assert len(status["decisions_by_time"]) == len(DECISION_SECONDS) + 1
    assert page(status)


def test_the_page_shows_what_speculation_is_estimated_to_be_worth() -> None:
    estimates = {"no_speculation": 80.0, "engine_k": 110.0, "planned": 120.0}
    found = page(STATUS | {"estimates": estimates, "benched": True})
    labels = 'engine="0",model_name="bench"'
    for setup, value in estimates.items():
        name = "adaptive_spec_estimated_tokens_per_second"
        assert f'{name}{{{labels},setup="{setup}"}} {value}' in found
    assert f"adaptive_spec_benched{{{labels}}} 1.0" in found


def test_the_page_has_the_measured_gain_its_bounds_and_where_it_was_handed_back() -> None:
    hour = {"blocks": 20, "sums": [20.0] * 6, "gain": 0.05, "low": 0.01, "high": 0.09}
    few = {"blocks": 3, "sums": [3.0] * 6, "hour": {"blocks": 3}, "by_load": {}}
    arms = {"engine": hour | {"gain": 0.06, "hour": hour, "by_load": {}}, "none": few}
    found = page(STATUS | {"audit": {"arms": arms, "handed_back": ["33-64"]}})
    labels = 'engine="0",model_name="bench"'
    name = "adaptive_spec_measured_gain"
    assert f'{name}{{arm="engine",bound="gain",{labels},since="start"}} 0.06' in found
    assert f'{name}{{arm="engine",bound="low",{labels},since="hour"}} 0.01' in found
    assert f'{name}{{arm="none"' not in found  # too few blocks for bounds
    assert f'adaptive_spec_audit_blocks_total{{arm="none",{labels}}} 3.0' in found
    assert 'adaptive_spec_handed_back{engine="0",load="33-64",model_name="bench"} 1.0' in found
    assert page(STATUS | {"audit": {"fault": "ValueError"}})
