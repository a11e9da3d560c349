"""`adaptive-spec trace compact`: the traces of a fleet, made small."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adaptive_spec.commands.terminal import print_text
from adaptive_spec.sim.commands.printing import ProgressLines, progress_bar, say

if TYPE_CHECKING:
    from adaptive_spec.sim.compact import Compacted, Compaction

trace = typer.Typer(help="Keep the step traces of a fleet.", no_args_is_help=True)


@trace.callback()
def _trace() -> None:
    """Keep the step traces of a fleet."""


@trace.command()
def compact(
    sources: Annotated[
        list[str], typer.Argument(help="Folders, segments, patterns or URLs of step traces.")
    ],
    target: Annotated[Path, typer.Argument(help="Folder to write to.")],
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Replicas at a time. Default: one per CPU.")
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(help="Run on a Ray cluster: local, auto, HOST:PORT or ray://HOST:PORT."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of all draws.")] = 0,
) -> None:
    """Write Parquet by model, replica and hour, and for each replica what `advise` needs of it.

    The same traces make the same bytes, on one machine or on a cluster. Exit status 1: some
    replicas have failed; they are named.

    Example: adaptive-spec trace compact TRACES SMALL, then adaptive-spec advise SMALL
    """
    from importlib.util import find_spec

    from adaptive_spec.errors import DataError, missing_extra
    from adaptive_spec.sim.compact import compactions
    from adaptive_spec.sim.step_trace import find_trace

    if find_spec("polars") is None:
        raise missing_extra("trace compact needs polars", "fleet")
    found = find_trace([Path(source) for source in sources])
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{target}: {error.strerror}") from error
    began = time.monotonic()
    done = _run(compactions(found, target, seed=seed), jobs, ray)
    good = [each for each in done if not each.error]
    read, written = sum(e.read_bytes for e in good), sum(e.written_bytes for e in good)
    seconds = max(time.monotonic() - began, 1e-3)
    say(
        f"{len(good)} replica{'s' * (len(good) != 1)}, {sum(e.steps for e in good):,} steps: "
        f"{read / 1e6:,.1f} MB became {written / 1e6:,.1f} MB in {seconds:.0f} s; "
        f"adaptive-spec advise {target}",
        wrap=False,
    )
    raise typer.Exit(1 if len(good) < len(done) else 0)


def _run(tasks: list[Compaction], jobs: int | None, ray: str | None) -> list[Compacted]:
    from contextlib import closing

    from adaptive_spec.sim.sweep.run import run_tasks

    done: list[Compacted] = []
    with progress_bar() as bar, closing(run_tasks(tasks, jobs=jobs, ray=ray)) as outcomes:
        task, lines = bar.add_task("replicas", total=len(tasks)), ProgressLines()
        for outcome in outcomes:
            done.append(outcome)
            bar.update(task, completed=len(done))
            if outcome.error:
                print_text(f"failed: {outcome.replica}: {outcome.error}", error=True)
            if not bar.console.is_terminal and (line := lines.line(len(done), len(tasks))):
                bar.console.print(line, highlight=False)
    return done
