"""The load on the server goes up and down again, and K follows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from .model import jobs
from .page import Page
from .phases import Phase, Watcher
from .status import read_status
from .traffic import Client, ClosedLoop
from .view import PhaseView

PHASES = ((1, 10.0), (4, 10.0), (16, 16.0), (4, 10.0), (1, 10.0))
"""Concurrency and seconds."""
MAX_TOKENS = 80
POLL_SECONDS = 0.25
SEED = 7


async def run_load(
    url: str,
    status_file: Path,
    prompts: Mapping[str, Sequence[str]],
    view: PhaseView,
    page: Page,
) -> list[Phase]:
    """Run `PHASES`; return one phase for each.

    Raises DemoError if a request fails.
    """
    watcher = Watcher(time.monotonic())
    done = [Phase(concurrency) for concurrency, _ in PHASES]
    async with Client(url) as client:
        loop = ClosedLoop(client, jobs(prompts, MAX_TOKENS, SEED))
        page.seconds, page.answers = watcher.seconds, loop.answers
        try:
            with view.showing(done):
                for phase, (concurrency, seconds) in zip(done, PHASES, strict=True):
                    phase.began = time.monotonic()
                    loop.set_concurrency(concurrency)
                    while time.monotonic() < phase.began + seconds:
                        await asyncio.sleep(POLL_SECONDS)
                        loop.raise_failure()
                        watcher.update(phase, read_status(status_file), time.monotonic())
                        view.changed(phase, loop.answers)
                    phase.ended = time.monotonic()
                    view.ended(phase, loop.answers)
                await loop.drain()
        finally:
            await loop.cancel()
    return done
