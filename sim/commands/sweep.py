"""`adaptive-spec sweep`: policies on every combination of loads, acceptance, hardware and seeds."""

from __future__ import annotations

import os
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adaptive_spec.commands.terminal import print_json, print_text
from adaptive_spec.sim.commands.options import JsonForTable
from adaptive_spec.sim.commands.printing import (
    ProgressLines,
    number,
    progress_bar,
    ratio,
    standard_output,
    table,
)

if TYPE_CHECKING:
    from rich.console import Console

    from adaptive_spec.sim.report.leaderboard import Condition
    from adaptive_spec.sim.sweep.results import SweepResults
    from adaptive_spec.sim.sweep.run import Plan


def sweep(
    config: Annotated[Path, typer.Argument(help="YAML or JSON: policies and axes.")],
    output: Annotated[
        Path | None,
        typer.Option(help="Directory of runs and results. Default: CONFIG's name + -results."),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Runs at a time. Default: one per CPU.")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume/--fresh", help="Go on with what is there, or drop it."),
    ] = True,
    ray: Annotated[
        str | None,
        typer.Option(help="Run on a Ray cluster: local, auto, HOST:PORT or ray://HOST:PORT."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Data folder that ${data} in the configuration means.")
    ] = None,
    json: JsonForTable = False,
) -> None:
    """Run every policy on every cell of a configuration, held against the oracles of the cell.

    Finished runs are kept at once: the same command goes on where a killed one has stopped. Exit
    status 1: some runs have failed; they are named, and tried again by the same command.
    """
    from adaptive_spec.sim.data_folder import ENVIRONMENT_VARIABLE, data_folder
    from adaptive_spec.sim.sweep.run import plan_sweep

    if data is not None:
        # Workers and tables of hardware look for it there.
        os.environ[ENVIRONMENT_VARIABLE] = str(data_folder(data).resolve())
    plan = plan_sweep(config)
    _say_size(plan)
    _warn_of_mismatches(plan)
    directory = output or Path(f"{config.stem}-results")
    results = _run(plan, directory, jobs=jobs, fresh=not resume, ray=ray)
    if json:
        _print_json(results, directory)
    else:
        _print_tables(results, directory)
    raise typer.Exit(1 if results.failures else 0)


def _say_size(plan: Plan) -> None:
    seeds = len(plan.config.seed_list())
    hint = f": `seeds: 1` takes 1/{seeds} of the time and shows no spread" if seeds > 1 else ""
    print_text(f"{len(plan.tasks)} runs with {seeds} seeds{hint}", error=True)


def _warn_of_mismatches(plan: Plan) -> None:
    """Name acceptance data that are not their drafter's, and what was done to files of loads."""
    named = {(cell.name.acceptance, cell.name.drafter): cell for cell in plan.cells}
    for (acceptance, _), cell in named.items():
        if mismatch := cell.scenario.acceptance_mismatch():
            print_text(f"warning: {acceptance}: {mismatch}", error=True)
    loads = {cell.scenario.load: cell.scenario for cell in plan.cells}
    for note in dict.fromkeys(chain.from_iterable(each.load_notes() for each in loads.values())):
        print_text(f"note: {note}", error=True)


def _run(
    plan: Plan, directory: Path, *, jobs: int | None, fresh: bool, ray: str | None
) -> SweepResults:
    from rich.markup import escape

    from adaptive_spec.sim.sweep.run import run_sweep
    from adaptive_spec.sim.sweep.task import Outcome

    with progress_bar() as progress:
        stderr = progress.console
        bar = progress.add_task("runs", total=len(plan.tasks))
        lines = ProgressLines()

        def advance(done: int, outcome: Outcome | None) -> None:
            progress.update(bar, completed=done)
            if outcome is None and done:
                stderr.print(f"{done} of {len(plan.tasks)} runs were finished before")
            if not stderr.is_terminal and (line := lines.line(done, len(plan.tasks))):
                stderr.print(line, highlight=False)
            if outcome is not None and outcome.error is not None:
                stderr.print(f"[red]failed[/red] {escape(f'{outcome.text}: {outcome.error}')}")

        try:
            return run_sweep(plan, directory, jobs=jobs, fresh=fresh, ray=ray, progress=advance)
        except KeyboardInterrupt:
            stderr.print(
                f"stopped; finished runs are kept in {directory}, the same command goes on",
                markup=False,
            )
            raise typer.Exit(130) from None


def _print_json(results: SweepResults, directory: Path) -> None:
    from adaptive_spec.sim.report.leaderboard import by_load
    from adaptive_spec.sim.sweep.store import RESULTS_CSV, RESULTS_JSON

    value = {
        "results": [str(directory / RESULTS_JSON), str(directory / RESULTS_CSV)],
        "rows": len(results.rows),
        "failures": results.failures,
        "summary": by_load(results),
    }
    print_json(value)


def _print_tables(results: SweepResults, directory: Path) -> None:
    from adaptive_spec.sim.report.leaderboard import by_load

    console = standard_output()
    for condition in by_load(results):
        _print_table(console, condition)
    console.print(
        "Ratios of scores: means over the cells, ± half the range of the seeds, and behind each "
        "that of its worst cell."
    )
    console.print(f"results: {directory}", markup=False)
    console.print(f"page:    adaptive-spec report {directory}", markup=False)
    if results.failures:
        console.print(f"{len(results.failures)} runs failed:", markup=False)
        for failure in results.failures:
            console.print(
                f"  {failure.cell.text} / {failure.policy}: {failure.error}", markup=False
            )


def _print_table(console: Console, condition: Condition) -> None:
    from rich.markup import escape

    cells, seeds = condition.cells, condition.seeds
    title = f"{condition.name} · {cells} cell{'s' * (cells > 1)}, {seeds} seed{'s' * (seeds > 1)}"
    ratios = "/ best K", "worst", "/ no spec.", "worst", "/ foresight"
    printed = table(title, "policy", *ratios, "tok/s", "TPOT ms", least=11)
    for line in condition.standings:
        printed.add_row(
            escape(line.policy),
            ratio(line.of_best_static, line.spread, digits=3),
            ratio(line.worst[0] if line.worst else None),
            ratio(line.of_no_speculation),
            ratio(line.worst_of_no_speculation),
            ratio(line.of_foresight),
            number(line.throughput_tok_s),
            number(line.tpot_p50_ms),
        )
    console.print(printed)
