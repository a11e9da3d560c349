"""The configuration gate: the one function of vLLM that is wrapped whether enabled or not.

Plugins load before there is a configuration, so `EngineArgs.create_engine_config` is wrapped and
everything is decided there, in the process that creates the configuration. Not enabled: vLLM's
own function runs and nothing else happens. Enabled: the configuration is validated first, then
vLLM resolves its own, then our scheduler class is named in it and our settings ride along as an
attribute, which reaches EngineCore by pickling.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping
from typing import Any

from adaptive_spec.adapters.vllm.capability import detect
from adaptive_spec.adapters.vllm.hooks import ATTRIBUTE
from adaptive_spec.adapters.vllm.signatures import require_known_signatures
from adaptive_spec.adapters.vllm.versions import require_tested
from adaptive_spec.config import Config, config_from_environment, parse_config
from adaptive_spec.errors import ConfigError
from adaptive_spec.policy import configured_policy

KEY = "adaptive_spec"
"""Our key in ``--additional-config``."""

_MARK = "_adaptive_spec_gate"
_SCHEDULERS = "adaptive_spec.adapters.vllm.schedulers"
_LOG = logging.getLogger("vllm.adaptive_spec")


def install() -> None:
    """Wrap `EngineArgs.create_engine_config`, once."""
    from vllm.engine.arg_utils import EngineArgs

    original = EngineArgs.create_engine_config
    if getattr(original, _MARK, False):
        return

    @functools.wraps(original)
    def create_engine_config(self: Any, *args: Any, **kwargs: Any) -> Any:
        config = requested_config(self.additional_config)
        if config is not None and config.mode != "off":
            _require_usable(config)
        given = self.additional_config
        # Out of sight while vLLM resolves its configuration: additional_config enters the hash
        # of its compile cache.
        self.additional_config = _without_key(given)
        try:
            vllm_config = original(self, *args, **kwargs)
        finally:
            self.additional_config = given
        if config is not None and config.mode != "off":
            switch_on(vllm_config, config)
        return vllm_config

    setattr(create_engine_config, _MARK, True)
    EngineArgs.create_engine_config = create_engine_config


def requested_config(additional_config: object) -> Config | None:
    """The configuration asked for: the key in additional_config, else the environment.

    Raises ConfigError, one line naming the key and the remedy.
    """
    if isinstance(additional_config, Mapping) and KEY in additional_config:
        return parse_config(additional_config[KEY], source=f"--additional-config {KEY}")
    return config_from_environment()


def switch_on(vllm_config: Any, config: Config) -> None:
    """Name our scheduler in a resolved configuration, unless there is nothing to decide."""
    support = detect(vllm_config)
    if support.capability is None:
        _LOG.warning("adaptive_spec: nothing is switched on: %s", support.inert)
        return
    scheduler_config = vllm_config.scheduler_config
    if scheduler_config.scheduler_cls is not None:
        raise ConfigError(
            f"--scheduler-cls {scheduler_config.scheduler_cls}: adaptive_spec brings its own "
            "scheduler; remove --scheduler-cls or the `adaptive_spec` configuration"
        )
    name = "AdaptiveAsyncScheduler" if scheduler_config.async_scheduling else "AdaptiveScheduler"
    # On the nested object: vLLM copies VllmConfig field by field and stumbles over strangers.
    setattr(scheduler_config, ATTRIBUTE, config)
    scheduler_config.scheduler_cls = f"{_SCHEDULERS}.{name}"


def _require_usable(config: Config) -> None:
    """Raise now what would otherwise only fail in EngineCore, seconds later and further away."""
    import vllm

    require_tested(vllm.__version__)
    require_known_signatures()
    configured_policy(config)


def _without_key(additional_config: Any) -> Any:
    if isinstance(additional_config, Mapping) and KEY in additional_config:
        return {key: value for key, value in additional_config.items() if key != KEY}
    return additional_config
