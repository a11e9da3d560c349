"""Starts scripted engines, of which an environment has one."""

from __future__ import annotations

import importlib.util

from . import setup
from .arms import NONE, SGLANG_LIST, SGLANG_RULE, parse_arm
from .engines import SGLANG, VLLM, Engine, EngineKind, Name

_PLAIN = (NONE, "goodput", "bandit", "regression")


def start(kind: EngineKind) -> Engine:
    """Start an engine in this process, which has the variables of `environment`."""
    if kind.engine == SGLANG:
        from .scripted_sglang import ScriptedSglang

        return ScriptedSglang(kind)
    from .scripted_vllm import ScriptedVllm

    return ScriptedVllm(kind)


def environment(engine: Name) -> dict[str, str]:
    """Return the variables that a process needs from its start on."""
    if engine == SGLANG:
        return setup.environment(setup.SGLANG)
    from .scripted_vllm import ENVIRONMENT

    return ENVIRONMENT


def installed(engine: Name) -> bool:
    """Return whether this environment has an engine."""
    return importlib.util.find_spec(engine) is not None


def has_arm(engine: Name, name: str) -> bool:
    """Return whether an arm can run on an engine's scheduler.

    Raises ConfigError for an unknown name.

    SGLang's rule is its own. It runs one K per batch: no table of vLLM's, no arm that asks for more
    than one K, the drafter's confidence or OFF-cold.
    """
    own = name in (SGLANG_RULE, SGLANG_LIST)
    if engine == VLLM:
        return not own
    if name.startswith("table"):
        return False
    return own or name in _PLAIN or name.startswith("policy:") or parse_arm(name).k is not None
