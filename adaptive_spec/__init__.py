"""Adaptive speculation control: how much to speculate, per request and per step.

The core imports no engine and no machine-learning library. Engines are reached through
`adaptive_spec.adapters`, decisions are made by `adaptive_spec.policies`.
"""

from adaptive_spec.config import Config
from adaptive_spec.conformance import PolicyReport, check_adapter, check_policy
from adaptive_spec.controller import Controller
from adaptive_spec.errors import (
    AdaptiveSpecError,
    ConfigError,
    PolicyError,
    UnsupportedEngineError,
)
from adaptive_spec.policy import Policy, available_policies, build_policy
from adaptive_spec.slots import RequestSlots
from adaptive_spec.values import Capability, Level, Mode, SpecPlan, StepContext, StepOutcome

__version__ = "0.1.0"

__all__ = [
    "AdaptiveSpecError",
    "Capability",
    "Config",
    "ConfigError",
    "Controller",
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
