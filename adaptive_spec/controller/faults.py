"""Faults of the policy and the hooks: counted, logged once; repeated ones bench the policy."""

from __future__ import annotations

import logging

from adaptive_spec.config import FailOpen
from adaptive_spec.operation.status import Counters

FORGIVEN_AFTER = 100
"""Good decisions in a row that reset the failure count."""

# A busy machine takes the CPU from a good policy for some tens of milliseconds.
WALL_FACTOR = 10
"""Wall time that counts as late, in multiples of the CPU limit."""


def lateness(config: FailOpen, cpu_seconds: float, wall_seconds: float) -> str:
    """Describe a decision that took too long; empty if it was in time."""
    if cpu_seconds * 1e3 > config.max_decision_ms:
        return f"plan took: {cpu_seconds * 1e3:.1f} ms of CPU time"
    if wall_seconds * 1e3 > WALL_FACTOR * config.max_decision_ms:
        return f"plan took: {wall_seconds * 1e3:.1f} ms"
    return ""


class Breaker:
    """Counts failures; opens after too many and closes again after a while.

    Attributes:
        failures: failures that are not forgiven; 0: the policy may decide, and nothing is to count.
    """

    def __init__(self, config: FailOpen) -> None:
        self._config = config
        self.failures = 0
        self._good = 0
        self._benched_until: float | None = None

    @property
    def benched(self) -> bool:
        """Return whether the policy is benched at present."""
        return self._benched_until is not None

    def closed(self, now: float) -> bool:
        """Return whether the policy may decide at `now`. Ends a bench whose time is over."""
        if self._benched_until is None:
            return True
        # A clock that jumps backwards must not bench the policy for ever.
        remaining = self._benched_until - now
        if 0 < remaining <= self._config.bench_seconds:
            return False
        self._benched_until = None
        self.failures = 0
        return True

    def succeeded(self) -> None:
        """Count a usable decision."""
        self._good += 1
        if self._good >= FORGIVEN_AFTER:
            self.failures = self._good = 0

    def failed(self, now: float) -> bool:
        """Count a failed decision; return True if this failure benches the policy."""
        self._good = 0
        self.failures += 1
        if self.failures < self._config.failures_to_bench or self.benched:
            return False
        self._benched_until = now + self._config.bench_seconds
        return True


class Faults:
    """Fault counts of one process and the breaker of its policy."""

    def __init__(self, config: FailOpen, counters: Counters, logger: logging.Logger) -> None:
        self._config = config
        self._counters = counters
        self._log = logger
        self._said: set[str] = set()
        self.breaker = Breaker(config)

    def new_policy(self, config: FailOpen) -> None:
        """Start a new breaker: faults of the previous policy do not count."""
        self._config = config
        self.breaker = Breaker(config)

    def of_policy(self, fault: str, now: float, policy_name: str) -> bool:
        """Count a fault of the policy, for the breaker too; its kind is the text before a colon.

        Returns whether it benches the policy.
        """
        planning = fault.startswith("plan")
        self._say(fault, "the engine's own K is used" if planning else "serving goes on")
        benched = self.breaker.failed(now)
        if benched and "benched" not in self._said:
            self._said.add("benched")
            self._log.warning(
                "adaptive_spec: policy %s failed repeatedly and is benched for %.0f s at a time",
                policy_name,
                self._config.bench_seconds,
            )
        return benched

    def of_hook(self, fault: str) -> None:
        """Count a fault of our own code around the policy, which is no reason to bench the policy.

        What a client sends may cause such faults; the policy serves all other clients.
        """
        self._say(fault, "serving goes on")

    def left_out(self, fault: str) -> None:
        """Count an unusable report of the engine, which is no failure of the policy."""
        self._say(fault, "nothing is learned from it")

    def _say(self, fault: str, consequence: str) -> None:
        kind = self._counters.failed(fault)
        if kind not in self._said:
            self._said.add(kind)
            self._log.warning("adaptive_spec: %s; %s", fault, consequence)
