"""Rows of `adaptive-spec doctor` about an engine. Imports no engine."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version

import msgspec

from adaptive_spec.config import ENVIRONMENT_VARIABLE, Config
from adaptive_spec.errors import ConfigError
from adaptive_spec.validation import nearest

ENGINES = ("vllm", "sglang", "tensorrt-llm")
PLUGIN = "adaptive_spec"
"""Our name in an engine's list of plugins."""


class Interplay(msgspec.Struct, frozen=True):
    """Interplay of adaptive speculation with another feature of an engine.

    Attributes:
        feature: the engine's feature or option.
        support: ``supported``, ``trimming only``, ``shadow``, ``inert``, or the refusing party.
        rule: behaviour, in one line.
        shown_by: test of the behaviour; empty if it was not executed.
    """

    feature: str
    support: str
    rule: str
    shown_by: str = ""


class EngineReport(msgspec.Struct, frozen=True):
    """State of an engine and its adapter.

    Attributes:
        engine: name of the engine.
        installed_version: None if it is not installed.
        supported: the installed version can be switched on.
        detail: features that work, or the remedy, in a few words.
        enabled: the configuration that is switched on, in a few words.
        interplay: interplay with the engine's features.
        refusal: why the engine would not load the plugin; empty if it would.
    """

    engine: str
    installed_version: str | None
    supported: bool
    detail: str
    enabled: str
    interplay: tuple[Interplay, ...] = ()
    refusal: str = ""


class RecipeReport(msgspec.Struct, frozen=True):
    """Control that an engine started by a given command would leave to the plugin.

    Attributes:
        steered: decisions would act.
        rows: question and answer, in a few words each.
    """

    steered: bool
    rows: list[tuple[str, str]]


def engine_named(name: str, known: Iterable[str] = ENGINES) -> str:
    """Return the engine that a name means: `vLLM` is vllm; `trtllm`, `TensorRT_LLM` tensorrt-llm.

    Raises ConfigError for a name that means none.
    """
    known = list(known)
    plain = {re.sub("[^a-z]", "", each.lower()): each for each in known}
    if "tensorrt-llm" in known:
        plain["trtllm"] = "tensorrt-llm"
    found = plain.get(re.sub("[^a-z]", "", name.lower()))
    if found is None:
        meant = nearest(name.lower(), known)
        raise ConfigError(f"unknown engine {name!r}{meant}; choose one of {', '.join(known)}")
    return found


def installed_version(distributions: Iterable[str]) -> str | None:
    """Return the version of the first installed distribution; None if none is installed."""
    for name in distributions:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None


def plugin_refusal(variable: str, engine: str, *, empty_allows_all: bool) -> str:
    """Return the reason why an engine does not load the plugin; empty if it does.

    Args:
        variable: environment variable with the engine's allow-list of plugins; all load if unset.
        engine: the engine's name, for people.
        empty_allows_all: the engine treats an empty list as unset.
    """
    names = os.environ.get(variable)
    if names is None or (empty_allows_all and not names.strip()):
        return ""
    if PLUGIN in {name.strip() for name in names.split(",")}:
        return ""
    return f"{variable} does not name {PLUGIN}, so {engine} won't load it"


def switched_on_by(config: Config, variable: str = ENVIRONMENT_VARIABLE) -> str:
    """Describe the mode and policy that a configuration of the environment switches on."""
    return f"mode {config.mode}, policy {config.policy}, {variable}={os.environ[variable]}"
