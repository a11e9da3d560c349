"""A simulated server under a load of the same shape, shown while the real one starts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from rich.console import Console

from .command import KMAX
from .phases import Phase, Watcher
from .view import PhaseView

if TYPE_CHECKING:
    from adaptive_spec.sim.engine.loop import Engine

TITLE = "meanwhile, simulated: Llama 8B on an H100, adaptive-spec"
PHASES = ((1, 6.0), (32, 6.0), (128, 8.0), (32, 6.0), (1, 6.0))
"""Concurrency and seconds. A GPU serves more requests than a CPU before K falls."""
STEP_SECONDS = 0.5


@asynccontextmanager
async def shown(console: Console) -> AsyncIterator[None]:
    """Show the simulated server until the end of the block, if there is a terminal."""
    task = asyncio.create_task(play(console)) if console.is_terminal else None
    try:
        yield
    finally:
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def play(console: Console) -> None:
    """Run the simulation once, as fast as the clock; a fault ends the picture, not the demo."""
    try:
        engine = await asyncio.to_thread(simulated_server)
        phases = [Phase(concurrency) for concurrency, _ in PHASES]
        view, watcher, now = PhaseView(console, TITLE, transient=True), Watcher(), 0.0
        with view.showing(phases):
            for phase, (_, seconds) in zip(phases, PHASES, strict=True):
                phase.began, end = now or STEP_SECONDS, now + seconds
                while now < end:
                    now += STEP_SECONDS
                    run = asyncio.to_thread(engine.run, max_seconds=now)
                    await asyncio.gather(run, asyncio.sleep(STEP_SECONDS))
                    if watcher.update(phase, engine.controller.status(), now):
                        view.changed(phase)
            await asyncio.Event().wait()
    except Exception as error:
        console.print(f"  no simulation meanwhile: {type(error).__name__}: {error}")


def simulated_server() -> Engine:
    """An H100 under `PHASES`, with acceptance that vLLM recorded of the demo's models."""
    from adaptive_spec.policy import build_policy
    from adaptive_spec.sim.acceptance.files import load_acceptance
    from adaptive_spec.sim.drafters.registry import drafter
    from adaptive_spec.sim.engine.loop import Engine
    from adaptive_spec.sim.engine.options import EngineOptions
    from adaptive_spec.sim.examples import EXAMPLE
    from adaptive_spec.sim.hardware.registry import hardware
    from adaptive_spec.sim.load.arrivals import Piece
    from adaptive_spec.sim.load.base import VaryingClosedLoad
    from adaptive_spec.sim.load.request import requests_of

    data = load_acceptance([EXAMPLE], drafter_list="eagle", seed=0, kmax=KMAX)
    pieces = [Piece(seconds, clients, clients) for clients, seconds in PHASES]
    return Engine(
        VaryingClosedLoad(requests_of(data, seed=0), pieces, endless=True),
        data,
        drafter("eagle"),
        hardware("h100-llama-8b"),
        build_policy("goodput"),
        EngineOptions(max_draft_tokens=KMAX),
        counts=True,
    )
