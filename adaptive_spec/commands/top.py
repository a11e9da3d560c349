"""`adaptive-spec top`: live view of a server's speculation in a terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adaptive_spec.commands.status_source import AuditStatus, Status, StatusSource, audit_of
from adaptive_spec.commands.terminal import console, printable

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

_BAR = 24
_LEARNING_STEPS, _LEARNING_SHARE = 300, 0.2
"""Steps in all, and share of measuring ones, by which estimates of the gain are called young."""
_OWN_K_RUNS = {
    "off": ", mode off: the engine's own K runs",
    "shadow": ", mode shadow: of a plan that does not run",
}
_COUNTED = ("steps", "verified_tokens", "accepted_tokens", "emitted_tokens")


def top(
    server: Annotated[
        str, typer.Argument(help="URL, HOST:PORT or PORT of a server, or a status file.")
    ],
    key: Annotated[str, typer.Option(help="API key. Default: $VLLM_API_KEY.")] = "",
    file: Annotated[
        Path | None, typer.Option(help="Status file to read while the server does not answer.")
    ] = None,
    admin: Annotated[
        bool,
        typer.Option("--admin", help="Send $ADAPTIVE_SPEC_ADMIN_KEY to another machine, too."),
    ] = False,
    every: Annotated[float, typer.Option(min=0.2, help="Seconds between readings.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print once and end.")] = False,
) -> None:
    """Show load, K and why, acceptance, the estimated gain, and faults, live.

    Example: adaptive-spec top localhost:8000
    """
    from rich.live import Live

    from adaptive_spec.errors import DataError

    source = StatusSource(server, key=key, file=file, admin=admin)
    before, began = source.read(), time.monotonic()
    screen_of = console()
    if once:
        time.sleep(every)  # rates need two readings
        now = source.read()
        screen_of.print(screen(now, before, time.monotonic() - began, source.note))
        return
    shown = screen(before, {}, 0.0, source.note)
    try:
        full = screen_of.is_terminal
        with Live(shown, console=screen_of, screen=full, auto_refresh=False) as live:
            while True:
                time.sleep(every)
                try:
                    now, moment = source.read(), time.monotonic()
                except DataError as error:
                    live.update(screen(before, {}, 0.0, str(error)), refresh=True)
                    continue
                live.update(screen(now, before, moment - began, source.note), refresh=True)
                before, began = now, moment
    except KeyboardInterrupt:
        return


def screen(
    now: Mapping[str, Status], before: Mapping[str, Status], seconds: float, note: str = ""
) -> RenderableType:
    """Return the view of all engines.

    Args:
        now: status by engine.
        before: an earlier reading; rates and K are those of the time between, or since the start.
        seconds: time between both readings.
        note: a line above, such as where the reading came from.
    """
    from rich.console import Group
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    parts: list[RenderableType] = [Text(printable(note), style="yellow")] if note else []
    for engine, status in now.items():
        recent = _since(status, before.get(engine, {}))
        both = Table.grid(padding=(0, 3))
        facts = Table.grid(padding=(0, 2))
        for name, text in _facts(status, recent, seconds):
            facts.add_row(Text(printable(name)), Text(printable(text), style="bold"))
        both.add_row(facts, _bars(status, recent))
        name = f"engine {engine}: {status.get('policy')}, {status.get('mode')}"
        title = Text(printable(name))
        parts.append(Panel(both, title=title, title_align="left", expand=False))
    return Group(*parts)


def _since(now: Status, before: Status) -> dict[str, Any]:
    """Return the counts between two readings; all of them if the engine started anew."""
    fresh = not before or now.get("steps", 0) < before.get("steps", 0)
    earlier: Status = {} if fresh else before
    recent: dict[str, Any] = {name: now.get(name, 0) - earlier.get(name, 0) for name in _COUNTED}
    for name in ("requests_by_k", "steps_by_kind"):
        old = earlier.get(name, {})
        recent[name] = {each: n - old.get(each, 0) for each, n in now.get(name, {}).items()}
    old = earlier.get("drafts_by_task", {})
    recent["drafts_by_task"] = {
        task: [a - b for a, b in zip(counts, old.get(task, (0, 0)), strict=True)]
        for task, counts in now.get("drafts_by_task", {}).items()
    }
    return recent


def _facts(status: Status, recent: Status, seconds: float) -> Iterator[tuple[str, str]]:
    rows = sum(recent["requests_by_k"].values())
    verified, steps = recent["verified_tokens"], recent["steps"]
    estimates, goodput = status.get("estimates", {}), status.get("goodput", {})
    lost = status.get("requests_without_drafter")
    besides = f", {lost} have lost the drafter" if lost else ""
    yield "live requests", f"{status.get('live_requests', '–')}{besides}"
    yield "decoding per step", f"{rows / steps:.1f}" if steps else "–"
    yield "tokens/s", f"{recent['emitted_tokens'] / seconds:,.0f}" if seconds else "–"
    measured, predicted = goodput.get("measured"), goodput.get("predicted")
    of_measured = f"{predicted / measured:.0%} of measured" if measured and predicted else "–"
    yield "predicted goodput", of_measured
    planned, gains = estimates.get("planned"), []
    for name, title in (("no_speculation", "no speculation"), ("engine_k", "engine's own K")):
        other = estimates.get(name)
        if planned and other:
            gains.append(f"{round(100 * (planned / other - 1.0)):+d}% over {title}")
    measuring = recent["steps_by_kind"].get("measuring", 0) > _LEARNING_SHARE * max(steps, 1)
    young = gains and (status.get("steps", 0) < _LEARNING_STEPS or measuring)
    note = ", still learning" if young else ""
    if status.get("mode") in _OWN_K_RUNS:
        note = _OWN_K_RUNS[status["mode"]]
    yield from _measured(audit_of(status))
    yield "gain (estimate)", (", ".join(gains) or "–") + note
    yield "mean K", f"{verified / rows:.2f}" if rows else "–"
    yield "draft depth D", str(status.get("last_depth", "–"))
    yield "accepted", f"{recent['accepted_tokens'] / verified:.0%}" if verified else "–"
    if status.get("idle_seconds", 0) > 2:
        yield "idle for", f"{status['idle_seconds']:.0f} s"
    kinds, all_steps = recent["steps_by_kind"], max(steps, 1)
    shares = [f"{name} {count / all_steps:.0%}" for name, count in kinds.items() if count]
    untimed = ", ".join(map(str, status.get("explanation", {}).get("untimed_k", ())))
    learning = f" (still to time: K = {untimed})" if untimed else ""
    yield "steps", (", ".join(shares) or "–") + (learning if kinds.get("measuring") else "")
    yield "why", str(status.get("why") or status.get("last_reason", ""))
    faults = {**status.get("fail_opens", {}), **status.get("output_failures", {})}
    benched = ["benched"] if status.get("benched") else []
    said = [*benched, *(f"{name} {count}" for name, count in faults.items())]
    yield "faults", ", ".join(said) or "none"
    if hints := status.get("ignored_hints"):
        yield "ignored hints", ", ".join(f"{name} {count}" for name, count in hints.items())
    for task, (tried, kept) in recent["drafts_by_task"].items():
        yield f"accepted, {task}", f"{kept / tried:.0%}" if tried else "–"


def _measured(audit: AuditStatus) -> Iterator[tuple[str, str]]:
    """Return lines on the measured gain, and on where the guard has handed back."""
    titles = {"engine": "over the engine's own K", "none": "over no drafts"}
    gains = {arm: f"{gain} {titles.get(arm, arm)}" for arm, gain in audit.arms.items()}
    yield "gain (measured)", audit.fault or "; ".join(gains.values()) or "–"
    if audit.handed_back:
        yield "handed back", f"the engine's own K runs at {', '.join(audit.handed_back)} requests"


def _bars(status: Status, recent: Status) -> Table:
    from rich.table import Table
    from rich.text import Text

    counts = recent["requests_by_k"]
    total = sum(counts.values())
    bars = Table.grid(padding=(0, 1))
    for k in range(int(status.get("max_draft_tokens", 0)) + 1):
        share = counts.get(str(k), 0) / total if total else 0.0
        bar = Text("█" * round(share * _BAR), style="cyan")
        bars.add_row(f"K = {k}", bar, f"{share:.0%}")
    return bars
