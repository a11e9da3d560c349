"""What an adapter says about its engine in `adaptive-spec doctor`. Imports no engine."""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version

import msgspec

from adaptive_spec.config import ENVIRONMENT_VARIABLE, Config

PLUGIN = "adaptive_spec"
"""Our name in an engine's list of plugins."""


class Interplay(msgspec.Struct, frozen=True):
    """What becomes of speculation together with another feature of an engine.

    Attributes:
        feature: the engine's feature or option.
        support: ``supported``, ``trimming only``, ``shadow``, ``inert``, or who refuses it.
        rule: what happens, in one line.
        shown_by: how it was tested; empty if it was not executed.
    """

    feature: str
    support: str
    rule: str
    shown_by: str = ""


class EngineReport(msgspec.Struct, frozen=True):
    """What an adapter says about its engine.

    Attributes:
        engine: name of the engine.
        installed_version: None if it is not installed.
        supported: the installed version can be switched on.
        detail: a few words on what works, or on what to do.
        enabled: what is switched on there, in a few words.
        interplay: what works together with what.
    """

    engine: str
    installed_version: str | None
    supported: bool
    detail: str
    enabled: str
    interplay: tuple[Interplay, ...] = ()


def installed_version(distributions: Iterable[str]) -> str | None:
    """Return the version of the first of these distributions that is installed; None without."""
    for name in distributions:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None


def plugin_refusal(variable: str, engine: str, *, empty_allows_all: bool) -> str:
    """Return why an engine doesn't load us: its list of plugins lacks us; empty if it does.

    Args:
        variable: environment variable with the engine's allow-list; unset, all are loaded.
        engine: the engine's name, for people.
        empty_allows_all: the engine reads an empty list as if it were unset.
    """
    names = os.environ.get(variable)
    if names is None or (empty_allows_all and not names.strip()):
        return ""
    if PLUGIN in {name.strip() for name in names.split(",")}:
        return ""
    return f"{variable} does not name {PLUGIN}, so {engine} won't load it"


def switched_on_by(config: Config, variable: str = ENVIRONMENT_VARIABLE) -> str:
    """Return what a configuration of the environment switches on, in a few words."""
    return f"mode {config.mode}, policy {config.policy}, {variable}={os.environ[variable]}"
