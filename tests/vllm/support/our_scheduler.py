"""pytest plugin: code that imports vLLM's scheduler classes gets ours, with a configuration.

OUR_SCHEDULER holds the configuration as JSON; without it, vLLM's classes stay. A scheduler whose
configuration leaves nothing to decide is vLLM's own, as it is behind the configuration gate.
"""

import os
from collections.abc import Generator
from typing import Any

import pytest

SETTING = os.environ.get("OUR_SCHEDULER", "")
BUILT: list[str] = []
"""A line for each scheduler of ours."""


def pytest_configure() -> None:
    """Before vLLM's tests import anything."""
    from engines import prepare_environment

    prepare_environment()
    if not SETTING:
        return
    # Imported now, the diffusion schedulers are subclasses of vLLM's own classes.
    import vllm.v1.core.sched.diffusion_scheduler  # noqa: F401
    from vllm.v1.core.sched import async_scheduler, scheduler

    from adaptive_spec.adapters.vllm.schedulers import AdaptiveAsyncScheduler, AdaptiveScheduler

    scheduler.Scheduler = chosen(AdaptiveScheduler, scheduler.Scheduler)
    async_scheduler.AsyncScheduler = chosen(AdaptiveAsyncScheduler, async_scheduler.AsyncScheduler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Note in the report how many schedulers of ours a test has built."""
    BUILT.clear()
    try:
        return (yield)
    finally:
        item.user_properties.append(("ours", len(BUILT)))


def chosen(ours: Any, vllms: Any) -> Any:
    """A subclass of our class that builds vLLM's where we would be inert."""
    import json

    from adaptive_spec.adapters.vllm.capability import detect
    from adaptive_spec.adapters.vllm.hooks import ATTRIBUTE
    from adaptive_spec.config import parse_config

    class Chosen(ours):  # type: ignore[misc]
        def __new__(cls, *args: Any, vllm_config: Any = None, **kwargs: Any) -> Any:
            config = args[0] if args else vllm_config
            if config is not None:  # None: a test that goes without the constructor
                if detect(config).capability is None:
                    return vllms(*args, **_with(kwargs, vllm_config))
                given = parse_config(json.loads(SETTING), source="OUR_SCHEDULER")
                setattr(config.scheduler_config, ATTRIBUTE, given)
                BUILT.append(vllms.__name__)
            return object.__new__(cls)

    Chosen.__name__ = Chosen.__qualname__ = vllms.__name__
    return Chosen


def _with(kwargs: dict[str, Any], vllm_config: Any) -> dict[str, Any]:
    return kwargs if vllm_config is None else {**kwargs, "vllm_config": vllm_config}
