"""A file through which an operator switches a running server: the same object as over HTTP.

It reaches what HTTP does not: engines behind another front end, on other nodes, or offline. The
file is looked at about once a second while the engine has work; when it is new or has changed, it
is read. Content that cannot be used changes nothing, is said once and stands in the status. A file
that is there at start-up counts; one that is taken away changes nothing.
"""

from __future__ import annotations

import math
from pathlib import Path

import msgspec

from adaptive_spec.bounded_read import read_small_file
from adaptive_spec.errors import ConfigError
from adaptive_spec.operation.run_time_switch import SwitchRequest, parse_switch

_LOOK_SECONDS = 1.0
_LARGEST_BYTES = 1 << 16


class ControlFile:
    """Reads a file of switch requests when it changes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._next = -math.inf
        self._seen: tuple[int, int] | None = None

    def poll(self, now: float) -> SwitchRequest | None:
        """The request in the file, if it is time to look and it has changed.

        Raises ConfigError, one line beginning with the file's name, if it cannot be used; once
        per change.
        """
        if 0 <= self._next - now <= _LOOK_SECONDS:
            return None
        self._next = now + _LOOK_SECONDS
        try:
            found = self._path.stat()
        except OSError:
            return None
        version = (found.st_mtime_ns, found.st_size)
        if version == self._seen:
            return None
        self._seen = version
        source = f"control file {str(self._path)!r}"
        try:
            value = msgspec.json.decode(read_small_file(self._path, _LARGEST_BYTES))
        except OSError as error:
            raise ConfigError(f"{source}: {error.strerror or error}") from error
        except (msgspec.DecodeError, RecursionError) as error:
            raise ConfigError(f"{source}: not valid JSON: {error}") from error
        return parse_switch(value, source=source)
