"""Published measurements beside what the simulator gives.

python -m benchmarks.validation [--table V2] [--json] [--record]
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adaptive_spec.commands.terminal import print_json
from adaptive_spec.sim.commands.printing import standard_output, table

if TYPE_CHECKING:
    from rich.console import Console

    from benchmarks.validation.row import Row
    from benchmarks.validation.tables import Verdict


def validate(
    data: Annotated[
        Path | None,
        typer.Option(help="Folder of public data. Default: ADAPTIVE_SPEC_DATA, ../shared/data."),
    ] = None,
    tables: Annotated[
        list[str] | None,
        typer.Option("--table", help="V1, V2, V8, V9; repeat for several. Default: all."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    record: Annotated[
        bool, typer.Option("--record", help="Write what docs/simulator.md is made of.")
    ] = False,
) -> None:
    """Reproduce published measurements; exit status 1 if a bound is missed.

    Rows in brackets do not count: parameters were fitted on them, or they are for information.
    """
    from adaptive_spec.sim.data_folder import data_folder
    from benchmarks.validation.record import write_record
    from benchmarks.validation.tables import table_names

    names = table_names(tables or [])
    verdicts = _reproduce(names, data_folder(data))
    if record:
        write_record(verdicts)
    if json:
        print_json(verdicts)
    else:
        _print_tables(verdicts)
    raise typer.Exit(0 if all(verdict.passed for verdict in verdicts) else 1)


def _reproduce(names: list[str], folder: Path) -> list[Verdict]:
    from rich.console import Console
    from rich.progress import Progress

    from benchmarks.validation.tables import reproduce

    stderr = Console(stderr=True)
    verdicts = []
    with Progress(console=stderr, transient=True, disable=not stderr.is_terminal) as progress:
        task = progress.add_task("", total=len(names))
        for name in names:
            progress.update(task, description=name)
            verdicts.append(reproduce(name, folder))
            progress.advance(task)
    return verdicts


def _print_tables(verdicts: list[Verdict]) -> None:
    console = standard_output()
    for verdict in verdicts:
        _print_table(console, verdict)
    for verdict in verdicts:
        console.print(f"{verdict.table}: {_word(verdict)}", markup=False)


def _print_table(console: Console, verdict: Verdict) -> None:
    from rich.markup import escape

    shown = table(f"{verdict.table} · {verdict.title}", "row", "published", "simulated", "error")
    shown.add_column("note", overflow="fold", style="dim")
    for row in verdict.rows:
        label = row.label if row.table == verdict.table else f"{row.table}: {row.label}"
        shown.add_row(
            escape(label),
            _figure(row.published),
            _figure(row.simulated),
            escape(_error(row)),
            escape(row.note),
        )
    console.print(shown)
    for check in verdict.checks:
        mark = "ok    " if check.passed else "MISSED"
        console.print(f"{mark} {check.demand}: {check.found}", markup=False)
    console.print(f"{verdict.table}: {_word(verdict)}\n", markup=False)


def _error(row: Row) -> str:
    from benchmarks.validation.row import shown

    error = shown(row.error, row)
    if not row.counted:
        return f"({error})"
    return error if row.within else f"{error} !"


def _figure(value: float) -> str:
    return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.3f}"


def _word(verdict: Verdict) -> str:
    return "reproduced" if verdict.passed else "bound missed"


if __name__ == "__main__":
    typer.run(validate)
