"""Run-time switch: an operator's change of mode, policy or options of a running server.

A request is one JSON object, over HTTP or in a control file:

    {"mode": "shadow"}
    {"policy": "static", "options": {"k": 2}}
    {"mode": "on", "policy": "goodput"}

A missing key keeps its value; a new policy starts with its default options and without learned
state, but for a saved one. The server's cost profile goes to each policy that reads one. Modes are
those of the configuration: ``off`` runs the engine's own K; the policy ``off`` disables
speculation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from adaptive_spec.bounded_read import check_plain
from adaptive_spec.config import Config
from adaptive_spec.errors import ConfigError
from adaptive_spec.policy import available_policies
from adaptive_spec.validation import explained


class SwitchRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A requested change; None keeps the present value."""

    mode: Literal["off", "shadow", "on"] | None = None
    policy: str | None = None
    options: dict[str, Any] | None = None


def parse_switch(value: object, *, source: str) -> SwitchRequest:
    """Validate a request.

    Args:
        value: the decoded JSON object.
        source: origin of the object, for the error message.

    Raises ConfigError: one line with the known keys.
    """
    keys = "keys are mode, policy, options"
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
    return msgspec.structs.replace(
        config, mode=request.mode or config.mode, policy=policy, options=options
    )
