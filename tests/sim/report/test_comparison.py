"""How loads are arranged into families."""

import pytest

from adaptive_spec.sim.report.comparison import BEST_STATIC, NO_SPECULATION, Comparison, place_of

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
