"""Does this vLLM still have the methods and fields we hook into?

Checked once at start-up, before anything is patched, so that a changed vLLM is one clear refusal
and not a fault in its step loop.
"""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

from adaptive_spec.errors import UnsupportedEngineError

_METHODS: dict[str, tuple[str, ...]] = {
    "schedule": ("self", "throttle_prefills"),
    "_update_after_schedule": ("self", "scheduler_output"),
    "update_from_output": ("self", "scheduler_output", "model_runner_output"),
    "_free_request": ("self", "request", "delay_free_blocks"),
    "shutdown": ("self",),
}
_OUTPUT_FIELDS = (
    "num_scheduled_tokens",
    "total_num_scheduled_tokens",
    "scheduled_spec_decode_tokens",
    "num_invalid_spec_tokens",
    "num_spec_tokens_to_schedule",
)
_REQUEST_ATTRIBUTES = (
    "is_prefill_chunk",
    "max_tokens",
    "num_computed_tokens",
    "num_output_placeholders",
    "num_prompt_tokens",
    "num_stale_output_tokens",
    "spec_token_ids",
)


def mismatches(scheduler: type[Any], output: type[Any], request: type[Any]) -> list[str]:
    """What differs from what we were written against; empty if nothing does.

    Args:
        scheduler: vLLM's `Scheduler` class.
        output: its `SchedulerOutput` dataclass.
        request: its `Request` class.
    """
    found = []
    for name, expected in _METHODS.items():
        method = getattr(scheduler, name, None)
        actual = tuple(inspect.signature(method).parameters) if callable(method) else None
        if actual != expected:
            found.append(f"Scheduler.{name}{actual or ' is missing'}")
    fields = {field.name for field in dataclasses.fields(output)}
    found += [f"SchedulerOutput.{name} is missing" for name in _OUTPUT_FIELDS if name not in fields]
    # Attributes of Request are set in its constructor, so they are looked up in its code.
    known = set(dir(request)) | set(request.__init__.__code__.co_names)
    found += [f"Request.{name} is missing" for name in _REQUEST_ATTRIBUTES if name not in known]
    return found


def require_known_signatures() -> None:
    """Raise UnsupportedEngineError, one line, if the installed vLLM differs."""
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.request import Request

    found = mismatches(Scheduler, SchedulerOutput, Request)
    if found:
        raise UnsupportedEngineError(
            f"adaptive_spec: this vLLM has changed where we hook in ({'; '.join(found)}); install "
            "a tested version or remove the `adaptive_spec` configuration"
        )
