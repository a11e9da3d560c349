"""The scheduler classes vLLM builds when we are enabled; named by the gate.

The base follows `async_scheduling`: a subclass of the plain scheduler would lose its drafts while
scheduling is asynchronous. On a scheduler class of the user's, ours is built when it is asked for.
"""

from __future__ import annotations

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from adaptive_spec.adapters.vllm import own_scheduler
from adaptive_spec.adapters.vllm.hooks import AdaptiveScheduling

AdaptiveScheduler = type(
    "AdaptiveScheduler", (AdaptiveScheduling, Scheduler), {"__module__": __name__}
)
AdaptiveAsyncScheduler = type(
    "AdaptiveAsyncScheduler", (AdaptiveScheduling, AsyncScheduler), {"__module__": __name__}
)


def __getattr__(name: str) -> type:
    """Build our class on one of the user's; see `own_scheduler.over`."""
    base = own_scheduler.base_of(name) if name.startswith(own_scheduler.PREFIX) else None
    if base is None:
        raise AttributeError(name)
    found = type(name, (AdaptiveScheduling, base), {"__module__": __name__})
    globals()[name] = found  # vLLM sends the class by its name to the engine's process
    return found
