"""The phases on a terminal, live; elsewhere as plain lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from adaptive_spec.commands.top import screen

from .phases import Phase
from .status import acceptance, mean_k, shares
from .traffic import Answer

BLOCKS = " ▁▂▃▄▅▆▇█"
LOG_WIDTH = 118
REFRESHES_PER_SECOND = 4
TITLE = "load up and down, adaptive-spec"


def open_console() -> Console:
    """Standard output; logs get wide lines."""
    console = Console()
    return console if console.is_terminal else Console(width=LOG_WIDTH)


class PhaseView:
    """Shows phases as they run.

    Args:
        console: where to.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._phases: Sequence[Phase] = ()
        self._live: Live | None = None

    @contextmanager
    def showing(self, phases: Sequence[Phase]) -> Iterator[None]:
        """Show these phases until the end of the block."""
        self._phases = phases
        if not self._console.is_terminal:
            yield
            return
        with Live(
            self._screen(phases[0]),
            console=self._console,
            refresh_per_second=REFRESHES_PER_SECOND,
        ) as self._live:
            yield
            self._live.update(phase_table(phases, None))
        self._live = None

    def changed(self, phase: Phase, answers: Sequence[Answer] = ()) -> None:
        """This phase, the one that runs, has new figures, or answers have grown."""
        if self._live is not None:
            self._live.update(self._screen(phase, answers), refresh=True)

    def ended(self, phase: Phase, answers: Sequence[Answer] = ()) -> None:
        """A phase is over."""
        if self._live is None:
            self._console.print(plain_line(phase), highlight=False, soft_wrap=True)
            for answer in [each for each in answers if each.finished][-1:]:
                self._console.print(panel(answer))

    def _screen(self, phase: Phase, answers: Sequence[Answer] = ()) -> RenderableType:
        now = (
            screen({"0": phase.status}, {"0": phase.before}, phase.seconds) if phase.status else ""
        )
        chat = [panel(each) for each in answers if each.place == 0][-1:]
        return Group(phase_table(self._phases, phase), *chat, now)


def panel(answer: Answer) -> Panel:
    """An answer as far as it has come, accepted drafts in colour."""
    asked = answer.job.prompt.splitlines()[0]
    text = Text()
    for piece, tokens in answer.pieces:
        text.append(piece, style="green" if tokens > 1 else "")
    return Panel(text, title=Text(asked, overflow="ellipsis"), title_align="left")


def phase_table(phases: Sequence[Phase], running: Phase | None) -> Table:
    """One row per phase that has begun."""
    table = Table(title=TITLE, title_justify="left")
    table.add_column("concurrency", justify="right")
    table.add_column("tokens/s", justify="right")
    table.add_column("mean K", justify="right")
    table.add_column("K = 0 .. 6")
    table.add_column("D", justify="right")
    table.add_column("accepted", justify="right")
    table.add_column("mode")
    table.add_column("last decision")
    for phase in phases:
        if not phase.began:
            continue
        table.add_row(
            str(phase.concurrency),
            f"{phase.tokens_per_second:.0f}",
            f"{mean_k(phase.counts):.2f}",
            Text(sparkline(shares(phase.counts)), style="cyan"),
            str(phase.status.get("last_depth", "")),
            percent(acceptance(phase.counts)),
            phase.mode,
            phase.status.get("last_reason", ""),
            style="bold" if phase is running else "",
        )
    return table


def plain_line(phase: Phase) -> str:
    """A phase where there is no terminal."""
    return (
        f"  {_clients(phase.concurrency)}: {phase.tokens_per_second:.0f} tokens per second; "
        f"{mean_k(phase.counts):.2f} drafts verified per request and step (mean K), "
        f"{percent(acceptance(phase.counts))} of them accepted"
    )


def verdict(phases: Sequence[Phase], measured: Sequence[str] = ()) -> str:
    """Say in words what the phases have shown: K at the least and the largest load, and the gain.

    Gains over no speculation are the plugin's own estimates of the phases' last seconds.

    Args:
        phases: of the load.
        measured: report of `adaptive-spec prove`.
    """
    seen = [phase for phase in phases if phase.counts["steps"]]
    if not seen:
        return "verdict: none, as no step was seen"
    quiet = min(seen, key=lambda phase: phase.concurrency)
    busy = max(seen, key=lambda phase: phase.concurrency)
    low, high = mean_k(busy.counts), mean_k(quiet.counts)
    moved = "K followed the load" if high > 1.1 * low else "K hardly moved"
    told = [
        f"{_clients(phase.concurrency)} {gain}" for phase in (quiet, busy) if (gain := _gain(phase))
    ]
    estimate = f" Estimated over no speculation: {', '.join(told)}." if told else ""
    return (
        f"verdict: {moved}. {high:.2f} drafts per request and step with "
        f"{_clients(quiet.concurrency)}, {low:.2f} with {_clients(busy.concurrency)}.{estimate} "
        "Every answer is the model's own: drafts are verified."
        + "".join(f"\n  measured {line}" for line in measured if line.startswith("over "))
    )


def _clients(number: int) -> str:
    return "1 client" if number == 1 else f"{number} clients"


def _gain(phase: Phase) -> str:
    estimates = phase.status.get("estimates", {})
    ours, none = estimates.get("planned"), estimates.get("no_speculation")
    return f"{ours / none - 1.0:+.0%}" if ours and none else ""


def sparkline(shares_of_k: Sequence[float]) -> str:
    """Shares of K = 0, 1, ... as blocks; what occurred at all is visible."""
    top = len(BLOCKS) - 1
    return " ".join(BLOCKS[max(round(share * top), 1)] if share else "·" for share in shares_of_k)


def percent(share: float | None) -> str:
    """A share for people."""
    return "–" if share is None else f"{share:.0%}"
