"""TensorRT-LLM's rows of `adaptive-spec doctor`; imports nothing of TensorRT-LLM."""

from __future__ import annotations

from adaptive_spec.adapters.tensorrt_llm.contract import ONE_ENGINE, SOURCE
from adaptive_spec.adapters.tensorrt_llm.install import hook_state
from adaptive_spec.adapters.tensorrt_llm.rules import RULES
from adaptive_spec.adapters.tensorrt_llm.switch import VARIABLE, requested
from adaptive_spec.engines.doctor_rows import EngineReport, installed_version, switched_on_by
from adaptive_spec.errors import AdaptiveSpecError


def describe() -> EngineReport:
    """Return the report on the installed TensorRT-LLM."""
    version = installed_version(("tensorrt-llm", "tensorrt_llm"))
    usable, detail = _routes()
    return EngineReport(
        engine="tensorrt-llm",
        installed_version=version,
        supported=usable,
        detail=detail,
        enabled=_enabled(),
        interplay=tuple(rule.row() for rule in RULES),
    )


def _routes() -> tuple[bool, str]:
    folder = SOURCE.installed_folder()
    if folder is None:
        return False, "not installed; source-checked only, never executed on a GPU by us"
    try:
        report = SOURCE.check_tree(folder)
    except AdaptiveSpecError as error:
        return False, str(error)
    if report.problems:
        return False, f"its source differs from what was read: {report.routes[ONE_ENGINE]}"
    usable = ", ".join(route for route in SOURCE.facts if route in report.available)
    return True, f"source fits ({usable}); never executed on a GPU by us"


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
    return f"{hook}; {switched_on_by(switch.config, VARIABLE)}"
