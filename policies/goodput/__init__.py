"""The default policy: verify what maximises expected tokens per second, learned online."""

from adaptive_spec.policies.goodput.options import GoodputOptions
from adaptive_spec.policies.goodput.policy import GoodputPolicy

__all__ = ["GoodputOptions", "GoodputPolicy"]
