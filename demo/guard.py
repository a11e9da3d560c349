"""Ends the servers should the demo itself be killed.

A process of its own that reads `add GROUP` and `drop GROUP` lines, GROUP being a process group.
When the other end is closed, for whatever reason, it ends all groups that were added and not
dropped. Imports nothing but the standard library.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

PATIENCE_SECONDS = 10.0


class Guard:
    """The demo's end: tells the guard process what to look after."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-E", Path(__file__)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the demo alone
            text=True,
        )

    def add(self, group: int) -> None:
        """End this process group when the demo ends."""
        self._tell(f"add {group}\n")

    def drop(self, group: int) -> None:
        """This group is gone, or is to stay."""
        self._tell(f"drop {group}\n")

    def close(self) -> None:
        """End all groups that are left, and the guard."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(2.0 * PATIENCE_SECONDS)

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line)
        self._process.stdin.flush()


def send(group: int, number: signal.Signals) -> bool:
    """Send a signal to a process group; False if the group is gone."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    return True


def end(groups: Iterable[int], patience: float = PATIENCE_SECONDS) -> None:
    """End process groups, paused ones too: first asking, then not."""
    left = [group for group in groups if send(group, signal.SIGTERM)]
    for group in left:
        send(group, signal.SIGCONT)
    deadline = time.monotonic() + patience
    while left and time.monotonic() < deadline:
        time.sleep(0.1)
        left = [group for group in left if exists(group)]
    for group in left:
        send(group, signal.SIGKILL)


def exists(group: int) -> bool:
    """Does the process group have members?"""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def main() -> None:
    """Look after groups until the other end closes."""
    groups: set[int] = set()
    for line in sys.stdin:
        word, _, group = line.partition(" ")
        (groups.add if word == "add" else groups.discard)(int(group))
    end(groups)


if __name__ == "__main__":
    main()
