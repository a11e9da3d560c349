"""Faults of the policy and the hooks: counted, logged once, passed to the breaker."""

from __future__ import annotations

import logging

from adaptive_spec.config import FailOpen
from adaptive_spec.controller.breaker import Breaker
from adaptive_spec.operation.status import Counters


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

    def of_policy(self, fault: str, now: float, policy_name: str) -> None:
        """Count a fault of the policy, for the breaker too; its kind is the text before a colon."""
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
