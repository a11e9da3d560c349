"""How rows become series, and what the page says of them."""

import pytest

from adaptive_spec.sim.report.figures import BEST_STATIC, NO_SPECULATION, series
from adaptive_spec.sim.report.page import write_report

from .fake_results import results


def test_references_are_series_of_their_own():
    found = series(results({"ours": {"closed:1": (13.0,)}}, {"closed:1": (10.0, 12.0, 11.0)}).rows)
    assert list(found) == ["ours", NO_SPECULATION, BEST_STATIC]
    assert [row.result.policy for row in found[BEST_STATIC]["closed:1"]] == ["static:k=1"]


FIXED = {"closed:1": (50.0, 80.0, 100.0), "closed:64": (900.0, 1000.0, 800.0)}
SCORES = {
    "static:k=2": {"closed:1": (100.0, 100.0), "closed:64": (800.0, 800.0)},
    "goodput": {"closed:1": (101.0, 103.0), "closed:64": (990.0, 994.0)},
    "off": {"closed:1": (50.0, 50.0), "closed:64": (900.0, 900.0)},
}


@pytest.mark.parametrize(("x", "colour"), [(0.5, "rgba(213, 94, 0"), (1.5, "rgba(0, 114, 178")])
def test_shades_tell_better_from_worse(tmp_path, x, colour):
    scores = {"goodput": {"closed:1": (100.0 * x,), "closed:64": (1000.0 * x,)}}
    page = write_report(results(scores, FIXED), tmp_path).read_text()
    line = page.partition("</span>goodput</th>")[2].partition("<td title")[0]
    assert line.count("rgba(") == line.count(colour) == 3


def test_decisions_and_requests_that_came_to_nothing_stand_on_the_page(tmp_path):
    page = write_report(results(SCORES, FIXED, fail_opens=3, rejected=1), tmp_path).read_text()
    assert "goodput: 12 decisions could not be used" in page
    assert "12 requests, over all runs, could never fit" in page
