"""Run the demo: `python demo/run.py [--help]`, in the environment that vLLM is installed in."""

from __future__ import annotations

import asyncio
import importlib.util
import shutil
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    __package__ = "demo"

from .clock import Clock
from .errors import DemoError

if TYPE_CHECKING:
    from .command import Files
    from .options import Options

NEEDED = ("vllm", "msgspec", "numpy", "httpx", "rich")


def require_packages() -> None:
    """Raise DemoError if this Python lacks something."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise DemoError(
            f"{', '.join(missing)} not installed for {sys.executable}: use `make demo-quick`, "
            "which sets up an environment"
        )


def prepare_output(files: Files) -> None:
    """Make the folder; what an earlier run has left there goes."""
    try:
        files.output.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(files.trace, ignore_errors=True)
        for file in (files.status, files.answers):
            file.unlink(missing_ok=True)
    except OSError as error:
        raise DemoError(f"cannot write to {files.output}: {error.strerror}") from error


async def run(options: Options) -> None:
    """Run all stages. Raises DemoError if something essential fails."""
    from . import load, model, page, server, status
    from .view import PhaseView, open_console, verdict

    console, files = open_console(), options.files
    clock = Clock()
    prepare_output(files)
    with clock.stage("model", "fetching SmolLM2-135M-Instruct, 92 MB, unless it is there"):
        model.build_model(files.models)
    prompts, chat = model.load_prompts(), page.Page()

    def said(line: str) -> None:
        clock.say(f"  {line}")

    with server.running(files, options.keep) as ours:
        with clock.stage("server", "starting a vLLM server"):
            await server.wait_ready(ours, said)
        said(server.require_switched_on(ours))
        with clock.stage("load", "load up and down on the server"):
            port = server.free_port()
            said(f"the answers as they come: http://127.0.0.1:{port}")
            said(f"the server's own view: {ours.url}/v1/adaptive_spec/view")
            async with chat.served(port):
                seen, measured = await load.run_load(
                    ours.url, files.status, prompts, PhaseView(console), chat
                )
            ours.require_running()
            chat.save(files.answers)
        faults = status.require_sound(status.read_status(files.status))
        if options.keep:
            said(f"stays: {ours.url}, process group {ours.group}")
    for fault in faults:
        print(f"adaptive-spec failed and the engine's own K was used: {fault}")
    console.print(verdict(seen, measured), highlight=False)
    print("times:", ", ".join(f"{name} {s:.0f} s" for name, s in clock.seconds.items()))
    print(f"all of it took {clock.total:.0f} s; see {files.answers}")
    command = Path(sys.executable).with_name("adaptive-spec")
    print(
        f"what each K would have brought, from this server's own steps (some minutes):\n"
        f"  {command} advise {files.trace} --drafter ngram"
    )


async def run_until_signalled(options: Options) -> None:
    """Run; a signal ends it in order, so that the server is stopped."""
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
        print("error: interrupted; the server is stopped", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
