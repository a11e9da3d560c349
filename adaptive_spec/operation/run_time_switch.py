"""What an operator may change while the server runs: mode, policy, the policy's options.

A request is one JSON object, the same over HTTP and in a control file:

    {"mode": "shadow"}
    {"policy": "static", "options": {"k": 2}}
    {"mode": "on", "policy": "goodput"}

A key that is left out leaves its value alone; a new policy starts with its default options and
knows nothing yet. Modes are those of the configuration: ``off`` leaves the engine alone, with its
own K; the policy ``off`` switches speculation off.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from adaptive_spec.config import Config
from adaptive_spec.errors import ConfigError
from adaptive_spec.policy import available_policies


class SwitchRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is to change; None leaves it alone."""

    mode: Literal["off", "shadow", "on"] | None = None
    policy: str | None = None
    options: dict[str, Any] | None = None


def parse_switch(value: object, *, source: str) -> SwitchRequest:
    """Validate a request.

    Args:
        value: the decoded JSON object.
        source: where it came from, for the error message.

    Raises ConfigError, one line with the keys there are.
    """
    keys = "keys are mode, policy, options"
    if not isinstance(value, Mapping):
        raise ConfigError(f"{source}: expected an object, got {type(value).__name__}; {keys}")
    try:
        request = msgspec.convert(dict(value), SwitchRequest)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{source}: {error}; {keys}") from error
    if request == SwitchRequest():
        raise ConfigError(f"{source}: says nothing to change; {keys}")
    return request


def changed_config(config: Config, request: SwitchRequest, start: Config) -> Config:
    """The configuration after a request.

    Args:
        config: the present one.
        request: what is to change.
        start: the one the server started with. A policy that is not installed under a name
            (``module:Class``) can be chosen only if it stands there, so that the right to switch
            is not the right to import.

    Raises ConfigError if the policy may not be chosen.
    """
    policy, options = config.policy, config.options
    if request.policy is not None:
        if request.policy != start.policy and request.policy not in available_policies():
            names = ", ".join(sorted({*available_policies(), start.policy}))
            raise ConfigError(f"policy {request.policy!r} cannot be switched to: choose {names}")
        policy = request.policy
        options = start.options if policy == start.policy else {}
    if request.options is not None:
        options = request.options
    return msgspec.structs.replace(
        config, mode=request.mode or config.mode, policy=policy, options=options
    )
