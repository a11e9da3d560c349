"""The page holds everything it shows, and its figures show something."""

import math
import re
import sys
from html import unescape

import msgspec
import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from adaptive_spec.errors import ConfigError, DataError
from adaptive_spec.sim.commands.report import report
from adaptive_spec.sim.report.page import write_report
from adaptive_spec.sim.result import Percentiles
from adaptive_spec.sim.sweep.results import Failure, read_results, write_results
from tests.sim.report.fake_results import results, without_oracles

LOADS = ("closed:1", "closed:8", "closed:64")
BY_K = (50.0, 80.0, 100.0), (300.0, 500.0, 490.0), (900.0, 1000.0, 800.0)
FIXED = dict(zip(LOADS, BY_K, strict=True))


def fake_results(policies: int):
    names = ["goodput", "<odd> & policy", *(f"static:k={k}" for k in range(policies - 2))]
    scores = {
        name: {load: (max(FIXED[load]) * (1 - 0.01 * place),) * 2 for load in LOADS}
        for place, name in enumerate(names)
    }
    return results(scores, FIXED, foresight=1200.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A directory with results of 12 policies, and its report."""
    folder = tmp_path_factory.mktemp("sweep")
    write_results(fake_results(12), folder)
    app = typer.Typer()
    app.command()(report)
    result = CliRunner().invoke(app, [str(folder)])
    assert result.exit_code == 0, result.output
    assert str(folder / "report" / "report.html") in result.stdout
    return folder


@pytest.fixture(scope="module")
def page(folder):
    return (folder / "report" / "report.html").read_text()


def test_a_sweep_in_which_no_request_ended_has_a_page_too(tmp_path):
    none = math.nan
    found = results({"goodput": dict.fromkeys(LOADS, (1.0, 1.0))}, FIXED)
    rows = tuple(
        msgspec.structs.replace(
            row,
            result=msgspec.structs.replace(row.result, tpot_ms=Percentiles(none, none, none, none)),
        )
        for row in found.rows
    )
    page = write_report(msgspec.structs.replace(found, rows=rows), tmp_path)
    assert "goodput" in page.read_text()


def test_the_page_loads_nothing_from_elsewhere(page):
    text = re.sub(r"data:image/png;base64,[A-Za-z0-9+/=]+", "", page)
    assert len(text) < len(page) / 2
    assert "//" not in text
    for source in re.findall(r"""(?:src|href)\s*=\s*["']([^"']*)""", page):
        assert source.startswith("data:image/png;base64,")
    assert "url(" not in text
    assert "default-src 'none'; style-src 'unsafe-inline'; img-src data:" in text
    assert "<script" not in text


def test_every_policy_and_load_stands_on_the_page_escaped(page):
    for policy in {row.result.policy for row in fake_results(12).rows if row.kind == "policy"}:
        assert policy in unescape(page)
    assert "<odd>" not in page
    for load in LOADS:
        assert load in page


def test_the_figures_are_files_and_the_same_ones_are_on_the_page(folder, page):
    from base64 import b64encode

    figures = sorted(path.name for path in (folder / "report").glob("*.png"))
    expected = ["01-load.png"]
    assert figures == expected
    for name in figures:
        assert b64encode((folder / "report" / name).read_bytes()).decode() in page


def test_no_figure_is_blank_and_each_has_colours(folder):
    from matplotlib.image import imread

    for path in (folder / "report").glob("*.png"):
        pixels = imread(path)[..., :3]
        assert pixels.shape[0] > 200, path
        assert pixels.shape[1] > 400, path
        ink = (pixels < 0.9).any(axis=2)
        assert 0.005 < ink.mean() < 0.6, path
        coloured = np.ptp(pixels, axis=2) > 0.3
        assert coloured.sum() > 100, path


def test_policies_without_a_colour_have_their_figures_in_the_table(page):
    line = re.search(r"</span>static:k=9</th>.*?</tr>", page, flags=re.DOTALL)
    assert "0.890" in line[0]


def test_same_results_give_the_same_bytes(folder, tmp_path):
    page = write_report(read_results(folder), tmp_path / "again")
    for path in page.parent.iterdir():
        assert path.read_bytes() == (folder / "report" / path.name).read_bytes(), path.name


def test_results_without_oracles_have_a_page_too(tmp_path):
    page = write_report(without_oracles(fake_results(3)), tmp_path)
    assert "the oracles were not run" in page.read_text()
    assert (tmp_path / "01-load.png").exists()


def test_runs_that_failed_stand_on_the_page_with_their_error(tmp_path):
    made = fake_results(3)
    failure = Failure(made.rows[0].cell, "goodput", "DataError: trace.csv: row 4")
    page = write_report(msgspec.structs.replace(made, failures=(failure,)), tmp_path).read_text()
    listed = page.partition("Runs that failed")[2]
    assert "closed:1 / seed 0 / goodput" in listed
    assert "DataError: trace.csv: row 4" in listed


def test_a_single_policy_on_a_single_load_has_a_page(tmp_path):
    one = results({"goodput": {"closed:1": (99.0,)}}, {"closed:1": (50.0, 80.0, 100.0)})
    assert "0.990" in write_report(one, tmp_path).read_text()


def test_what_can_not_be_used_is_one_clear_line(tmp_path):
    with pytest.raises(DataError, match="no results"):
        read_results(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="--output"):
        write_report(fake_results(3), tmp_path / "file")


@pytest.mark.parametrize("library", ["matplotlib", "jinja2"])
def test_a_missing_library_is_named_with_its_extra(tmp_path, monkeypatch, library):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ConfigError, match=rf"{library}.*'\.\[sim\]' in a checkout"):
        write_report(fake_results(3), tmp_path)
