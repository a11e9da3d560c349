"""CPU time that this machine's processes use."""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

_PROCESSES = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")
_GROUP, _USER, _SYSTEM = 2, 11, 12
"""Places in /proc/PID/stat behind the command's name."""


def busy_seconds() -> float:
    """CPU time all processes of this machine have used so far; nan where it can't be read."""
    try:
        fields = (_PROCESSES / "stat").read_text().split("\n", 1)[0].split()[1:]
    except OSError:
        return float("nan")
    user, nice, system, _, _, hard, soft, steal = (int(field) for field in fields[:8])
    return (user + nice + system + hard + soft + steal) / _TICKS


def seconds_of_others(groups: Collection[int]) -> float:
    """CPU time without that of the living processes in these process groups; nan if unknown."""
    ours = 0
    for path in _PROCESSES.glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[_GROUP]) in groups:
                ours += int(fields[_USER]) + int(fields[_SYSTEM])
    return busy_seconds() - ours / _TICKS
