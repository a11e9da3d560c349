"""Adaptive speculation control: how much to speculate, per request and per step.

The core imports no engine and no machine-learning library. Engines are reached through
`adaptive_spec.adapters`, decisions are made by `adaptive_spec.policies`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from adaptive_spec.config import Config
from adaptive_spec.errors import (
    AdaptiveSpecError,
    ConfigError,
    PolicyError,
    UnsupportedEngineError,
)
from adaptive_spec.per_request import RequestSlots
from adaptive_spec.policy import Policy, available_policies, build_policy
from adaptive_spec.step import (
    Capability,
    FinishedStep,
    Level,
    Mode,
    SpecPlan,
    StepContext,
    StepOutcome,
)

if TYPE_CHECKING:
    from adaptive_spec.controller.controller import Controller
    from adaptive_spec.testing import PolicyReport, check_adapter, check_policy

__version__ = "0.1.0"

_LOADED_WHEN_ASKED_FOR = {
    "Controller": "adaptive_spec.controller.controller",
    "PolicyReport": "adaptive_spec.testing",
    "check_adapter": "adaptive_spec.testing",
    "check_policy": "adaptive_spec.testing",
}

__all__ = [
    "AdaptiveSpecError",
    "Capability",
    "Config",
    "ConfigError",
    "Controller",
    "FinishedStep",
    "Level",
    "Mode",
    "Policy",
    "PolicyError",
    "PolicyReport",
    "RequestSlots",
    "SpecPlan",
    "StepContext",
    "StepOutcome",
    "UnsupportedEngineError",
    "available_policies",
    "build_policy",
    "check_adapter",
    "check_policy",
]


def __getattr__(name: str) -> Any:
    module = _LOADED_WHEN_ASKED_FOR.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(module), name)
