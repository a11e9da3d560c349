"""What `adaptive-spec doctor` says about TensorRT-LLM. Imports nothing of it."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from adaptive_spec.adapters.tensorrt_llm.install import engine_version, hook_state
from adaptive_spec.adapters.tensorrt_llm.source_check import check_tree
from adaptive_spec.adapters.tensorrt_llm.switch import VARIABLE, requested
from adaptive_spec.commands.doctor import EngineReport
from adaptive_spec.errors import AdaptiveSpecError


def describe() -> EngineReport:
    """Look at the installed TensorRT-LLM without importing it."""
    version = engine_version()
    usable, detail = _routes()
    return EngineReport(
        engine="tensorrt-llm",
        installed_version=version,
        supported=usable,
        detail=detail,
        enabled=_enabled(),
    )


def _routes() -> tuple[bool, str]:
    folder = _package_folder()
    if folder is None:
        return False, "not installed; source-checked only, never executed on a GPU by us"
    try:
        routes = check_tree(folder).routes
    except AdaptiveSpecError as error:
        return False, str(error)
    usable = [route for route, state in routes.items() if state == "usable"]
    if not usable:
        return False, f"its source differs from what was read: {routes['one-engine']}"
    return True, f"source fits ({', '.join(usable)}); never executed on a GPU by us"


def _package_folder() -> Path | None:
    try:
        spec = importlib.util.find_spec("tensorrt_llm")
    except (ImportError, ValueError):
        return None
    for folder in (spec.submodule_search_locations or []) if spec else []:
        return Path(folder)
    return None


def _enabled() -> str:
    hook = "hook installed" if hook_state().installed else "no hook"
    if hook_state().installed and not hook_state().current:
        hook = "hook of another version, run `adaptive-spec trtllm install-hook`"
    try:
        switch = requested()
    except AdaptiveSpecError as error:
        return f"{hook}; error: {error}"
    if switch is None:
        return f"{hook}; {VARIABLE} is not set"
    value = os.environ[VARIABLE]
    return f"{hook}; mode {switch.config.mode}, policy {switch.config.policy}, {VARIABLE}={value}"
