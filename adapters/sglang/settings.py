"""Settings that the environment of an SGLang process requests.

Plugins see no command line: they are loaded before SGLang has parsed it. So the configuration is
the file that ``ADAPTIVE_SPEC_CONFIG`` names, and two settings of this adapter are variables.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

from adaptive_spec.config import Config, config_from_environment
from adaptive_spec.errors import ConfigError

DWELL_VARIABLE = "ADAPTIVE_SPEC_SGLANG_DWELL"
"""Steps per change of K on average; 1 lets K change at every step."""

CONFIDENCE_VARIABLE = "ADAPTIVE_SPEC_SGLANG_CONFIDENCE"
"""``1``: read the drafter's probability at draft-extend."""

TREES_VARIABLE = "ADAPTIVE_SPEC_SGLANG_TREES"
"""Depth and nodes of the trees below the launch's, such as ``1:3,2:5``; unset: derived from it."""

DEFAULT_DWELL = 3
"""Steps. A change takes SGLang 30 us on a CPU; at 8, a K that one step asked for stayed for 8."""


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """The installed SGLang allows these features.

    Attributes:
        features: features whose facts hold.
        missing: other features -> why.
        warning: about the version, for the start line.
    """

    features: frozenset[str] = frozenset()
    missing: Mapping[str, str] = msgspec.field(default_factory=dict)
    warning: str = ""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Requested settings.

    Attributes:
        config: the configuration; its mode is not ``off``.
        dwell: steps per change of K, on average.
        confidence: read the drafter's probability at draft-extend.
        trees: nodes by depth, where the operator lists them.
    """

    config: Config
    dwell: int = DEFAULT_DWELL
    confidence: bool = False
    trees: Mapping[int, int] = msgspec.field(default_factory=dict)


def requested(environ: Mapping[str, str] = os.environ) -> Settings | None:
    """Return the requested settings; None if nothing is switched on.

    Raises ConfigError, one line that begins with the variable's name.
    """
    config = config_from_environment(environ)
    if config is None or config.mode == "off":
        return None
    return Settings(
        config=config,
        dwell=_dwell(environ),
        confidence=_confidence(environ),
        trees=_trees(environ),
    )


def _dwell(environ: Mapping[str, str]) -> int:
    text = environ.get(DWELL_VARIABLE, "").strip()
    if not text:
        return DEFAULT_DWELL
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError(f"{DWELL_VARIABLE}: {text!r} is not a number of steps, 1 or more")
    return int(text)


def _confidence(environ: Mapping[str, str]) -> bool:
    text = environ.get(CONFIDENCE_VARIABLE, "").strip().lower()
    if text not in ("", "0", "1"):
        raise ConfigError(f"{CONFIDENCE_VARIABLE}: {text!r} is neither 0 nor 1")
    return text == "1"


def _trees(environ: Mapping[str, str]) -> dict[int, int]:
    found: dict[int, int] = {}
    for part in environ.get(TREES_VARIABLE, "").split(","):
        depth, _, nodes = map(str.strip, part.partition(":"))
        if depth.isdecimal() and nodes.isdecimal() and int(depth) not in found:
            found[int(depth)] = int(nodes)
        elif part.strip():
            raise ConfigError(f"{TREES_VARIABLE}: {part.strip()!r} is no DEPTH:NODES, such as 2:5")
    return found
