"""Statuses of a running server: over HTTP from `/v1/adaptive_spec`, or from a status file."""

from __future__ import annotations

import ipaddress
import math
import os
import re
import socket
import ssl
import time
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from threading import Event, Timer
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec

from adaptive_spec.audit.confidence_sequence import LEAST
from adaptive_spec.bounded_read import decode_json, read_small_file
from adaptive_spec.commands.terminal import printable
from adaptive_spec.errors import DataError

PATH = "/v1/adaptive_spec"
KEY_VARIABLE = "VLLM_API_KEY"
ADMIN_VARIABLE = "ADAPTIVE_SPEC_ADMIN_KEY"
"""Variable of the admin key, with which the server also names its files."""
TIMEOUT_SECONDS = 5.0
"""For the whole answer."""
_MOST_BYTES = 1 << 24
_MOST_ENGINES = 1024

MOST_DRAFT_TOKENS = 1024
"""Largest Kmax that is shown: a row for each K."""

_HOST_PORT = re.compile(r"(\[[0-9a-fA-F:]+\]|[\w.-]+):\d+(/[\w./-]*)?")

Status = dict[str, Any]
_Count = Annotated[int, msgspec.Meta(ge=0)]


def _is_this_machine(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def server_url(place: str) -> str:
    """Return the URL of a server's statuses; "" where the place is none, but a file or folder."""
    if len(place) < 256 and not Path(place).exists():
        if place.isascii() and place.isdigit():
            place = f"http://localhost:{place}"
        elif _HOST_PORT.fullmatch(place):
            place = f"http://{place}"
    if not place.lower().startswith(("http://", "https://")):
        return ""
    return place.rstrip("/").removesuffix(PATH).removesuffix("/v1") + PATH


class StatusSource:
    """Reader of one server's statuses.

    Redirects are not followed, and no proxy is used: keys go to the named server only.

    Args:
        place: URL of the server, with or without the path; HOST:PORT; PORT of this machine; or a
            status file.
        key: API key; "": that of the environment variable ``VLLM_API_KEY``.
        file: status file that stands in while the URL does not answer; None: none.
        admin: send the admin key of the environment to a server elsewhere, too; a server of this
            machine gets it always.
    """

    def __init__(
        self, place: str, *, key: str = "", file: Path | None = None, admin: bool = False
    ) -> None:
        self._key = key or os.environ.get(KEY_VARIABLE, "")
        self._admin = admin
        self._url = server_url(place)
        self._file = file if self._url else Path(place)
        self.note = ""
        """Where the last statuses came from, if not from the URL, and why."""

    def read(self) -> dict[str, Status]:
        """Return the status of each engine by its name.

        Raises DataError, one line: the server does not answer and there is no file, a wrong key,
        or an answer of something else.
        """
        self.note = ""
        if self._url:
            try:
                return self._fetch()
            except DataError as error:
                if self._file is None:
                    raise
                self.note = f"{error}; status file {self._file}"
        return self._read_file()

    def read_break_even(self) -> dict[str, dict[str, Any]]:
        """Return where drafts break even, by engine; see `adaptive-spec breakeven`.

        Raises DataError, one line, as `read` does; a status file does not say it.
        """
        if not self._url:
            raise DataError(f"{self._file}: no such trace; a running server is HOST:PORT or a URL")
        return self._parts("break_even", "?break_even=1")

    def switch(self, request: dict[str, Any]) -> None:
        """Send a request for a change; see `adaptive_spec.operation.run_time_switch`.

        Raises DataError, one line: the server does not answer, or refuses.
        """
        self._parts("status", body=msgspec.json.encode(request))

    def _fetch(self) -> dict[str, Status]:
        return {name: _checked(each, self._url) for name, each in self._parts("status").items()}

    def _parts(self, part: str, query: str = "", body: bytes | None = None) -> dict[str, Any]:
        """A part of each engine's answer, by the engine's name."""
        try:
            status, location, body = self._answer(query, body)
        except ssl.SSLError as error:
            hint = "it speaks http, not https" if "WRONG_VERSION" in str(error) else error.reason
            raise DataError(f"{self._url}: no answer: {hint}") from error
        except (HTTPException, OSError, ValueError) as error:
            raise DataError(f"{self._url}: no answer: {error}") from error
        if status != 200:
            hint = {
                401: f"wrong or missing API key: --key or ${KEY_VARIABLE}",
                404: "no such route: start vLLM with VLLM_PLUGINS=adaptive_spec, SGLang with "
                "ADAPTIVE_SPEC_CONFIG; for TensorRT-LLM give the status file (`status_file` of the "
                "configuration)",
            }.get(status) or printable(body[:500].decode(errors="replace"))
            if location:
                hint = f"points to {printable(location)}; give that address if you trust it"
            raise DataError(f"{self._url}: HTTP {status}: {hint}")
        engines = _decoded(body, self._url).get("engines")
        try:
            if len(engines or ()) > _MOST_ENGINES:
                raise ValueError
            return {str(each["engine"]): dict(each[part]) for each in engines or ()}
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{self._url}: not a status of adaptive-spec") from error

    def _answer(self, query: str = "", sent: bytes | None = None) -> tuple[int, str, bytes]:
        """Status, where it points to, and content, within `TIMEOUT_SECONDS` of the connection."""
        url = urlsplit(self._url)
        kind = HTTPSConnection if url.scheme == "https" else HTTPConnection
        host = url.hostname or ""
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        key = os.environ.get(ADMIN_VARIABLE)
        if key and (self._admin or _is_this_machine(host)):
            headers["X-Adaptive-Spec-Key"] = key
        late = Event()
        with closing(kind(host, url.port, timeout=TIMEOUT_SECONDS)) as connection:
            connection.connect()
            open_socket = connection.sock  # the answer takes it from the connection

            def cut() -> None:
                late.set()
                with suppress(OSError):  # closed
                    open_socket.shutdown(socket.SHUT_RDWR)

            timer = Timer(TIMEOUT_SECONDS, cut)
            timer.daemon = True
            timer.start()
            try:
                if sent is not None:
                    headers["Content-Type"] = "application/json"
                method = "GET" if sent is None else "POST"
                connection.request(method, url.path + query, sent, headers)
                answer = connection.getresponse()
                body = answer.read(_MOST_BYTES)
            except (HTTPException, OSError):
                if not late.is_set():
                    raise
            finally:
                timer.cancel()
        if late.is_set():
            raise TimeoutError(f"not whole within {TIMEOUT_SECONDS:g} s")
        return answer.status, answer.headers.get("Location", ""), body

    def _read_file(self) -> dict[str, Status]:
        assert self._file is not None
        try:
            body = read_small_file(self._file, _MOST_BYTES)
            age = time.time() - self._file.stat().st_mtime
        except OSError as error:
            raise DataError(f"{self._file}: {error.strerror}") from error
        if age > 10.0:
            self.note = f"{self.note or self._file}: last written {age:.0f} s ago"
        place = str(self._file)
        return {"0": _checked(_decoded(body, place), place)}


class _Explanation(msgspec.Struct, frozen=True):
    """The part of an explanation that is shown."""

    untimed_k: Annotated[list[int], msgspec.Meta(max_length=MOST_DRAFT_TOKENS + 1)] = []


class Gain(msgspec.Struct, frozen=True, kw_only=True):
    """Measured gain over an arm; without bounds while there are too few blocks.

    Attributes:
        blocks: compared with the steps beside them.
        gain, low, high: of tokens per second (0.1: 10 percent), with the bounds of 95 %.
        sums: of `adaptive_spec.audit.confidence_sequence.Sequence`.
    """

    blocks: _Count = 0
    gain: float | None = None
    low: float | None = None
    high: float | None = None
    sums: tuple[float, float, float, float, float, float] = (0.0,) * 6

    def __str__(self) -> str:
        blocks = "1 block" if self.blocks == 1 else f"{self.blocks} blocks"
        if self.gain is None or self.low is None or self.high is None:
            _, weight, _, weighted, *_ = self.sums
            so_far = f"{math.expm1(weighted / weight):+.0%} in " if weight > 0.0 else ""
            return f"no bounds yet ({so_far}{blocks} of {LEAST})"
        return f"{self.gain:+.1%} ({self.low:+.1%} to {self.high:+.1%}), {blocks}"


class ArmGain(Gain, frozen=True, kw_only=True):
    """The same, of the last hour and by load (requests per step), too."""

    hour: Gain = Gain()
    by_load: dict[str, Gain] = {}


class AuditStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a status that says what was measured; see `adaptive_spec.audit`."""

    share: float = 0.0
    arms: dict[str, ArmGain] = {}
    proof: dict[str, ArmGain] = {}
    proof_seconds_left: float = 0.0
    left_out: dict[str, _Count] = {}
    off_cold: float = 0.0
    handed_back: list[str] = []
    fault: str = ""


def audit_of(status: Status) -> AuditStatus:
    """Return what a status says of the audit."""
    return msgspec.convert(status.get("audit", {}), AuditStatus)


class _Shown(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a status that are shown, with their types and limits."""

    mode: str = ""
    policy: str = ""
    steps: _Count = 0
    verified_tokens: _Count = 0
    accepted_tokens: _Count = 0
    emitted_tokens: _Count = 0
    requests_by_k: dict[str, _Count] = {}
    steps_by_mode: dict[str, _Count] = {}
    steps_by_kind: dict[str, _Count] = {}
    drafts_by_task: dict[str, tuple[_Count, _Count]] = {}
    label_drift: dict[str, tuple[float, float]] = {}
    max_draft_tokens: Annotated[int, msgspec.Meta(ge=0, le=MOST_DRAFT_TOKENS)] = 0
    live_requests: _Count = 0
    requests_without_drafter: _Count = 0
    last_depth: _Count = 0
    last_reason: str = ""
    why: str = ""
    idle_seconds: float = 0.0
    explanation: _Explanation = _Explanation()
    goodput: dict[str, float | None] = {}
    estimates: dict[str, float] = {}
    audit: AuditStatus = AuditStatus()
    fail_opens: dict[str, _Count] = {}
    output_failures: dict[str, _Count] = {}
    ignored_hints: dict[str, _Count] = {}
    benched: bool = False


def _checked(status: Any, place: str) -> Status:
    """Return a status whose parts have the types and sizes that readers rely on."""
    try:
        msgspec.convert(status, _Shown)
    except (msgspec.ValidationError, RecursionError) as error:
        raise DataError(f"{place}: not a status of adaptive-spec") from error
    return dict(status)


def _decoded(body: bytes, place: str) -> Status:
    try:
        decoded: Status = decode_json(body, Status)
    except ValueError as error:
        raise DataError(f"{place}: not a status of adaptive-spec") from error
    return decoded
