"""Public conformance suites: `check_policy` for policies, `check_adapter` for adapters.

The other modules provide their fake engine, edge cases and measurements.
"""

from adaptive_spec.testing.conformance import PolicyReport, check_adapter, check_policy

__all__ = ["PolicyReport", "check_adapter", "check_policy"]
