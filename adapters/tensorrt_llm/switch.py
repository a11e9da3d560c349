"""Settings of a TensorRT-LLM process, from environment variables.

MPI workers receive only variables whose names begin with ``TLLM`` or ``TRTLLM``, so these two carry
all settings.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

from adaptive_spec.bounded_read import decode_json
from adaptive_spec.config import Config, config_from_environment, load_config_file, parse_config
from adaptive_spec.errors import ConfigError

VARIABLE = "TLLM_ADAPTIVE_SPEC"
"""``1`` (defaults, or the file of ``ADAPTIVE_SPEC_CONFIG``), a YAML or JSON file, or JSON."""

LADDER_VARIABLE = "TLLM_ADAPTIVE_SPEC_LADDER"
"""K with captured graphs, such as ``1,2,4``; Kmax always is one."""

OFF = ("", "0", "off")


class Switch(msgspec.Struct, frozen=True):
    """Settings of the operator.

    Attributes:
        config: the configuration.
        ladder: K values, ascending; empty means the default ladder.
    """

    config: Config
    ladder: tuple[int, ...] = ()


def requested(environ: Mapping[str, str] = os.environ) -> Switch | None:
    """Return the settings; None if the plugin is off.

    Raises ConfigError, one line that begins with the variable's name.
    """
    value = environ.get(VARIABLE, "").strip()
    if value.lower() in OFF:
        return None
    config = _config(value, environ)
    if config.mode == "off":
        return None
    return Switch(config, _ladder(environ.get(LADDER_VARIABLE, "")))


def _config(value: str, environ: Mapping[str, str]) -> Config:
    if value.lower() in ("1", "on"):
        return config_from_environment(environ) or Config()
    try:
        if value.startswith("{"):
            return parse_config(decode_json(value), source="JSON")
        return load_config_file(value)
    except ValueError as error:
        raise ConfigError(f"{VARIABLE}: not valid JSON: {error}") from error
    except ConfigError as error:
        raise ConfigError(
            f"{VARIABLE}: {error} (1 switches on with defaults, 0 switches off)"
        ) from error


def _ladder(text: str) -> tuple[int, ...]:
    try:
        values = sorted({int(part) for part in text.split(",") if part.strip()})
    except ValueError as error:
        raise ConfigError(
            f"{LADDER_VARIABLE}: {text!r} is not a list of numbers such as 1,2,4"
        ) from error
    if values and values[0] < 0:
        raise ConfigError(f"{LADDER_VARIABLE}: {values[0]} is negative")
    return tuple(values)
