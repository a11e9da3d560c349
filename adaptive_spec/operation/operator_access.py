"""Who is an operator: may switch the engines over HTTP, and see where the server's files are.

* A request with the admin key, in the header ``X-Adaptive-Spec-Key``. The key is the environment
  variable ``ADAPTIVE_SPEC_ADMIN_KEY``, or the content of the file that
  ``ADAPTIVE_SPEC_ADMIN_KEY_FILE`` names. The engine's own keys are those of clients, who only read.
* Without an admin key, anybody who reaches a server that listens on loopback and has no keys: a
  user of this machine. A web page must not pass for one, so the request must name a loopback host
  (DNS rebinding) and must not come from a page of another origin.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from adaptive_spec.bounded_read import read_small_file
from adaptive_spec.errors import ConfigError

HEADER = "X-Adaptive-Spec-Key"
VARIABLE = "ADAPTIVE_SPEC_ADMIN_KEY"
FILE_VARIABLE = f"{VARIABLE}_FILE"
_LEAST_CHARACTERS = 8
_MOST_BYTES = 1 << 12


def admin_key(log: logging.Logger, environ: Mapping[str, str] = os.environ) -> str:
    """Return the admin key; empty without one. Raises ConfigError for an unusable key."""
    key, file = environ.get(VARIABLE, ""), environ.get(FILE_VARIABLE, "")
    if file:
        try:
            key = read_small_file(file, _MOST_BYTES).decode().strip()
            mode = Path(file).stat().st_mode
        except (OSError, ValueError) as error:
            raise ConfigError(f"{FILE_VARIABLE}: {file!r}: {error}") from error
        if mode & stat.S_IWOTH:
            raise ConfigError(f"{FILE_VARIABLE}: {file!r} may be written by every user: chmod 600")
        if mode & stat.S_IROTH:  # as Kubernetes mounts secrets
            log.warning(
                "adaptive_spec: %s: %r may be read by every user of this machine: chmod 600",
                FILE_VARIABLE,
                file,
            )
    # A header's value loses blanks at its ends.
    usable = len(key.strip()) >= _LEAST_CHARACTERS and key.isascii() and key.isprintable()
    if (key or file) and not (usable and key == key.strip()):
        name = FILE_VARIABLE if file else VARIABLE
        raise ConfigError(
            f"{name}: give at least {_LEAST_CHARACTERS} printable ASCII characters, no blank at an "
            "end"
        )
    return key


class OperatorAccess:
    """Check of a request's right to switch.

    Args:
        key: admin key; empty without one.
        local: the server listens on loopback and has no keys of its own.
    """

    def __init__(self, key: str, *, local: bool) -> None:
        self._key = key.encode()
        self._local = local and not key

    @classmethod
    def of_server(
        cls,
        host: str | None,
        log: logging.Logger,
        environ: Mapping[str, str] = os.environ,
        *,
        guarded: bool,
    ) -> OperatorAccess:
        """Return the check for a server; after an unusable key, which is logged, nobody may switch.

        Args:
            host: address that the server listens on; None: the engine's default.
            log: of the engine.
            environ: has the admin key.
            guarded: the server has keys of its own, or is reached through a socket file.
        """
        try:
            key = admin_key(log, environ)
        except ConfigError as error:
            log.error("adaptive_spec: %s: the status is read-only", error)
            return cls("", local=False)
        return cls(key, local=not guarded and bool(host) and _is_loopback(str(host)))

    def refusal(self, headers: Mapping[str, str]) -> str:
        """Return why a request is no operator's, one line; empty for an operator's.

        Args:
            headers: the request's, looked up without regard to case.
        """
        if self._key:
            given = headers.get(HEADER, "").encode("utf-8", "replace")
            if hmac.compare_digest(given, self._key):
                return ""
            return f"only the holder of the admin key may: send it in the header {HEADER}"
        if not self._local:
            return (
                f"read-only: set {VARIABLE} at the start of the server; without it, only a server "
                "without keys on --host 127.0.0.1 can be switched over HTTP"
            )
        host = headers.get("host", "")
        if not _is_loopback(_name_of(f"//{host}")):
            return f"read-only: the Host header {host!r} is no loopback address"
        origin = headers.get("origin")
        if origin is not None and _netloc(origin) != host:
            return "read-only: sent by a page of another origin"
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return "read-only: sent by a page of another site"
        return ""


def _name_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _netloc(url: str) -> str | None:
    """Return host and port of a URL as they are written; None if it is none."""
    try:
        return urlsplit(url).netloc
    except ValueError:
        return None


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
