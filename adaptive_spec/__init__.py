"""Adaptive speculation control: how much to speculate, per request and per step.

The core imports no engine and no machine-learning library. Engines are reached through
`adaptive_spec.adapters`, decisions are made by `adaptive_spec.policies`.
"""

# Engines import this package in every process, enabled or not: nothing loads before it is needed.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from adaptive_spec.config import Config
    from adaptive_spec.controller.controller import Controller
    from adaptive_spec.errors import (
        AdaptiveSpecError,
        ConfigError,
        PolicyError,
        UnsupportedEngineError,
    )
    from adaptive_spec.per_request import RequestSlots
    from adaptive_spec.policy import Policy, State, available_policies, build_policy
    from adaptive_spec.policy_helpers import (
        StatelessPolicy,
        fixed_plan,
        nearest_allowed,
        off_mode,
    )
    from adaptive_spec.step import (
        BoolArray,
        Capability,
        FinishedStep,
        FloatArray,
        IntArray,
        Level,
        Mode,
        SpecPlan,
        StepContext,
        StepOutcome,
    )
    from adaptive_spec.testing import PolicyReport, check_adapter, check_policy

__version__ = "0.1.0"

_MODULES = {
    "adaptive_spec.config": ("Config",),
    "adaptive_spec.controller.controller": ("Controller",),
    "adaptive_spec.errors": (
        "AdaptiveSpecError",
        "ConfigError",
        "PolicyError",
        "UnsupportedEngineError",
    ),
    "adaptive_spec.per_request": ("RequestSlots",),
    "adaptive_spec.policy_helpers": (
        "StatelessPolicy",
        "fixed_plan",
        "nearest_allowed",
        "off_mode",
    ),
    "adaptive_spec.policy": ("Policy", "State", "available_policies", "build_policy"),
    "adaptive_spec.step": (
        "BoolArray",
        "Capability",
        "FinishedStep",
        "FloatArray",
        "IntArray",
        "Level",
        "Mode",
        "SpecPlan",
        "StepContext",
        "StepOutcome",
    ),
    "adaptive_spec.testing": ("PolicyReport", "check_adapter", "check_policy"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "AdaptiveSpecError",
    "BoolArray",
    "Capability",
    "Config",
    "ConfigError",
    "Controller",
    "FinishedStep",
    "FloatArray",
    "IntArray",
    "Level",
    "Mode",
    "Policy",
    "PolicyError",
    "PolicyReport",
    "RequestSlots",
    "SpecPlan",
    "State",
    "StatelessPolicy",
    "StepContext",
    "StepOutcome",
    "UnsupportedEngineError",
    "available_policies",
    "build_policy",
    "check_adapter",
    "check_policy",
    "fixed_plan",
    "nearest_allowed",
    "off_mode",
]


def __getattr__(name: str) -> "Any":
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(module), name)
