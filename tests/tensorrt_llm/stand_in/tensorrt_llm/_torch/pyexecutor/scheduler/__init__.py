"""Part of the stand-in."""

from tensorrt_llm._torch.pyexecutor.scheduler.scheduler import (
    ScheduledRequests as ScheduledRequests,
)
