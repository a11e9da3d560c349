"""Run the demo: `python demo/run.py [--help]`, in the environment that vLLM is installed in."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    __package__ = "demo"

from .clock import Clock
from .errors import DemoError
from .machine import seconds_of_others

if TYPE_CHECKING:
    from .arms import Files
    from .options import Options

PHASE_SECONDS = {1: 10.0, 4: 10.0, 16: 16.0}
ACT_ONE_TOKENS = 80
MODELS_SECONDS, SERVER_SECONDS = 10.0, 30.0
WARM_UP_SECONDS, REPEAT_SECONDS = 60.0, 115.0
"""Of four servers on two cores that have little else to do."""
PATIENCE_SECONDS, ENOUGH_REPEATS = 720.0, 2
"""A repeat that would end later than this is left out, if there are enough to show a spread."""
NEEDED = ("vllm", "msgspec", "numpy", "httpx", "rich")


def require_packages() -> None:
    """Raise DemoError if this Python lacks something."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise DemoError(
            f"{', '.join(missing)} not installed for {sys.executable}: use `make demo`, which sets "
            "up an environment"
        )


def prepare_output(files: Files) -> None:
    """Make the folder; what an earlier run has left there goes."""
    try:
        files.output.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(files.trace, ignore_errors=True)
        for name in ("status.json", "table.md", "results.json", "answers.html"):
            (files.output / name).unlink(missing_ok=True)
    except OSError as error:
        raise DemoError(f"cannot write to {files.output}: {error.strerror}") from error


async def run(options: Options) -> None:
    """All of it. Raises DemoError if something essential fails."""
    from . import act_one, act_two, figures, model, page, preview, report, servers, status
    from .view import PhaseView, open_console, verdict

    console, files = open_console(), options.files
    phases = [(c, PHASE_SECONDS[c]) for c in act_one.CONCURRENCIES]
    clock = Clock(expected_seconds(options, phases), timed=("act one",))
    prepare_output(files)
    with clock.stage("models", "fetching SmolLM2-135M-Instruct, 92 MB, unless it is there"):
        model.build_model(files.models)
    prompts, chat = model.load_prompts(), page.Page()

    def said(line: str) -> None:
        clock.say(f"  {line}")

    def time_for_another(done: int) -> bool:
        clock.share_done(done / options.repeats)
        needed = options.all_repeats or done < ENOUGH_REPEATS
        fits = clock.total + clock.seconds_in_stage / done <= PATIENCE_SECONDS
        if needed or fits:
            said(f"{clock.left()} left")
        else:
            said(f"{done} repeats have to do: this machine is slow (--repeats N makes N)")
        return needed or fits

    with servers.servers_for(options.arms, files, options.keep) as running:
        many = f"{len(running)} vLLM servers at once" if len(running) > 1 else "a vLLM server"
        with clock.stage("servers", f"starting {many}"):
            async with preview.shown(console):
                await servers.wait_ready(running, said)
        ours = next(server for server in running if server.arm.policy)
        said(servers.require_switched_on(ours))
        with clock.stage("act one", "act one: load up and down on the server with adaptive-spec"):
            (port,) = servers.free_ports(1)
            said(f"the answers as they come: http://127.0.0.1:{port}")
            said(f"the server's own view: {ours.url}/v1/adaptive_spec/view")
            async with servers.alone(ours, running), chat.served(port):
                seen = await act_one.run_act_one(
                    ours.url,
                    files.status,
                    prompts,
                    phases,
                    ACT_ONE_TOKENS,
                    PhaseView(console),
                    chat,
                )
            chat.save(files.output / "answers.html")
            status.require_sound(status.read_status(files.status))
        cells: list[act_two.Cell] = []
        others = 0.0
        if not options.quick:
            with clock.stage("warm-up", "act two: one discarded round for every server"):
                await act_two.warm_up(running, prompts, options.concurrencies, said)
            groups = {os.getpgrp(), *(server.group for server in running)}
            elsewhere = seconds_of_others(groups)
            with clock.stage(
                "act two", f"act two: the same work for all, {options.repeats}x, interleaved"
            ):
                work = (running, prompts, options.concurrencies, options.repeats)
                cells = await act_two.measure(*work, said, time_for_another)
            elsewhere = seconds_of_others(groups) - elsewhere
            others = max(0.0, elsewhere) / clock.seconds["act two"]
        faults = status.require_sound(status.read_status(files.status))
        if options.keep:
            for server in running:
                said(f"stays: {server.url} {server.arm.name}, process group {server.group}")
    more = {"cores_of_others": round(others, 2), "faults": faults, "seconds": clock.seconds}
    saved: Sequence[Path] = ()
    notes = [f"adaptive-spec failed and the engine's own K was used: {fault}" for fault in faults]
    if cells:
        table = figures.rows(options.arms, options.concurrencies, cells)
        repeats = max(cell.repeat for cell in cells) + 1
        text = report.caption(repeats, seen[-1].ended - seen[0].began, others)
        saved = report.save(files.output, table, text, cells, more)
        console.print(report.rich_table(table))
        notes = [*report.remarks(table, cells), *notes, "", text]
    for line in [*notes, "", verdict(seen)]:
        console.print(line, highlight=False)
    print("times:", ", ".join(f"{name} {s:.0f} s" for name, s in clock.seconds.items()))
    print(f"all of it took {clock.total:.0f} s; see")
    for place in (files.output / "answers.html", *saved):
        print(f"  {place}")
    command = Path(sys.executable).with_name("adaptive-spec")
    print(
        f"what each K would have brought, from this server's own steps (some minutes):\n"
        f"  {command} advise {files.trace} --drafter ngram"
    )


def expected_seconds(options: Options, phases: Sequence[tuple[int, float]]) -> dict[str, float]:
    """Seconds of each stage on two cores, in the order that they run."""
    arms = len(options.arms)
    expected = {
        "models": MODELS_SECONDS,
        "servers": SERVER_SECONDS * arms,
        "act one": sum(seconds for _, seconds in phases) + 4.0,
    }
    if not options.quick:
        expected["warm-up"] = WARM_UP_SECONDS * arms / 4
        expected["act two"] = REPEAT_SECONDS * options.repeats * arms / 4
    return expected


async def run_until_signalled(options: Options) -> None:
    """Run; a signal ends it in order, so that servers are stopped."""
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, task.cancel)
    await run(options)


def main() -> int:
    """Parse, run, say in one line what went wrong if something did."""
    try:
        require_packages()
        from .options import parse

        asyncio.run(run_until_signalled(parse()))
    except DemoError as error:
        if error.details:
            print(error.details, file=sys.stderr)
        print(f"error: {error}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("error: interrupted; the servers are stopped", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
