"""Run-time switch: an operator's change of mode, policy, options or audit of a running server.

A request is one JSON object, over HTTP or in a control file:

    {"mode": "shadow"}
    {"policy": "static", "options": {"k": 2}}
    {"mode": "on", "policy": "goodput"}
    {"audit": {"share": 0.02}}
    {"audit": {"share": 0.25, "minutes": 10}}

A missing key keeps its value; a new policy starts with its default options and without learned
state, but for a saved one. The server's cost profile goes to each policy that reads one. Modes are
those of the configuration: ``off`` runs the engine's own K; the policy ``off`` disables
speculation.
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from adaptive_spec.bounded_read import check_plain, decode_json, read_small_file
from adaptive_spec.config import Audit, Config
from adaptive_spec.errors import ConfigError
from adaptive_spec.policy import available_policies
from adaptive_spec.validation import explained


class AuditRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A requested change of the audit; None keeps the present value."""

    share: Annotated[float, msgspec.Meta(ge=0, le=0.25)] | None = None
    arms: tuple[Literal["engine", "none"], ...] | None = None
    guard: bool | None = None
    minutes: Annotated[float, msgspec.Meta(gt=0, le=1440)] | None = None
    """Time after which the values before hold again; None: they are replaced."""

    def changed(self, audit: Audit) -> Audit:
        """Return the audit's configuration after the request."""
        given = {name: getattr(self, name) for name in ("share", "arms", "guard")}
        return msgspec.structs.replace(
            audit, **{name: value for name, value in given.items() if value is not None}
        )


class SwitchRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A requested change; None keeps the present value."""

    mode: Literal["off", "shadow", "on"] | None = None
    policy: str | None = None
    options: dict[str, Any] | None = None
    audit: AuditRequest | None = None


def parse_switch(value: object, *, source: str) -> SwitchRequest:
    """Validate a request.

    Args:
        value: the decoded JSON object.
        source: origin of the object, for the error message.

    Raises ConfigError: one line with the known keys.
    """
    keys = "keys are mode, policy, options, audit"
    if not isinstance(value, Mapping):
        raise ConfigError(f"{source}: expected an object, got {type(value).__name__}; {keys}")
    try:
        check_plain(value)
        request = msgspec.convert(dict(value), SwitchRequest)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{source}: {explained(error, SwitchRequest)}") from error
    except ValueError as error:
        raise ConfigError(f"{source}: {error}; {keys}") from error
    if request == SwitchRequest():
        raise ConfigError(f"{source}: nothing to change; {keys}")
    return request


def changed_config(config: Config, request: SwitchRequest, start: Config) -> Config:
    """Return the configuration after a request.

    Args:
        config: present configuration.
        request: requested change.
        start: configuration at the start of the server. Only a policy named there may be a
            ``module:Class`` without an installed name, and only a profile and a model named there
            may be read, so that permission to switch is not permission to import code or to open
            files.

    Raises ConfigError if the policy or a file may not be chosen.
    """
    policy, options = config.policy, config.options
    if request.policy is not None:
        if request.policy != start.policy and request.policy not in available_policies():
            names = ", ".join(sorted({*available_policies(), start.policy}))
            raise ConfigError(f"policy {request.policy!r} is not allowed: choose one of {names}")
        policy = request.policy
        options = start.options if policy == start.policy else {}
    if request.options is not None:
        options = request.options
        for name, file in (("profile", start.profile), ("model", None)):
            if options.get(name) not in (None, file, start.options.get(name)):
                raise ConfigError(
                    f"`options.{name}`: {options[name]!r} is not allowed: a running server reads "
                    f"only the {name} that it was started with"
                )
    audit = config.audit
    if request.audit is not None and request.audit.minutes is None:
        audit = request.audit.changed(audit)
    return msgspec.structs.replace(
        config, mode=request.mode or config.mode, policy=policy, options=options, audit=audit
    )


_LOOK_SECONDS = 1.0
_LARGEST_BYTES = 1 << 16


class ControlFile:
    """Control file: a reader of switch requests from a file that may change.

    It also reaches engines without our HTTP route: behind another front end, on other nodes, or
    offline. While the engine has work, the controller checks the file about once a second and reads
    a new or changed file. Unusable content changes nothing, is logged once and appears in the
    status. A file that exists at start-up counts; deleting the file changes nothing. A file of
    another user than root and the server's own is refused, and so is one that everybody may write.
    """

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
