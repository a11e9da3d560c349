"""Real `vllm serve` processes on this machine: start, wait, pause, stop.

Only one of them is worked at a time; the others are paused (SIGSTOP), so that they take no CPU
from it, whatever they would do when idle.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path

import httpx

from benchmarks.judge.arms import Arm

from .arms import Files, serve_command, server_environment
from .errors import DemoError
from .guard import Guard, end, send

START_SECONDS = 300.0
STOP_SECONDS = 20.0
POLL_SECONDS = 0.5
LOG_TAIL_LINES = 20
NEEDED_GB_PER_SERVER = 3.0
STARTING = (
    ("", "vLLM is being imported"),
    ("Initializing a V1 LLM engine", "the engine starts"),
    ("adaptive_spec: mode=", "adaptive-spec is attached"),
    ("Starting to load model", "the models are loaded"),
    ("GPU KV cache size", "the KV cache is made"),
)
"""What a server has come to when its log has these words, in order."""


class Server:
    """One `vllm serve`, in a process group of its own."""

    def __init__(self, arm: Arm, port: int, files: Files, environment: dict[str, str]) -> None:
        self.arm = arm
        self.url = f"http://127.0.0.1:{port}"
        self.log = files.log(arm)
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                serve_command(arm, port, files),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        self.paused = False

    @property
    def group(self) -> int:
        """Its process group."""
        return self.process.pid

    def pause(self) -> None:
        """Freeze it: no CPU at all."""
        if not self.paused:
            send(self.group, signal.SIGSTOP)
            self.paused = True

    def resume(self) -> None:
        """Let it go on."""
        if self.paused:
            send(self.group, signal.SIGCONT)
            self.paused = False

    def require_running(self) -> None:
        """Raise DemoError with the end of its log if it has ended."""
        if (status := self.process.poll()) is not None:
            raise DemoError(
                f"the server `{self.arm.name}` ended with status {status}; all it said: {self.log}",
                tail(self.log),
            )

    def ask_to_stop(self) -> None:
        """Ask for an orderly shutdown, which also writes its trace to the end."""
        if self.process.poll() is None:
            self.process.terminate()
        self.resume()


def stop(servers: Sequence[Server], guard: Guard | None = None) -> None:
    """Stop all at once: ask, wait, then make sure that no process of theirs is left."""
    for server in servers:
        server.ask_to_stop()
    deadline = time.monotonic() + STOP_SECONDS
    for server in servers:
        with suppress(subprocess.TimeoutExpired):
            server.process.wait(max(deadline - time.monotonic(), 0.0))
    end([server.group for server in servers], patience=1.0)
    for server in servers:
        server.process.wait()
        if guard is not None:
            guard.drop(server.group)


@contextmanager
def servers_for(arms: Sequence[Arm], files: Files, keep: bool) -> Iterator[list[Server]]:
    """Start a server per arm, concurrently; on leaving, whatever happened, none is left.

    With `keep` they stay if all went well.
    """
    require_memory(len(arms))
    environment = server_environment()
    with ExitStack() as stack:
        guard = Guard()
        stack.callback(guard.close)
        servers: list[Server] = []
        stack.callback(stop, servers, guard)
        for arm, port in zip(arms, free_ports(len(arms)), strict=True):
            server = Server(arm, port, files, environment)
            servers.append(server)
            guard.add(server.group)
        yield servers
        if keep:
            for server in servers:
                server.resume()
                guard.drop(server.group)
            stack.pop_all()
            guard.close()


async def wait_ready(servers: Sequence[Server], said: Callable[[str], None]) -> None:
    """Wait until all answer, and say meanwhile what the first one that doesn't has come to.

    Raises DemoError if one ends or takes too long.
    """
    deadline = time.monotonic() + START_SECONDS
    waiting, told = list(servers), ""
    async with httpx.AsyncClient(timeout=2.0) as client:
        while waiting:
            for server in waiting:
                server.require_running()
            if time.monotonic() > deadline:
                raise DemoError(
                    f"the server `{waiting[0].arm.name}` isn't ready after {START_SECONDS:.0f} s; "
                    f"all it said: {waiting[0].log}",
                    tail(waiting[0].log),
                )
            if (step := progress(waiting[0].log)) != told:
                said(told := step)
            await asyncio.sleep(POLL_SECONDS)
            waiting = [server for server in waiting if not await _answers(client, server)]


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


@asynccontextmanager
async def alone(server: Server, others: Sequence[Server]) -> AsyncIterator[None]:
    """This server runs, the others are paused."""
    for other in others:
        if other is not server:
            other.pause()
    server.resume()
    server.require_running()
    yield
    server.require_running()


def require_switched_on(server: Server) -> str:
    """The line our plugin prints at start.

    Raises DemoError if it is missing or only watches: the demo would compare nothing.
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


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface that nothing listens on."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def require_memory(servers: int, meminfo: Path = Path("/proc/meminfo")) -> None:
    """Raise DemoError if there is clearly too little memory for that many servers."""
    try:
        fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        available = int(fields["MemAvailable"].split()[0]) / 2**20
    except (OSError, KeyError, ValueError):
        return
    needed = servers * NEEDED_GB_PER_SERVER
    if available < needed:
        raise DemoError(
            f"{servers} servers need about {needed:.0f} GiB of memory, {available:.0f} GiB are "
            "available: compare fewer with --arms"
        )


def tail(path: Path, lines: int = LOG_TAIL_LINES) -> str:
    """The last lines of a file."""
    try:
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
    except OSError:
        return ""
