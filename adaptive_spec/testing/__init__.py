"""Public conformance suites: `check_policy` for policies, `check_adapter` for adapters.

Beside them stand the fake engine, the edge cases and the measurements that the suites use.
"""

from adaptive_spec.testing.conformance import PolicyReport, check_adapter, check_policy

__all__ = ["PolicyReport", "check_adapter", "check_policy"]
