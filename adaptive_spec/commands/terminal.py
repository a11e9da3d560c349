"""Output on a terminal: everything that a command prints goes through here.

Texts of files, servers and clients may hold escapes that a terminal obeys. Here they are shown as a
replacement character, as is what the terminal's encoding lacks.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def printable(text: object, most: int = 300) -> str:
    """Return a text without control characters, at most so long."""
    return "".join(each if each.isprintable() else "�" for each in str(text)[:most])


def console(*, stderr: bool = False) -> Console:
    """Return a console on a standard stream."""
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class PlainTextConsole(Console):
        """Console whose texts, other than its own styles, hold no control characters."""

        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterable[Segment]:
            for each in super().render(renderable, options):
                text = each.text
                if each.control or text.isprintable() or text == "\n":
                    yield each
                else:
                    lines = (printable(line, len(line)) for line in text.split("\n"))
                    yield Segment("\n".join(lines), each.style)

    return PlainTextConsole(file=sys.stderr if stderr else sys.stdout)


def print_text(text: object, *, error: bool = False) -> None:
    """Print a text, also of several lines, on standard output or error."""
    lines = (printable(line, 10_000) for line in str(text).split("\n"))
    print("\n".join(lines), file=sys.stderr if error else sys.stdout)


def print_json(value: object) -> None:
    """Print one JSON value on standard output, for programs."""
    import msgspec

    text = msgspec.json.format(msgspec.json.encode(value)).decode()
    print("".join(c if c.isprintable() or c == "\n" else _escaped(c) for c in text))


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def run_on_terminal(command: Callable[[], None]) -> None:
    """Run a command whose output may meet any encoding and a full disk, with one line for each."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        try:
            command()
        finally:
            sys.stdout.flush()
    except OSError as error:
        if error.filename is not None or error.errno not in _FULL:
            raise
        print_text(f"error: standard output: {error.strerror}", error=True)
        # The rest of the buffer would fail once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(2)
