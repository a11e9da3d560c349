"""SGLang's part of `adaptive-spec doctor`; imports neither SGLang nor torch."""

from __future__ import annotations

from adaptive_spec.adapters.sglang.facts import BASE, NGRAM, SOURCE, STANDALONE
from adaptive_spec.adapters.sglang.rules import RULES
from adaptive_spec.adapters.sglang.settings import requested
from adaptive_spec.adapters.sglang.versions import VERSIONS
from adaptive_spec.config import ENVIRONMENT_VARIABLE
from adaptive_spec.engines.doctor_rows import (
    EngineReport,
    installed_version,
    plugin_refusal,
    switched_on_by,
)
from adaptive_spec.errors import AdaptiveSpecError


def describe() -> EngineReport:
    """Look at the installed SGLang without importing it."""
    version = installed_version(("sglang",))
    supported, detail = _support(version)
    return EngineReport(
        engine="sglang",
        installed_version=version,
        supported=supported,
        detail=detail,
        enabled=_enabled(),
        interplay=tuple(rule.row() for rule in RULES),
        refusal=plugin_refusal("SGLANG_PLUGINS", "SGLang", empty_allows_all=True),
    )


def _support(version: str | None) -> tuple[bool, str]:
    if version is None:
        return False, f"not installed; known versions: {VERSIONS.known}"
    try:
        report, warning = SOURCE.require([BASE]), VERSIONS.admit(version)
    except AdaptiveSpecError as error:
        return False, str(error)
    more = (name for name in (STANDALONE, NGRAM) if name in report.available)
    lowered = (f"lacks {feature} ({why})" for feature, why in report.missing.items())
    refusal = plugin_refusal("SGLANG_PLUGINS", "SGLang", empty_allows_all=True)
    but = f"but {refusal}" if refusal else ""
    parts = (f"steers {', '.join(('EAGLE', 'EAGLE3', *more))}", warning, *lowered, but)
    return True, "; ".join(filter(None, parts))


def _enabled() -> str:
    try:
        settings = requested()
    except AdaptiveSpecError as error:
        return f"error: {error}"
    if settings is None:
        return f"no ({ENVIRONMENT_VARIABLE} is not set, or says mode off)"
    return switched_on_by(settings.config)
