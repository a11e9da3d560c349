"""`adaptive-spec breakeven`: accepted drafts that a round must have, by batch and context."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adaptive_spec.commands.terminal import print_json
from adaptive_spec.sim.commands.options import ServerKey
from adaptive_spec.sim.commands.printing import say, standard_output, table

if TYPE_CHECKING:
    from rich.table import Table

    from adaptive_spec.policies.optional.break_even import BreakEven, LoadCell


def breakeven(
    source: Annotated[
        str, typer.Argument(help="Folder with steps-*.jsonl, or URL or HOST:PORT of a server.")
    ],
    policy: Annotated[str, typer.Option(help="Of a trace: the policy that learns it.")] = "goodput",
    key: ServerKey = "",
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say where drafts pay: accepted drafts that a round of K must have, and has, by load.

    Example: adaptive-spec breakeven localhost:8000
    """
    import msgspec

    from adaptive_spec.commands.status_source import StatusSource
    from adaptive_spec.errors import DataError
    from adaptive_spec.operation.segments import is_trace_place
    from adaptive_spec.policies.optional.break_even import BreakEven
    from adaptive_spec.sim.break_even import break_even
    from adaptive_spec.sim.hardware.from_trace import servers
    from adaptive_spec.sim.policy_choice import parse_policy

    found: dict[str, BreakEven | None]
    if Path(source).exists() or is_trace_place(source):
        apart, choice = servers(Path(source)), parse_policy(policy)
        names = ["0"] if len(apart) == 1 else [trace.name for trace in apart]
        found = {n: break_even(trace, choice) for n, trace in zip(names, apart, strict=True)}
    else:
        answers = StatusSource(source, key=key).read_break_even()
        try:
            found = {
                name: msgspec.convert(each, BreakEven, strict=False) if each else None
                for name, each in answers.items()
            }
        except msgspec.ValidationError as error:
            raise DataError(f"{source}: not a table of adaptive-spec: {error}") from error
    if json:
        print_json(found)
        return
    console = standard_output()
    for engine, each in found.items():
        if len(found) > 1:
            say(f"engine {engine}")
        if each is None:
            console.print(
                "Nothing is known: no step was planned yet, or the policy knows no step times."
            )
            continue
        console.print(_by_load(each.cells))
        console.print(_by_k(each))
        for line in sentences(each):
            say(line)


def _by_load(cells: Iterable[LoadCell]) -> Table:
    """Best K and what it gains, a row for each batch and a column for each context."""
    rows: dict[int, list[LoadCell]] = {}
    for cell in cells:
        rows.setdefault(cell.batch, []).append(cell)
    contexts = [f"{cell.context:,}" for cell in next(iter(rows.values()))]
    title = "best K, its tokens/s over no speculation; ~ predicted, not seen"
    printed = table(title, "requests", *contexts)
    for batch, row in rows.items():
        printed.add_row(f"{batch:,}", *map(_best, row))
    printed.caption = "columns: context tokens of each request"
    return printed


def _best(cell: LoadCell) -> str:
    text = f"{cell.k}  {cell.gain[1]:.2f}" if cell.k else "off"
    return text if cell.seen else f"[dim]~{text}[/dim]"


def _by_k(found: BreakEven) -> Table:
    """Return the acceptance that each K needs and has at the present load."""
    printed = table("accepted drafts per round, now", "K", "needed", "95 %", "accepted", "")
    for k, (low, needed, high) in found.now.needed.items():
        has = found.accepted[k - 1]
        verdict = "pays" if has > high else "loses" if has < low else "about even"
        interval = f"{max(low, 0.0):.2f} to {high:.2f}"
        printed.add_row(str(k), f"{max(needed, 0.0):.2f}", interval, f"{has:.2f}", verdict)
    return printed


def sentences(found: BreakEven) -> list[str]:
    """Return what the table says of the present load, and where speculation stops paying."""
    now, k = found.now, found.now.k
    shown = k or max(now.needed)
    low, needed, high = (max(each, 0.0) for each in now.needed[shown])
    first = (
        f"At {now.batch:,} requests of {now.context:,} tokens a round of {shown} must have "
        f"{needed:.2f} accepted drafts ({low:.2f} to {high:.2f}); it has "
        f"{found.accepted[shown - 1]:.2f}."
    )
    if k:
        low, gain, high = now.gain
        first += f" Best: K = {k}, {gain:.2f} times no speculation ({low:.2f} to {high:.2f})."
    else:
        first += " Best: no speculation."
    if not now.timed_without:
        first += " No step without drafts was timed at this load: what one takes is inferred."
    return [first, *_stops(found.cells)]


def _stops(cells: Iterable[LoadCell]) -> list[str]:
    """Where speculation stops paying, by context; from where on all larger batches lose."""
    least: dict[int, LoadCell] = {}
    for cell in cells:
        if cell.k:
            least.pop(cell.context, None)
        else:
            least.setdefault(cell.context, cell)
    each = [
        f"{cell.batch:,} at {context:,} tokens{'' if cell.seen else ' (predicted)'}"
        for context, cell in least.items()
    ]
    return (
        [f"Speculation stops paying from so many requests on: {', '.join(each)}."] if each else []
    )
