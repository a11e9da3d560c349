"""How loads are arranged into families."""

import pytest

from adaptive_spec.sim.report.comparison import BEST_STATIC, NO_SPECULATION, Comparison, place_of
from adaptive_spec.sim.report.page import write_report
from adaptive_spec.sim.report.tables import load_table, winners

from .fake_results import results


@pytest.mark.parametrize(
    ("text", "family", "axis", "x"),
    [
        ("closed:64", "closed loop", "concurrent requests", 64),
        ("poisson:2.5", "Poisson arrivals", "requests per second", 2.5),
        ("gamma:3:1.8", "Gamma arrivals, CV 1.8", "requests per second", 3),
        ("/a/trace.csv@rate=1.3", "trace.csv", "rate, times the recorded", 1.3),
        ("a/t.csv@rate=2,first=60", "t.csv first=60", "rate, times the recorded", 2),
        ("a/t.csv@first=60,rate=2", "t.csv first=60", "rate, times the recorded", 2),
        ("a/t.csv@closed=8", "closed loop, t.csv", "concurrent requests", 8),
        ("ramp.yaml", "ramp.yaml", "", 0),
    ],
)
def test_loads_that_differ_in_one_number_share_a_family(text, family, axis, x):
    assert place_of(text) == (family, axis, x)


@pytest.mark.parametrize("off", ["off", "static:k=0"])
def test_no_speculation_is_one_series_where_a_policy_is_always_off(off):
    fixed = {"closed:1": (10.0, 12.0, 11.0)}
    with_off = Comparison(results({off: {"closed:1": (10.0,)}}, fixed))
    without = Comparison(results({"ours": {"closed:1": (13.0,)}}, fixed))
    [setting] = with_off.settings
    assert with_off.rows(setting, "closed:1", off)
    assert not with_off.rows(setting, "closed:1", NO_SPECULATION)
    assert without.rows(setting, "closed:1", NO_SPECULATION)
    assert with_off.rows(setting, "closed:1", BEST_STATIC)


FIXED = {"closed:1": (50.0, 80.0, 100.0), "closed:64": (900.0, 1000.0, 800.0)}
SCORES = {
    "static:k=2": {"closed:1": (100.0, 100.0), "closed:64": (800.0, 800.0)},
    "goodput": {"closed:1": (101.0, 103.0), "closed:64": (990.0, 994.0)},
    "off": {"closed:1": (50.0, 50.0), "closed:64": (900.0, 900.0)},
}


def test_policies_within_half_a_per_cent_are_level():
    level = {**SCORES, "off": {"closed:1": (50.0, 50.0), "closed:64": (989.0, 989.0)}}
    comparison = Comparison(results(level, FIXED))
    (setting,) = comparison.settings
    assert set(winners(comparison, setting, "closed:64")[0]) == {"goodput", "off"}
    assert winners(comparison, setting, "closed:1")[0] == ["goodput"]


def test_tables_show_means_spread_and_leaders():
    comparison = Comparison(results(SCORES, FIXED))
    (setting,) = comparison.settings
    (family,) = comparison.families(setting)
    table = load_table(comparison, setting, family)
    assert table.columns == ("closed:1", "closed:64")
    cells = dict(table.lines)["goodput"]
    assert [cell.text for cell in cells] == ["1.020", "0.992"]
    assert [cell.spread for cell in cells] == ["±0.010", "±0.002"]
    assert [cell.leads for cell in cells] == [True, True]
    notes = dict(table.notes)
    assert notes["leads (ahead of the next by)"] == ("goodput (2.0 %)", "goodput (9.2 %)")
    assert notes["best fixed K"] == ("2", "1")


@pytest.mark.parametrize("x", [0.5, 1.5])
def test_shades_tell_better_from_worse(x):
    scores = {"goodput": {"closed:1": (100.0 * x,), "closed:64": (1000.0 * x,)}}
    comparison = Comparison(results(scores, FIXED))
    (setting,) = comparison.settings
    (family,) = comparison.families(setting)
    (cell, _) = dict(load_table(comparison, setting, family).lines)["goodput"]
    assert cell.background.startswith("rgba(213, 94, 0" if x < 1 else "rgba(0, 114, 178")


def test_decisions_and_requests_that_came_to_nothing_stand_on_the_page(tmp_path):
    page = write_report(results(SCORES, FIXED, fail_opens=3, rejected=1), tmp_path).read_text()
    assert "goodput: 12 decisions could not be used" in page
    assert "12 requests, over all runs, could never fit" in page
