"""A page on this machine: answers as they come, and K over time against load."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from .phases import Second
from .traffic import Answer

HTML = Path(__file__).with_name("page.html")
NOTHING = "const saved = null;"
"""Where a page that is saved has its figures."""


class Page:
    """Holds the figures and answers that the page shows.

    Attributes:
        seconds: what each status file said.
        answers: all that were begun.
    """

    def __init__(self) -> None:
        self.seconds: Sequence[Second] = ()
        self.answers: Sequence[Answer] = ()

    def figures(self, whole: bool = False) -> dict[str, Any]:
        """Return what is shown: each client's newest answer, or all of them."""
        shown = self.answers if whole else {each.place: each for each in self.answers}.values()
        return {
            "seconds": [list(each) for each in self.seconds],
            "answers": [
                {
                    "kind": each.job.kind,
                    "asked": each.job.prompt,
                    "pieces": list(each.pieces),
                    "finished": each.finished,
                }
                for each in shown
            ],
        }

    def save(self, path: Path) -> None:
        """Write the page with all answers; it needs no server."""
        # A text that holds </script> must not end the script.
        text = json.dumps(self.figures(whole=True)).replace("</", "<\\/")
        html = HTML.read_text(encoding="utf-8")
        path.write_text(html.replace(NOTHING, f"const saved = {text};"), encoding="utf-8")

    @asynccontextmanager
    async def served(self, port: int) -> AsyncIterator[None]:
        """Serve it on the loopback interface until the end of the block."""
        async with await asyncio.start_server(self._respond, "127.0.0.1", port):
            yield

    async def _respond(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            asked = (await reader.readuntil(b"\r\n\r\n")).split()
            if asked[1] == b"/now":
                kind, text = "application/json", json.dumps(self.figures())
            else:
                kind, text = "text/html; charset=utf-8", HTML.read_text(encoding="utf-8")
            head = f"HTTP/1.0 200 OK\r\nContent-Type: {kind}\r\nCache-Control: no-store\r\n\r\n"
            writer.write(head.encode() + text.encode())
            await writer.drain()
        writer.close()
