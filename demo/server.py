"""A real `vllm serve` on this machine: start, wait, stop."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx

from .command import Files, serve_command, server_environment
from .errors import DemoError
from .guard import Guard, end

START_SECONDS = 300.0
STOP_SECONDS = 20.0
POLL_SECONDS = 0.5
LOG_TAIL_LINES = 20
NEEDED_GB = 3.0
STARTING = (
    ("", "vLLM is being imported"),
    ("Initializing a V1 LLM engine", "the engine starts"),
    ("adaptive_spec: mode=", "adaptive-spec is attached"),
    ("Starting to load model", "the models are loaded"),
    ("GPU KV cache size", "the KV cache is made"),
)
"""Progress of the server's start by words of its log, in order."""


class Server:
    """One `vllm serve`, in a process group of its own."""

    def __init__(self, files: Files) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.log = files.log
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                serve_command(port, files),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=server_environment(),
                start_new_session=True,
            )

    @property
    def group(self) -> int:
        """Its process group."""
        return self.process.pid

    def require_running(self) -> None:
        """Raise DemoError with the end of its log if it has ended."""
        if (status := self.process.poll()) is not None:
            raise DemoError(
                f"the server ended with status {status}; all it said: {self.log}",
                tail(self.log),
            )

    def stop(self) -> None:
        """Ask for an orderly shutdown, which ends the trace; then end what is left of the group."""
        if self.process.poll() is None:
            self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_SECONDS)
        end([self.group], patience=1.0)
        self.process.wait()


@contextmanager
def running(files: Files, keep: bool) -> Iterator[Server]:
    """Run the server during the block; afterwards, whatever happened, nothing of it is left.

    With `keep` it stays if all went well.
    """
    require_memory()
    with ExitStack() as stack:
        guard = Guard()
        stack.callback(guard.close)
        server = Server(files)
        guard.add(server.group)
        stack.callback(guard.drop, server.group)
        stack.callback(server.stop)
        yield server
        if keep:
            guard.drop(server.group)
            stack.pop_all()
            guard.close()


async def wait_ready(server: Server, said: Callable[[str], None]) -> None:
    """Wait until the server answers, and tell its progress meanwhile.

    Raises DemoError if it ends or takes too long.
    """
    deadline, told = time.monotonic() + START_SECONDS, ""
    async with httpx.AsyncClient(timeout=2.0) as client:
        while not await _answers(client, server):
            server.require_running()
            if time.monotonic() > deadline:
                raise DemoError(
                    f"the server isn't ready after {START_SECONDS:.0f} s; all it said: "
                    f"{server.log}",
                    tail(server.log),
                )
            if (step := progress(server.log)) != told:
                said(told := step)
            await asyncio.sleep(POLL_SECONDS)


def progress(log: Path) -> str:
    """How far a server has come, from what it printed."""
    try:
        printed = log.read_text(errors="replace")
    except OSError:
        return STARTING[0][1]
    return [text for mark, text in STARTING if mark in printed][-1]


async def _answers(client: httpx.AsyncClient, server: Server) -> bool:
    try:
        response = await client.get(f"{server.url}/health")
    except httpx.HTTPError:
        return False
    return bool(response.status_code == httpx.codes.OK)


def require_switched_on(server: Server) -> str:
    """Return the line that the plugin prints at start.

    Raises DemoError if it is missing or only watches: K would not move.
    """
    for line in server.log.read_text(errors="replace").splitlines():
        _, found, text = line.partition("adaptive_spec: mode=")
        if found and text.startswith("on "):
            return f"mode={text}"
        if found:
            raise DemoError(f"adaptive-spec doesn't act on this server: mode={text}")
    raise DemoError(
        "adaptive-spec is not switched on in the server: run `adaptive-spec doctor`; "
        f"all the server said: {server.log}"
    )


def free_port() -> int:
    """Return a port of the loopback interface that nothing listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def require_memory(meminfo: Path = Path("/proc/meminfo")) -> None:
    """Raise DemoError if there is clearly too little memory for the server."""
    try:
        fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        available = int(fields["MemAvailable"].split()[0]) / 2**20
    except (OSError, KeyError, ValueError):
        return
    if available < NEEDED_GB:
        raise DemoError(
            f"the server needs about {NEEDED_GB:.0f} GiB of memory, {available:.0f} GiB are "
            "available"
        )


def tail(path: Path, lines: int = LOG_TAIL_LINES) -> str:
    """The last lines of a file."""
    try:
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
    except OSError:
        return ""
