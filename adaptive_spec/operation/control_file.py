"""Control file: an operator's switch requests to a running server, in the same format as over HTTP.

A control file also reaches engines without our HTTP route: behind another front end, on other
nodes, or offline. While the engine has work, the controller checks the file about once a second and
reads a new or changed file. Unusable content changes nothing, is logged once and appears in the
status. A file that exists at start-up counts; deleting the file changes nothing. A file of another
user than root and the server's own is refused, and so is one that everybody may write.
"""

from __future__ import annotations

import math
import os
import stat
from pathlib import Path

from adaptive_spec.bounded_read import decode_json, read_small_file
from adaptive_spec.errors import ConfigError
from adaptive_spec.operation.run_time_switch import SwitchRequest, parse_switch

_LOOK_SECONDS = 1.0
_LARGEST_BYTES = 1 << 16


class ControlFile:
    """Reader of switch requests from a file that may change."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._next = -math.inf
        self._seen: tuple[int, int, int] | None = None

    def poll(self, now: float) -> SwitchRequest | None:
        """Return the request of a new or changed file; None before the next check is due.

        Raises ConfigError, one line beginning with the file's name, if the file cannot be used;
        once per change.
        """
        if 0 <= self._next - now <= _LOOK_SECONDS:
            return None
        self._next = now + _LOOK_SECONDS
        try:
            found = self._path.stat()
        except OSError:
            return None
        version = (found.st_mtime_ns, found.st_ctime_ns, found.st_size)
        if version == self._seen:
            return None
        self._seen = version
        source = f"control file {str(self._path)!r}"
        if found.st_uid not in (os.geteuid(), 0) or found.st_mode & stat.S_IWOTH:
            raise ConfigError(f"{source}: it belongs to another user, or everybody may write it")
        try:
            value = decode_json(read_small_file(self._path, _LARGEST_BYTES))
        except OSError as error:
            raise ConfigError(f"{source}: {error.strerror or error}") from error
        except ValueError as error:
            raise ConfigError(f"{source}: not valid JSON: {error}") from error
        return parse_switch(value, source=source)
