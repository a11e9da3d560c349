"""`adaptive-spec fit`: the model file of the `regression` policy, from recorded steps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adaptive_spec.commands.terminal import print_json
from adaptive_spec.sim.commands.printing import say, standard_output, table, write_file

if TYPE_CHECKING:
    from rich.console import Console

    from adaptive_spec.policies.regression import RegressionModel
    from adaptive_spec.sim.fit.calibration import PositionCalibration


def fit(
    sources: Annotated[
        list[Path],
        typer.Argument(
            help="Step traces (folder or file), npz files of steps, or acceptance lists; any mix."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Where to write the model.")] = Path("model.json"),
    held_out: Annotated[
        float,
        typer.Option(min=0.05, max=0.9, help="Fraction of the requests to measure on, not fit to."),
    ] = 0.3,
    drafter: Annotated[str, typer.Option(help="Which list of acceptance lists.")] = "eagle",
    kmax: Annotated[
        int, typer.Option(min=1, max=64, help="Largest K that acceptance lists are replayed with.")
    ] = 8,
    name: Annotated[str, typer.Option(help="Name of the model, for people.")] = "",
    seed: Annotated[int, typer.Option(min=0, help="Of the split and of all draws.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Fit acceptance and step times to recorded steps, and say how well they are predicted.

    The model is for the policy `regression`. Calibration is measured on held-out requests.
    """
    import msgspec

    from adaptive_spec.sim.fit.fitting import fit_sources

    _writable(out)
    model = fit_sources(
        sources,
        held_out=held_out,
        drafter_list=drafter,
        kmax=kmax,
        seed=seed,
        name=name or out.stem,
    )
    write_file(out, msgspec.json.format(msgspec.json.encode(model), indent=1) + b"\n")
    if json:
        value = {
            "output": str(out),
            "source": model.source,
            "calibration": model.calibration,
            "step_time_error": model.step_time_error,
        }
        print_json(value)
    else:
        _print_tables(model, out)


def _writable(out: Path) -> None:
    """Said before anything is fitted."""
    from adaptive_spec.errors import DataError

    if out.is_dir() or not out.parent.is_dir():
        what = "is a folder" if out.is_dir() else f"there is no folder {out.parent}"
        raise DataError(f"--out {out}: {what}; name a file to write")


def _print_tables(model: RegressionModel, out: Path) -> None:
    import msgspec

    from adaptive_spec.sim.fit.calibration import Calibration

    console = standard_output()
    found = msgspec.convert(model.calibration, Calibration)
    say(model.source, wrap=False)
    say(f"fitted to {found.requests} requests, measured on {found.held_out} others")
    _print_calibration(console, "by history, before drafting", found.history, found.average)
    if found.drafts:
        _print_calibration(
            console,
            "with draft confidence, against history alone on the same drafts",
            found.drafts,
            found.history_there,
        )
    if model.step_times is None:
        say("No step times: the policy learns them online.")
    else:
        say(
            f"Step times: median error {model.step_time_error:.1%}, each step predicted before it "
            "was seen, over the second half."
        )
    say(f"Wrote {out}: --policy regression:model={out}", wrap=False)


def _print_calibration(
    console: Console,
    title: str,
    rows: list[PositionCalibration],
    others: list[PositionCalibration],
) -> None:
    columns = "drafts", "accepted", "predicted", "ECE", "AUC", "AUC without"
    printed = table(title, "position", *columns)
    for row, other in zip(rows, others, strict=True):
        printed.add_row(
            str(row.position) if row.position else "all",
            f"{row.drafts:,}",
            f"{row.accepted:.3f}",
            f"{row.predicted:.3f}",
            f"{row.ece:.3f}",
            _auc(row),
            _auc(other),
        )
    console.print(printed)


def _auc(row: PositionCalibration) -> str:
    return "–" if row.auc is None else f"{row.auc:.3f}"
