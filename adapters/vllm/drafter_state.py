"""OFF-cold: leaving the drafter's pass out, and remembering whose draft KV has holes since.

At K = 0 vLLM still runs one pass of a drafter with a model, so that its KV cache stays in step. A
step planned as OFF_COLD carries `LEAVE_OUT` as its number of drafts: a zero like any other, except
to the hook in the worker, which then answers for the drafter without running it. Where the hook is
missing, the pass runs: OFF-warm.

What the drafter has not seen it cannot continue, and nothing reads it in again. So every request
that a step without the pass computed anything of is drafted for no more, to its end. New requests
are, once the pass runs again. KV blocks written in between stay in the prefix cache with a draft
half that was never written: a new request that finds such blocks starts with a drafter that knows
less of its prompt, is accepted less at first, and the policy learns that as it learns any request.
Their number is not known exactly; requests that found any cached prefix since are counted.
"""

from __future__ import annotations

import functools
import logging
import sys
from typing import Any

import numpy as np

from adaptive_spec.engines.request_table import RequestTable
from adaptive_spec.operation.status import Counters

_LOG = logging.getLogger("vllm.adaptive_spec")
_RUNNER_MODULE = "vllm.v1.worker.gpu_model_runner"
_ORIGINAL = "_adaptive_spec_original"
_HOOKED = "propose_draft_token_ids"


class DrafterState:
    """Which requests the drafter has lost, for one scheduler."""

    def __init__(self, table: RequestTable, counters: Counters) -> None:
        self._table = table
        self._counters = counters
        self._has_holes = False

    def launched(self, output: Any, requests: dict[str, Any]) -> None:
        """A step is under way, with its drafter pass or without.

        Args:
            output: vLLM's SchedulerOutput.
            requests: the scheduler's requests by id.
        """
        if not isinstance(output.num_spec_tokens_to_schedule, LeaveOut):
            self._ran(output)
            return
        self._has_holes = True
        # A request whose prompt is being read has no slot yet.
        slots = [
            self._table.slot_of(name, requests[name])
            for name in output.num_scheduled_tokens
            if name in requests
        ]
        stopped = self._table.stop_drafting(np.array(slots, dtype=np.int64))
        self._counters.event("requests_not_drafted_after_off_cold", stopped)

    def _ran(self, output: Any) -> None:
        if self._has_holes:
            found = sum(new.num_computed_tokens > 0 for new in output.scheduled_new_reqs)
            self._counters.event("prefixes_reused_after_off_cold", found)


class LeaveOut(int):
    """Zero drafts, and no pass of the drafter. Arriving in a worker it hooks the model runner."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, ()


LEAVE_OUT = LeaveOut(0)


def _arrived() -> int:
    """What becomes of `LEAVE_OUT` in another process; a plain zero if it cannot be obeyed."""
    try:
        install()
    except Exception as error:
        _LOG.warning("adaptive_spec: the drafter's pass is not left out: %s", error)
        return 0
    return LEAVE_OUT


def install() -> None:
    """Hook the V1 model runner of this process, once; nothing where there is none."""
    module = sys.modules.get(_RUNNER_MODULE)
    if module is None:
        return
    original = module.GPUModelRunner.propose_draft_token_ids
    if hasattr(original, _ORIGINAL):
        return

    @functools.wraps(original)
    def propose_draft_token_ids(self: Any, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(scheduler_output.num_spec_tokens_to_schedule, LeaveOut):
            return original(self, scheduler_output, *args, **kwargs)
        drafter = self.drafter
        # On the object, for this call: whatever else wraps the drafter's method stays as it is.
        before = vars(drafter).get("propose")
        drafter.propose = functools.partial(_no_drafts, drafter)
        try:
            return original(self, scheduler_output, *args, **kwargs)
        finally:
            if before is None:
                del drafter.propose
            else:
                drafter.propose = before

    setattr(propose_draft_token_ids, _ORIGINAL, original)
    setattr(module.GPUModelRunner, _HOOKED, propose_draft_token_ids)


def uninstall() -> None:
    """Give the model runner its own method back."""
    module = sys.modules.get(_RUNNER_MODULE)
    hooked = getattr(module.GPUModelRunner, _HOOKED) if module is not None else None
    original = getattr(hooked, _ORIGINAL, None)
    if module is not None and original is not None:
        setattr(module.GPUModelRunner, _HOOKED, original)


def _no_drafts(drafter: Any, *, common_attn_metadata: Any, **_: Any) -> Any:
    """The answer of `SpecDecodeBaseProposer.propose` at K = 0, without its pass: int64 [B, 0]."""
    import torch

    drafter.num_speculative_tokens = 0
    drafter._last_draft_probs = None
    return torch.empty(
        common_attn_metadata.batch_size(), 0, dtype=torch.int64, device=drafter.device
    )
