"""`adaptive-spec advise`: what speculation is worth on a server, and what to configure."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from adaptive_spec.sim.commands.printing import (
    ProgressLines,
    print_json,
    progress_bar,
    standard_output,
    write_file,
)

Engine = Literal["vllm", "sglang", "trtllm"]
MONEY, OUTPUT, PRECISION = "Money and memory", "Output", "Precision"


def advise(
    traces: Annotated[
        list[Path] | None,
        typer.Argument(help="Folders or segments of step traces, as `trace.directory` names."),
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(help="URL of a server that writes a step trace on this machine."),
    ] = None,
    key: Annotated[str, typer.Option(help="API key. Default: $VLLM_API_KEY.")] = "",
    engine: Annotated[
        Engine, typer.Option(help="Whose own set-ups to compare with, and whose lines to print.")
    ] = "vllm",
    gpus: Annotated[
        int, typer.Option(min=0, help="GPUs that serve this traffic.", rich_help_panel=MONEY)
    ] = 0,
    gpu_hour_price: Annotated[
        float, typer.Option(min=0, help="Of one GPU, any currency.", rich_help_panel=MONEY)
    ] = 0.0,
    drafter: Annotated[
        str, typer.Option(help="The drafter that ran, such as eagle, mtp or ngram.")
    ] = "",
    model: Annotated[
        Path | None,
        typer.Option(help="Folder of the target, for the drafter's memory.", rich_help_panel=MONEY),
    ] = None,
    draft_model: Annotated[
        Path | None,
        typer.Option(help="Folder of the draft model, for its memory.", rich_help_panel=MONEY),
    ] = None,
    details: Annotated[
        bool, typer.Option("--details", help="Print all figures, too.", rich_help_panel=OUTPUT)
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option(help="Write a page with charts.", rich_help_panel=OUTPUT),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON instead.", rich_help_panel=OUTPUT)
    ] = False,
    resamplings: Annotated[
        int,
        typer.Option(
            min=2, max=100, help="Bootstrap worlds behind the intervals.", rich_help_panel=PRECISION
        ),
    ] = 8,
    tokens: Annotated[
        int,
        typer.Option(min=100, help="Fewest tokens of a simulated run.", rich_help_panel=PRECISION),
    ] = 4000,
    seed: Annotated[int, typer.Option(min=0, help="Of all draws.", rich_help_panel=PRECISION)] = 0,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Processes. Default: one per CPU.", rich_help_panel=PRECISION),
    ] = None,
) -> None:
    """Is speculation worth it on this traffic: plugin, table or nothing, and how sure is that?

    Simulates no speculation, every fixed K, the engine's own table and goodput on the recorded
    acceptance and step times. The table is tuned on one half of the trace and judged on the other.

    Example: adaptive-spec advise TRACES --gpus 8 --html advice.html
    """
    from adaptive_spec.sim.advice.advice import advise as predict
    from adaptive_spec.sim.advice.memory import memory_cost
    from adaptive_spec.sim.advice.values import Fleet
    from adaptive_spec.sim.commands.advice_page import advice_page
    from adaptive_spec.sim.commands.advice_screen import print_advice

    places = _places(traces or [], server, key)
    with progress_bar() as bar:
        task, lines = bar.add_task("simulating"), ProgressLines()

        def advance(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)
            if not bar.console.is_terminal and (line := lines.line(done, total)):
                bar.console.print(line, highlight=False)

        found, observed = predict(
            places,
            engine=engine,
            drafter=drafter,
            fleet=Fleet(gpus=gpus, gpu_hour_price=gpu_hour_price),
            resamplings=resamplings,
            tokens=tokens,
            seed=seed,
            jobs=jobs,
            progress=advance,
        )
    if draft_model is not None:
        import msgspec

        said = memory_cost(model, draft_model, observed.pool_tokens, observed.mean_context)
        found = msgspec.structs.replace(found, memory=said)
    if html is not None:
        write_file(html, advice_page(found).encode())
    if json:
        print_json(found)
    else:
        print_advice(found, standard_output(), details=details)


def _places(traces: list[Path], server: str | None, key: str) -> list[Path]:
    from adaptive_spec.commands.status_source import StatusSource
    from adaptive_spec.errors import ConfigError, DataError

    if (server is None) == (not traces):
        raise ConfigError("name step traces, or a server with --server URL")
    if server is None:
        return traces
    statuses = StatusSource(server, key=key).read().values()
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
