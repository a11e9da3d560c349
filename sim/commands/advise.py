"""`adaptive-spec advise`: what speculation is worth on a server, and what to configure."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from adaptive_spec.commands.terminal import print_json, print_text
from adaptive_spec.engines.doctor_rows import ENGINES, engine_named
from adaptive_spec.sim.commands.options import ServerKey, with_options
from adaptive_spec.sim.commands.printing import (
    ProgressLines,
    progress_bar,
    say,
    standard_output,
    write_file,
)

if TYPE_CHECKING:
    from adaptive_spec.sim.advice.advice import Predicted
    from adaptive_spec.sim.advice.summary import Summary
    from adaptive_spec.sim.advice.values import Advice, Fleet
    from adaptive_spec.sim.step_trace import RecordedTrace

_money, _output, _precision = (
    partial(typer.Option, rich_help_panel=panel)
    for panel in ("Money and memory", "Output", "Precision")
)


class AdviseOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of `advise`; each field is an option, or the argument."""

    traces: Annotated[
        list[str] | None,
        typer.Argument(
            help="Folders, segments, patterns or URLs of step traces, folders that `trace compact` "
            "has written, or a server."
        ),
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
    ray: Annotated[
        str | None,
        typer.Option(
            help="Simulate each pool, or server, on a Ray cluster: local, auto, HOST:PORT or "
            "ray://HOST:PORT."
        ),
    ] = None

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
    from adaptive_spec.sim.commands.advice_page import advice_page
    from adaptive_spec.sim.commands.advice_screen import print_advice

    del context
    apart = _apart(_places(options.traces or [], options.server, options.key), options.seed)
    answers = [_Answer(trace, source, options) for trace, source, _ in apart]
    if options.ray is not None:
        _predict_on_ray(answers, options.ray)
    advices: list[Advice] = []
    stopped = False
    for number, (trace, source, remarks) in enumerate(apart, start=1):
        found, stopped = answers[number - 1].advice()
        found = msgspec.structs.replace(found, replicas=remarks)
        advices.append(found)
        if not options.json:
            if source is not trace:
                say(f"Pool {number} of {len(apart)}: {trace.name}", wrap=False)
            elif len(apart) > 1:
                say(f"Server {number} of {len(apart)}, as speeds differ: {trace.name}", wrap=False)
            print_advice(found, standard_output(), details=options.details)
        if options.html is not None:
            page = options.html
            page = page if len(apart) == 1 else page.with_stem(f"{page.stem}-{number}")
            write_file(page, advice_page(found).encode())
            print_text(f"wrote {page}", error=True)
        if stopped:
            break
    if options.json:
        print_json(advices if len(apart) > 1 else advices[0])
    if stopped:
        raise typer.Exit(130)


def _apart(
    places: list[Path], seed: int
) -> list[tuple[RecordedTrace, RecordedTrace | Summary, list[str]]]:
    """Return for each server, or pool of a fleet, its files, what to read, and remarks."""
    from adaptive_spec.sim.advice.fleet import find_summaries, read_pools, require_no_traces
    from adaptive_spec.sim.hardware.from_trace import servers

    if files := find_summaries(places):
        require_no_traces(places, files)
        return [(pool.files, pool.summary, pool.remarks) for pool in read_pools(files, seed=seed)]
    return [(trace, trace, []) for trace in servers(places)]


class _Answer:
    """The advice on one server or pool, from a prediction that is kept or made.

    Args:
        trace: its files.
        source: what to read.
        options: of the command.
    """

    def __init__(
        self, trace: RecordedTrace, source: RecordedTrace | Summary, options: AdviseOptions
    ) -> None:
        from adaptive_spec.kept_results import read_kept
        from adaptive_spec.sim.advice.advice import Predicted
        from adaptive_spec.sim.advice.kept import prediction_path

        self.source, self.asked = source, options.prediction_options()
        self._options = options
        self._path = prediction_path(trace, self.asked)
        self.predicted: Predicted | None = read_kept(self._path, Predicted)
        if self.predicted is not None:
            print_text(f"made before, from {self._path}", error=True)

    def take(self, predicted: Predicted) -> None:
        """Keep a prediction that was made."""
        from adaptive_spec.kept_results import keep

        self.predicted = predicted
        if predicted.resamplings and keep(self._path, predicted):
            print_text(f"kept in {self._path}", error=True)

    def advice(self) -> tuple[Advice, bool]:
        """Return the advice, and whether Ctrl-C has ended it early."""
        from adaptive_spec.sim.advice.values import Fleet

        options = self._options
        fleet = Fleet(gpus=options.gpus, gpu_hour_price=options.gpu_hour_price)
        predicted, stopped = self.predicted, False
        if predicted is None:
            predicted, stopped = _predicted(self.source, self.asked, fleet)
            if not stopped:
                self.take(predicted)
        found = predicted.conclude(fleet)
        if options.draft_model is not None:
            from adaptive_spec.sim.advice.memory import memory_cost

            tokens, context_tokens = predicted.pool_tokens, predicted.mean_context
            said = memory_cost(options.model, options.draft_model, tokens, context_tokens)
            found = msgspec.structs.replace(found, memory=said)
        return found, stopped


def _predict_on_ray(answers: list[_Answer], address: str) -> None:
    """Make the predictions that are missing, each on a CPU of the cluster."""
    from contextlib import closing

    from adaptive_spec.errors import DataError
    from adaptive_spec.sim.advice.fleet import PoolPrediction
    from adaptive_spec.sim.sweep.run import run_tasks

    tasks = [
        PoolPrediction(number=number, source=each.source, options=each.asked)
        for number, each in enumerate(answers)
        if each.predicted is None
    ]
    with closing(run_tasks(tasks, jobs=None, ray=address)) as outcomes:
        for outcome in outcomes:
            if outcome.predicted is None:
                raise DataError(outcome.error)
            answers[outcome.number].take(outcome.predicted)


def _predicted(
    source: RecordedTrace | Summary, options: dict[str, Any], fleet: Fleet
) -> tuple[Predicted, bool]:
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
            return predict(source, **options, progress=advance, first_look=note_first_look), False
        except KeyboardInterrupt:
            if not early:
                raise
            text = "stopped: this is the first look, without other traffic"
            say(text, console=bar.console, wrap=False)
            return early[0], True


def _places(traces: list[str], server: str | None, key: str) -> list[Path]:
    from adaptive_spec.commands.status_source import StatusSource, server_url
    from adaptive_spec.commands.terminal import printable
    from adaptive_spec.errors import ConfigError, DataError

    if server is None and len(traces) == 1 and server_url(traces[0]):
        [server], traces = traces, []
    if (server is None) == (not traces):
        raise ConfigError("name step traces, or a server with --server URL")
    if server is None:
        return [Path(trace) for trace in traces]
    statuses = StatusSource(server, key=key).read().values()
    if all("trace_directory" not in status for status in statuses):
        raise DataError(
            f"{server} shows its trace's folder to operators only: set ADAPTIVE_SPEC_ADMIN_KEY, on "
            "the server's machine, or name the folder as an argument"
        )
    found = {str(status.get("trace_directory") or "") for status in statuses} - {""}
    if not found:
        raise DataError(f'{server} writes no step trace: configure "trace": {{"directory": DIR}}')
    missing = sorted(name for name in found if not _is_folder(name))
    if missing:
        raise DataError(
            f"{server} writes its trace to {printable(missing[0])}, which is not on this machine: "
            "copy it here and name it as an argument"
        )
    return [Path(name) for name in sorted(found)]


def _is_folder(name: str) -> bool:
    try:
        return Path(name).is_dir()
    except OSError:  # such as a name that is too long
        return False
