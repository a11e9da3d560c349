"""`adaptive-spec report`: one page that shows who wins where, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from adaptive_spec.commands.terminal import print_text

DEFAULT_FOLDER = "report"


def report(
    results: Annotated[Path, typer.Argument(help="Directory of a sweep, or its results.json.")],
    output: Annotated[
        Path | None, typer.Option(help="Directory of page and figures. Default: RESULTS/report.")
    ] = None,
) -> None:
    """Make one self-contained HTML page, and its figures as PNG files, of a sweep's results."""
    from adaptive_spec.sim.report.page import write_report
    from adaptive_spec.sim.sweep.results import read_results

    found = read_results(results)
    folder = results if results.is_dir() else results.parent
    page = write_report(found, output or folder / DEFAULT_FOLDER)
    print_text(f"page:    {page}")
    print_text(f"figures: {len(list(page.parent.glob('*.png')))} PNG files in {page.parent}")
