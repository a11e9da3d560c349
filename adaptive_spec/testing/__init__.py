"""Public conformance suites: `check_policy` for policies, `check_adapter` for adapters.

Beside them stand the fake engine, the edge cases and the measurements that the suites use, and
`finished_step`, with which a test drives a policy without a controller.
"""

from adaptive_spec.controller.steps_in_flight import finished_step
from adaptive_spec.testing.conformance import PolicyReport, check_adapter, check_policy

__all__ = ["PolicyReport", "check_adapter", "check_policy", "finished_step"]
