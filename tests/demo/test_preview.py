"""The demo shows a simulation while servers start; no server starts here."""

import asyncio
import io
from collections.abc import Callable

import pytest
from rich.console import Console

from demo import preview
from demo.act_one import Phase
from demo.status import mean_k


async def shown_until(console: Console, seen: Callable[[], bool]) -> str:
    """Return what a console shows while servers start, which takes until this text is seen."""
    assert isinstance(console.file, io.StringIO)
    async with preview.shown(console):
        for _ in range(600):
            if seen():
                break
            await asyncio.sleep(0.1)
    return console.file.getvalue()


def terminal() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=118)


def test_a_simulated_server_is_seen_and_its_k_falls_with_load(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(preview, "PHASES", ((1, 3.0), (128, 3.0)))
    phases: dict[int, Phase] = {}
    changed = preview.PhaseView.changed

    def note(view: preview.PhaseView, phase: Phase) -> None:
        phases[phase.concurrency] = phase
        changed(view, phase)

    monkeypatch.setattr(preview.PhaseView, "changed", note)
    shown = asyncio.run(
        shown_until(terminal(), lambda: 128 in phases and phases[128].counts["steps"] > 50)
    )
    assert preview.TITLE in shown
    assert mean_k(phases[128].counts) < mean_k(phases[1].counts)


def test_without_a_terminal_nothing_is_simulated() -> None:
    console = Console(file=io.StringIO())

    async def starting() -> None:
        async with preview.shown(console):
            await asyncio.sleep(0.1)

    asyncio.run(starting())
    assert console.file.getvalue() == ""


def test_a_fault_of_the_simulation_is_said_and_the_servers_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def faulty() -> None:
        raise OSError("no such profile")

    monkeypatch.setattr(preview, "simulated_server", faulty)
    console = terminal()
    shown = asyncio.run(shown_until(console, lambda: bool(console.file.tell())))
    assert "no such profile" in shown
