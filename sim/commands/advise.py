"""`adaptive-spec advise`: what speculation is worth on a server, and what to configure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adaptive_spec.sim.commands.printing import print_json, standard_output

if TYPE_CHECKING:
    from adaptive_spec.sim.advice.advice import Advice


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
    drafter: Annotated[
        str, typer.Option(help="The drafter that ran, such as eagle, mtp or ngram.")
    ] = "",
    model: Annotated[
        Path | None, typer.Option(help="Folder of the target model, for the drafter's memory.")
    ] = None,
    draft_model: Annotated[
        Path | None, typer.Option(help="Folder of the draft model, for its memory.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write the same as an HTML page.")] = None,
    resamplings: Annotated[
        int, typer.Option(min=2, max=50, help="Bootstrap worlds behind the intervals.")
    ] = 4,
    tokens: Annotated[int, typer.Option(min=100, help="Fewest tokens of a simulated run.")] = 4000,
    seed: Annotated[int, typer.Option(min=0, help="Of all draws.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Say what speculation brings on recorded traffic, and which lines to configure.

    Compares no speculation, every fixed K, the best tables of vLLM, SGLang and TensorRT-LLM for
    this traffic, and goodput, by simulation on the recorded acceptance and step times.
    """
    from rich.console import Console
    from rich.progress import Progress

    from adaptive_spec.sim.advice.advice import advise as predict
    from adaptive_spec.sim.advice.memory import memory_cost
    from adaptive_spec.sim.commands.advice_screen import print_advice

    places = _places(traces or [], server, key)
    stderr = Console(stderr=True)
    with Progress(console=stderr, transient=True, disable=not stderr.is_terminal) as progress:
        task = progress.add_task("simulating")
        found, observed = predict(
            places,
            drafter=drafter,
            resamplings=resamplings,
            tokens=tokens,
            seed=seed,
            progress=lambda done, total: progress.update(task, completed=done, total=total),
        )
    if draft_model is not None:
        import msgspec

        said = memory_cost(model, draft_model, observed.pool_tokens, observed.mean_context)
        found = msgspec.structs.replace(found, memory=said)
    if html is not None:
        _write_page(found, html)
    if json:
        print_json(found)
    else:
        print_advice(found, standard_output())


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


def _write_page(found: Advice, path: Path) -> None:
    from io import StringIO

    from rich.console import Console

    from adaptive_spec.errors import DataError
    from adaptive_spec.sim.commands.advice_screen import print_advice

    console = Console(record=True, width=150, file=StringIO(), force_terminal=True)
    print_advice(found, console)
    # Sentences are not broken on the console; a page breaks them at its own width.
    page = console.export_html().replace('<pre style="', '<pre style="white-space:pre-wrap;', 1)
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror}") from error
