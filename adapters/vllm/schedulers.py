"""The scheduler classes vLLM builds when we are enabled; named by the gate.

The base follows `async_scheduling`: a subclass of the plain scheduler would lose its drafts while
scheduling is asynchronous.
"""

from __future__ import annotations

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from adaptive_spec.adapters.vllm.hooks import AdaptiveScheduling

AdaptiveScheduler = type(
    "AdaptiveScheduler", (AdaptiveScheduling, Scheduler), {"__module__": __name__}
)
AdaptiveAsyncScheduler = type(
    "AdaptiveAsyncScheduler", (AdaptiveScheduling, AsyncScheduler), {"__module__": __name__}
)
