"""Formatting of the commands' output."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from adaptive_spec.commands import terminal

LINE_SECONDS = 10.0
"""Time between two lines of progress in a log."""

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table


def write_file(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole or not at all. Raises DataError."""
    from adaptive_spec.errors import DataError

    part = path.with_name(f"{path.name}.part")
    try:
        part.write_bytes(content)
        part.replace(path)
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror or error}") from error


def ratio(value: float | None, spread: float | None = None, *, digits: int = 2) -> str:
    """A ratio of scores, with its spread over the seeds if there is one; a dash for None."""
    if value is None or spread is None:
        return "–" if value is None else f"{value:.3f}"
    return f"{value:.{digits}f}±{spread:.{digits}f}".replace("±0.", "±.")


def number(value: float | None) -> str:
    """A figure with about three digits; a dash where there is none."""
    if value is None or value != value:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def standard_output() -> Console:
    """Return the console that results are printed on."""
    return terminal.console()


def say(text: str, *, console: Console | None = None, wrap: bool = True) -> None:
    """Print a line as it is: neither markup nor colours; `wrap`: at the width of the console."""
    console = standard_output() if console is None else console
    console.print(text, markup=False, highlight=False, soft_wrap=not wrap)


def progress_bar() -> Progress:
    """Return a bar on standard error with the time left; nothing where that is no terminal."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    stderr = terminal.console(stderr=True)
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=stderr,
        transient=True,
        disable=not stderr.is_terminal,
    )


class ProgressLines:
    """Progress as lines for a log, at most one each `LINE_SECONDS`."""

    def __init__(self) -> None:
        self._first: tuple[int, float] | None = None
        self._said = 0.0

    def line(self, done: int, total: int, now: float | None = None) -> str:
        """Return a line with the time left; "" where none is due.

        Args:
            done: runs done.
            total: runs in all.
            now: monotonic seconds; None: now.
        """
        now = time.monotonic() if now is None else now
        if self._first is None:
            self._first, self._said = (done, now), now
        before, began = self._first
        if now - self._said < LINE_SECONDS or done == before:
            return ""
        self._said = now
        left = (now - began) / (done - before) * (total - done)
        minutes, seconds = divmod(round(left), 60)
        return f"{done} of {total} runs, about {minutes}:{seconds:02} left"


def table(title: str, first: str, *figures: str, least: int = 0) -> Table:
    """Return a table of a column of texts, at least `least` wide, and columns of figures."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    made = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        title=escape(title),
        title_justify="left",
    )
    made.add_column(first, overflow="fold", min_width=least)
    for name in figures:
        made.add_column(name, justify="right", no_wrap=True)
    return made
