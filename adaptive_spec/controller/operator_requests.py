"""Operator requests at run time: another mode, policy, options or audit."""

from __future__ import annotations

import logging
from pathlib import Path

from adaptive_spec.config import Config
from adaptive_spec.errors import AdaptiveSpecError, ConfigError
from adaptive_spec.operation.run_time_switch import ControlFile, SwitchRequest, changed_config
from adaptive_spec.operation.status import Counters
from adaptive_spec.policy import (
    Policy,
    configured_policy,
    prepare,
    refuse_biased,
    refuse_unrunnable,
)
from adaptive_spec.step import Capability


class OperatorRequests:
    """Checks operator requests and reads them from the control file.

    Args:
        config: configuration at the start of the server.
        capability: control options of the engine.
        only_watch: reason to refuse mode ``on``; empty if allowed.
        counters: counters of the process.
        logger: logger of the engine.

    Attributes:
        obeyed: number of executed requests.
        error: reason to refuse the last request of the control file; empty if it was executed.
    """

    def __init__(
        self,
        config: Config,
        capability: Capability,
        only_watch: str,
        counters: Counters,
        logger: logging.Logger,
    ) -> None:
        self.obeyed = 0
        self.error = ""
        self.only_watch = only_watch
        self._start_config = config
        self._capability = capability
        self._counters = counters
        self._log = logger
        name = config.control_file
        self._file = ControlFile(Path(name)) if name else None

    def prepare(self, request: SwitchRequest, config: Config) -> tuple[Config, Policy | None]:
        """Return the configuration after a request, and its policy if the request sets a new one.

        Raises ConfigError or PolicyError, one line, if the request cannot be obeyed.
        """
        changed = changed_config(config, request, self._start_config)
        if changed.mode == "on" and self.only_watch:
            raise ConfigError(f"mode `on` is refused, not tested with: {self.only_watch}")
        if request.policy is None and request.options is None:
            return changed, None
        policy = configured_policy(changed)
        refuse_biased(policy, self._capability)
        refuse_unrunnable(policy, self._capability)
        prepare(policy)
        return changed, policy

    def obey(self, config: Config) -> None:
        """Record that the server now runs with this configuration."""
        self.obeyed += 1
        self.error = ""
        self._log.info("adaptive_spec: switched to mode=%s policy=%s", config.mode, config.policy)

    def poll(self, now: float) -> SwitchRequest | None:
        """Return a new request from the control file, or None; checks about once a second."""
        if self._file is None:
            return None
        try:
            return self._file.poll(now)
        except Exception as error:
            self.refused(error)
            return None

    def refused(self, error: Exception) -> None:
        """Record and log the reason to refuse the control file's request."""
        if isinstance(error, AdaptiveSpecError):
            self.error = str(error)
        else:
            self.error = f"control file: {type(error).__name__}: {error}"
            self._counters.failed("control file")
        self._log.warning("adaptive_spec: %s; nothing is changed", self.error)
