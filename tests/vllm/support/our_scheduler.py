"""pytest plugin: code that imports vLLM's scheduler classes gets ours, with a policy.

OUR_SCHEDULER_POLICY names the policy; without it, vLLM's classes stay. A scheduler whose
configuration leaves nothing to decide is vLLM's own, as it is behind the configuration gate.
"""

from __future__ import annotations

import os
from typing import Any

POLICY = os.environ.get("OUR_SCHEDULER_POLICY", "")


def pytest_configure() -> None:
    """Before vLLM's tests import anything."""
    from engines import prepare_environment

    prepare_environment()
    if not POLICY:
        return
    from vllm.v1.core.sched import async_scheduler, scheduler

    from adaptive_spec.adapters.vllm.schedulers import AdaptiveAsyncScheduler, AdaptiveScheduler

    scheduler.Scheduler = chosen(AdaptiveScheduler, scheduler.Scheduler)
    async_scheduler.AsyncScheduler = chosen(AdaptiveAsyncScheduler, async_scheduler.AsyncScheduler)


def chosen(ours: Any, vllms: Any) -> Any:
    """A subclass of our class that builds vLLM's where we would be inert."""
    from adaptive_spec.adapters.vllm.capability import detect
    from adaptive_spec.adapters.vllm.hooks import ATTRIBUTE
    from adaptive_spec.config import Config

    class Chosen(ours):  # type: ignore[misc]
        def __new__(cls, *args: Any, vllm_config: Any = None, **kwargs: Any) -> Any:
            config = args[0] if args else vllm_config
            if config is not None:  # None: a test that goes without the constructor
                if detect(config).capability is None:
                    return vllms(*args, **_with(kwargs, vllm_config))
                setattr(config.scheduler_config, ATTRIBUTE, Config(policy=POLICY))
            return object.__new__(cls)

    Chosen.__name__ = Chosen.__qualname__ = vllms.__name__
    return Chosen


def _with(kwargs: dict[str, Any], vllm_config: Any) -> dict[str, Any]:
    return kwargs if vllm_config is None else {**kwargs, "vllm_config": vllm_config}
