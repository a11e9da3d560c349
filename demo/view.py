"""Act one on a terminal, live; elsewhere as plain lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from adaptive_spec.commands.top import screen

from .status import acceptance, mean_k, shares
from .traffic import Answer

if TYPE_CHECKING:
    from .act_one import Phase

BLOCKS = " ▁▂▃▄▅▆▇█"
LOG_WIDTH = 118
REFRESHES_PER_SECOND = 4
TITLE = "act one: load up and down, adaptive-spec"


def open_console() -> Console:
    """Standard output; logs get wide lines."""
    console = Console()
    return console if console.is_terminal else Console(width=LOG_WIDTH)


class PhaseView:
    """Shows phases as they run.

    Args:
        console: where to.
        title: of the table of phases.
        transient: leave nothing on a terminal.
    """

    def __init__(self, console: Console, title: str = TITLE, *, transient: bool = False) -> None:
        self._console = console
        self._title = title
        self._transient = transient
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
            transient=self._transient,
        ) as self._live:
            yield
            self._live.update(phase_table(phases, None, self._title))
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
        return Group(phase_table(self._phases, phase, self._title), *chat, now)


def panel(answer: Answer) -> Panel:
    """An answer as far as it has come, accepted drafts in colour."""
    asked = answer.job.prompt.splitlines()[0]
    text = Text()
    for piece, tokens in answer.pieces:
        text.append(piece, style="green" if tokens > 1 else "")
    return Panel(text, title=Text(asked, overflow="ellipsis"), title_align="left")


def phase_table(phases: Sequence[Phase], running: Phase | None, title: str) -> Table:
    """One row per phase that has begun."""
    table = Table(title=title, title_justify="left")
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
    by_k = " ".join(f"{100 * share:.0f}" for share in shares(phase.counts))
    return (
        f"  concurrency {phase.concurrency:2d}: {phase.tokens_per_second:4.0f} tokens/s, "
        f"mean K {mean_k(phase.counts):.2f}, D {phase.status.get('last_depth', 0)}, "
        f"accepted {percent(acceptance(phase.counts))}, mode {phase.mode}, "
        f"K 0..6 in %: {by_k}; last decision: {phase.status.get('last_reason', '')}"
    )


def sparkline(shares_of_k: Sequence[float]) -> str:
    """Shares of K = 0, 1, ... as blocks; what occurred at all is visible."""
    top = len(BLOCKS) - 1
    return " ".join(BLOCKS[max(round(share * top), 1)] if share else "·" for share in shares_of_k)


def percent(share: float | None) -> str:
    """A share for people."""
    return "–" if share is None else f"{share:.0%}"
