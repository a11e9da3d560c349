"""The load on the server goes up and down again, and K follows."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from .errors import DemoError
from .model import jobs
from .page import Page
from .phases import Phase, Watcher
from .status import read_status
from .traffic import Client, ClosedLoop
from .view import PhaseView

PHASES = ((1, 10.0), (4, 10.0), (16, 16.0), (4, 10.0), (1, 10.0))
"""Concurrency and seconds."""
MEASURED_CLIENTS, MEASURED_MINUTES = 4, 2.0
"""The load that the gain is measured under, and for how long at most."""
KNOWN = 0, 1, 3
"""Exit status of `prove`: at least, less, not known within the time."""
MAX_TOKENS = 80
POLL_SECONDS = 0.25
SEED = 7


async def run_load(
    url: str,
    status_file: Path,
    prompts: Mapping[str, Sequence[str]],
    view: PhaseView,
    page: Page,
) -> tuple[list[Phase], list[str]]:
    """Run `PHASES`, then measure; return one phase for each, and the report of the measurement.

    Raises DemoError if a request or the measurement fails.
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
            loop.set_concurrency(MEASURED_CLIENTS)
            report = await _measure(url, loop)
            await loop.drain()
        finally:
            await loop.cancel()
    return done, report


async def _measure(url: str, loop: ClosedLoop) -> list[str]:
    """Let `adaptive-spec prove` compare with the engine's own K while the load goes on."""
    words = [str(Path(sys.executable).with_name("adaptive-spec")), "prove", url]
    process = await asyncio.create_subprocess_exec(
        *words, "--minutes", str(MEASURED_MINUTES), stdout=subprocess.PIPE
    )
    try:
        reading = asyncio.ensure_future(process.communicate())
        while not reading.done():
            await asyncio.wait((reading,), timeout=POLL_SECONDS)
            loop.raise_failure()
        output, _ = await reading
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
    if process.returncode not in KNOWN:
        raise DemoError(f"adaptive-spec prove ended with status {process.returncode}")
    return output.decode().splitlines()
