"""What `adaptive-spec doctor` says about SGLang. Imports neither SGLang nor torch."""

from __future__ import annotations

import importlib.metadata
import os

from adaptive_spec.adapters.sglang import facts, signatures
from adaptive_spec.adapters.sglang.settings import requested
from adaptive_spec.adapters.sglang.versions import in_range, known_range, was_executed
from adaptive_spec.commands.doctor import EngineReport
from adaptive_spec.config import ENVIRONMENT_VARIABLE
from adaptive_spec.errors import AdaptiveSpecError

PLUGINS_VARIABLE = "SGLANG_PLUGINS"
PLUGIN = "adaptive_spec"


def describe() -> EngineReport:
    """Look at the installed SGLang without importing it."""
    version = installed_version()
    supported, detail = _support(version)
    return EngineReport(
        engine="sglang",
        installed_version=version,
        supported=supported,
        detail=detail,
        enabled=_enabled(),
    )


def installed_version() -> str | None:
    """Version of the installed SGLang, None without one."""
    try:
        return importlib.metadata.version("sglang")
    except importlib.metadata.PackageNotFoundError:
        return None


def plugin_allowed() -> bool:
    """SGLang's allow-list has us, or there is none."""
    names = os.environ.get(PLUGINS_VARIABLE, "")
    return not names.strip() or PLUGIN in {name.strip() for name in names.split(",")}


def _support(version: str | None) -> tuple[bool, str]:
    if version is None:
        return False, f"not installed; known versions: {known_range()}"
    if not in_range(version):
        return False, f"untested version, will refuse to switch on; known: {known_range()}"
    folder = signatures.installed_folder()
    if folder is None:
        return False, "its source is not where its package says"
    try:
        features = signatures.available_features(folder)
    except AdaptiveSpecError as error:
        return False, str(error)
    algorithms = ["EAGLE", "EAGLE3"]
    algorithms += [name for name in (facts.STANDALONE, facts.NGRAM) if name in features]
    detail = f"steers {', '.join(algorithms)}"
    if not was_executed(version):
        detail += "; source-checked only, never executed by us"
    if not plugin_allowed():
        detail += f"; but {PLUGINS_VARIABLE} does not name {PLUGIN}, so SGLang won't load it"
    return True, detail


def _enabled() -> str:
    try:
        settings = requested()
    except AdaptiveSpecError as error:
        return f"error: {error}"
    if settings is None:
        return f"no ({ENVIRONMENT_VARIABLE} is not set, or says mode off)"
    path = os.environ[ENVIRONMENT_VARIABLE]
    config = settings.config
    return f"mode {config.mode}, policy {config.policy}, by {ENVIRONMENT_VARIABLE}={path}"
