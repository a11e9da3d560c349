"""`adaptive-spec advise`: what speculation is worth on a server, and what to configure."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from adaptive_spec.engines.doctor_rows import ENGINES, engine_named
from adaptive_spec.sim.commands.options import ServerKey, with_options
from adaptive_spec.sim.commands.printing import (
    ProgressLines,
    print_json,
    progress_bar,
    say,
    standard_output,
    write_file,
)

if TYPE_CHECKING:
    from adaptive_spec.sim.advice.advice import Predicted
    from adaptive_spec.sim.advice.values import Fleet

_money, _output, _precision = (
    partial(typer.Option, rich_help_panel=panel)
    for panel in ("Money and memory", "Output", "Precision")
)


class AdviseOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What one can tell `advise`: each field is an option, or the argument."""

    traces: Annotated[
        list[Path] | None,
        typer.Argument(help="Folders or segments of step traces, as `trace.directory` names."),
    ] = None
    server: Annotated[
        str | None, typer.Option(help="URL of a server that writes a step trace on this machine.")
    ] = None
    key: ServerKey = ""
    engine: Annotated[
        str,
        typer.Option(
            help=f"Whose set-ups to compare with, and whose lines to print: {', '.join(ENGINES)}."
        ),
    ] = "vllm"
    runs: Annotated[
        str,
        typer.Option(
            help="What you run without the plugin: K, the engine's own table as JSON, or a file "
            "with it. Default: what the trace shows."
        ),
    ] = ""
    gpus: Annotated[int, _money(min=0, help="GPUs that serve this traffic.")] = 0
    gpu_hour_price: Annotated[float, _money(min=0, help="Of one GPU, any currency.")] = 0.0
    drafter: Annotated[
        str, typer.Option(help="The drafter that ran, such as eagle, mtp or ngram.")
    ] = ""
    model: Annotated[
        Path | None, _money(help="Folder of the target, for the drafter's memory.")
    ] = None
    draft_model: Annotated[
        Path | None, _money(help="Folder of the draft model, for its memory.")
    ] = None
    details: Annotated[bool, _output("--details", help="Print all figures, too.")] = False
    html: Annotated[Path | None, _output(help="Write a page with charts.")] = None
    json: Annotated[bool, _output("--json", help="Print JSON instead.")] = False
    resamplings: Annotated[
        int, _precision(min=2, max=100, help="Bootstrap worlds behind the intervals.")
    ] = 8
    tokens: Annotated[int, _precision(min=100, help="Fewest tokens of a simulated load.")] = 1500
    seed: Annotated[int, _precision(min=0, help="Of all draws.")] = 0

    def prediction_options(self) -> dict[str, Any]:
        """Return what a prediction depends on besides the traces. Raises ConfigError."""
        from adaptive_spec.sim.advice.running import read_stated

        return {
            "engine": engine_named(self.engine),
            "drafter": self.drafter,
            "runs": read_stated(self.runs) if self.runs else "",
            "resamplings": self.resamplings,
            "tokens": self.tokens,
            "seed": self.seed,
        }


@with_options(AdviseOptions)
def advise(context: typer.Context, options: AdviseOptions) -> None:
    """Is speculation worth it on this traffic: plugin, table or nothing, and how sure is that?

    Predicts no speculation, every fixed K, the engine's own table and goodput on the recorded
    acceptance and step times. The table is tuned on one half of the trace and judged on the other.
    A prediction is kept, so that the same traces with another --gpus or --html take a second.

    Example: adaptive-spec advise TRACES --gpus 8 --html advice.html
    """
    from adaptive_spec.kept_results import keep, read_kept
    from adaptive_spec.sim.advice.advice import Predicted
    from adaptive_spec.sim.advice.kept import prediction_path
    from adaptive_spec.sim.advice.values import Fleet
    from adaptive_spec.sim.commands.advice_page import advice_page
    from adaptive_spec.sim.commands.advice_screen import print_advice

    del context
    fleet = Fleet(gpus=options.gpus, gpu_hour_price=options.gpu_hour_price)
    places = _places(options.traces or [], options.server, options.key)
    asked = options.prediction_options()
    path = prediction_path(places, asked)
    predicted: Predicted | None = read_kept(path, Predicted)
    stopped = False
    if predicted is not None:
        print(f"made before, from {path}", file=sys.stderr)
    else:
        predicted, stopped = _predicted(places, asked, fleet)
        if not stopped and predicted.resamplings and keep(path, predicted):
            print(f"kept in {path}", file=sys.stderr)
    found = predicted.conclude(fleet)
    if options.draft_model is not None:
        from adaptive_spec.sim.advice.memory import memory_cost

        tokens, context_tokens = predicted.pool_tokens, predicted.mean_context
        said = memory_cost(options.model, options.draft_model, tokens, context_tokens)
        found = msgspec.structs.replace(found, memory=said)
    if options.html is not None:
        write_file(options.html, advice_page(found).encode())
    if options.json:
        print_json(found)
    else:
        print_advice(found, standard_output(), details=options.details)
    if stopped:
        raise typer.Exit(130)


def _predicted(places: list[Path], options: dict[str, Any], fleet: Fleet) -> tuple[Predicted, bool]:
    """Predict, with a first look on standard error; and whether Ctrl-C has ended it early."""
    from adaptive_spec.sim.advice.advice import predict

    early: list[Predicted] = []
    with progress_bar() as bar:
        task, lines = bar.add_task("simulating"), ProgressLines()

        def advance(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)
            if not bar.console.is_terminal and (line := lines.line(done, total)):
                bar.console.print(line, highlight=False)

        def note_first_look(predicted: Predicted) -> None:
            early.append(predicted)
            said = predicted.conclude(fleet).verdict.sentence
            text = f"first look, {predicted.resamplings} resamplings: {said}"
            say(text, console=bar.console, wrap=False)

        try:
            return predict(places, **options, progress=advance, first_look=note_first_look), False
        except KeyboardInterrupt:
            if not early:
                raise
            text = "stopped: this is the first look, without other traffic"
            say(text, console=bar.console, wrap=False)
            return early[0], True


def _places(traces: list[Path], server: str | None, key: str) -> list[Path]:
    from adaptive_spec.commands.status_source import StatusSource
    from adaptive_spec.errors import ConfigError, DataError

    if (server is None) == (not traces):
        raise ConfigError("name step traces, or a server with --server URL")
    if server is None:
        return traces
    statuses = StatusSource(server, key=key).read().values()
    if all("trace_directory" not in status for status in statuses):
        raise DataError(
            f"{server} shows its trace's folder to operators only: set ADAPTIVE_SPEC_ADMIN_KEY, on "
            "the server's machine, or name the folder as an argument"
        )
    found = {str(status.get("trace_directory") or "") for status in statuses} - {""}
    if not found:
        raise DataError(f'{server} writes no step trace: configure "trace": {{"directory": DIR}}')
    missing = sorted(name for name in found if not Path(name).is_dir())
    if missing:
        raise DataError(
            f"{server} writes its trace to {missing[0]}, which is not on this machine: copy it "
            "here and name it as an argument"
        )
    return [Path(name) for name in sorted(found)]
