"""Published measurements beside what the simulator gives.

python -m benchmarks.validation [--table V2] [--record]
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adaptive_spec.errors import ConfigError
from adaptive_spec.sim.commands.printing import standard_output, table
from adaptive_spec.sim.data_folder import data_folder
from benchmarks.validation import aiconfigurator_silicon, at_load, eagle3_by_batch
from benchmarks.validation.record import Recorded, recorded, write_record

if TYPE_CHECKING:
    from benchmarks.validation.row import Row

MODULES = {"V2": eagle3_by_batch, "V8": aiconfigurator_silicon, "V9": at_load}


def validate(
    data: Annotated[
        Path | None,
        typer.Option(help="Folder of public data. Default: ADAPTIVE_SPEC_DATA, ../shared/data."),
    ] = None,
    tables: Annotated[
        list[str] | None,
        typer.Option("--table", help=f"{', '.join(MODULES)}; repeat for several. Default: all."),
    ] = None,
    record: Annotated[
        bool, typer.Option("--record", help="Write what docs/simulator.md is made of.")
    ] = False,
) -> None:
    """Reproduce published measurements; exit status 1 if a bound is missed.

    Rows in brackets do not count: parameters were fitted on them, or they are for information.
    """
    found = []
    for name in tables or MODULES:
        if name not in MODULES:
            raise ConfigError(f"no table {name!r}: there are {', '.join(MODULES)}")
        module = MODULES[name]
        rows = module.rows(data_folder(data))
        found.append(recorded(name, module.TITLE, rows, module.checks(rows)))
        _print(found[-1], rows)
    if record:
        write_record(found)
    raise typer.Exit(0 if all(each.passed for each in found) else 1)


def _print(found: Recorded, rows: Sequence[Row]) -> None:
    from rich.markup import escape

    console = standard_output()
    shown = table(f"{found.table} · {found.title}", "row", "published", "simulated", "error")
    shown.add_column("note", overflow="fold", style="dim")
    for row in rows:
        error = f"{row.error:+.1%}" if row.within else f"{row.error:+.1%} !"
        shown.add_row(
            escape(row.label if row.table == found.table else f"{row.table}: {row.label}"),
            f"{row.published:,.4g}",
            f"{row.simulated:,.4g}",
            error if row.counted else f"({row.error:+.1%})",
            escape(row.note),
        )
    console.print(shown)
    for demand, result, passed in found.checks:
        console.print(f"{'ok    ' if passed else 'MISSED'} {demand}: {result}", markup=False)


if __name__ == "__main__":
    typer.run(validate)
