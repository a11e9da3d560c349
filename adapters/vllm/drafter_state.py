"""OFF-cold: leaving the drafter's pass out, and remembering whose draft KV has holes since.

At K = 0 vLLM still runs one pass of a drafter with a model, so that its KV cache stays in step, and
all passes of a drafter whose depth is fixed, or its look-up in suffix trees. A step planned as
OFF_COLD carries `LEAVE_OUT` as its number of drafts: a zero like any other, except to the hook in
the worker, which then answers for the drafter without running it. Where the hook is missing, the
passes run: OFF-warm.

A suffix tree grows in steps that look drafts up. It lacks the tokens of other steps, so that a
request finds fewer matches; its drafts go on.

A model cannot draft behind tokens that it has not seen, and nothing reads them in again. So every
request that a step without the pass computed anything of is drafted for no more, to its end. New
requests are, once the pass runs again. KV blocks written in between stay in the prefix cache with a
draft half that was never written: a new request that finds such blocks starts with a drafter that
knows less of its prompt, is accepted less at first, and the policy learns that as it learns any
request.
Their number is not known exactly; requests that found any cached prefix since are counted.
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from adaptive_spec.engines.request_table import RequestTable
from adaptive_spec.operation.status import Counters

_LOG = logging.getLogger("vllm.adaptive_spec")
_ORIGINAL = "_adaptive_spec_original"


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
    """Unpickled form of `LEAVE_OUT`; a plain zero where the pass cannot be left out."""
    try:
        install()
    except Exception as error:
        _LOG.warning("adaptive_spec: the drafter's pass is not left out: %s", error)
        return 0
    return LEAVE_OUT


def install() -> None:
    """Hook the model runners of this process, once; do nothing without any."""
    for module, method, hook in _HOOKS:
        runner = getattr(sys.modules.get(module), "GPUModelRunner", None)
        original = getattr(runner, method, None)
        if original is None or hasattr(original, _ORIGINAL):
            continue
        hooked = functools.wraps(original)(hook(original))
        setattr(hooked, _ORIGINAL, original)
        setattr(runner, method, hooked)


def uninstall() -> None:
    """Give the model runners their own methods back."""
    for module, method, _ in _HOOKS:
        runner = getattr(sys.modules.get(module), "GPUModelRunner", None)
        original = getattr(getattr(runner, method, None), _ORIGINAL, None)
        if original is not None:
            setattr(runner, method, original)


def _on_v1(original: Callable[..., Any]) -> Callable[..., Any]:
    def propose_draft_token_ids(self: Any, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(scheduler_output.num_spec_tokens_to_schedule, LeaveOut):
            return original(self, scheduler_output, *args, **kwargs)
        suffix = self.speculative_config.method == "suffix"
        with _answering(self.drafter, _no_suffixes if suffix else _no_drafts):
            return original(self, scheduler_output, *args, **kwargs)

    return propose_draft_token_ids


def _on_v2(original: Callable[..., Any]) -> Callable[..., Any]:
    def sample_tokens(self: Any, *args: Any, **kwargs: Any) -> Any:
        state, speculator = self.execute_model_state, self.speculator
        left_out = state is not None and isinstance(state.num_spec_tokens_to_schedule, LeaveOut)
        if not left_out or speculator is None:  # None: on all but the last rank of a pipeline
            return original(self, *args, **kwargs)
        with _answering(speculator, _no_drafts_on_v2):
            return original(self, *args, **kwargs)

    return sample_tokens


_HOOKS = (
    ("vllm.v1.worker.gpu_model_runner", "propose_draft_token_ids", _on_v1),
    ("vllm.v1.worker.gpu.model_runner", "sample_tokens", _on_v2),
)
"""Module of a `GPUModelRunner`, its method that runs the drafter, the wrapper."""


@contextmanager
def _answering(drafter: Any, answer: Callable[..., Any]) -> Iterator[None]:
    """Have `answer` in place of a drafter's `propose`.

    On the object, for this time: whatever else wraps the drafter's method stays as it is.
    """
    before = vars(drafter).get("propose")
    drafter.propose = functools.partial(answer, drafter)
    try:
        yield
    finally:
        if before is None:
            del drafter.propose
        else:
            drafter.propose = before


def _no_drafts(drafter: Any, *, common_attn_metadata: Any, **_: Any) -> Any:
    """The answer of `SpecDecodeBaseProposer.propose` at K = 0, without its pass: int64 [B, 0]."""
    import torch

    drafter.num_speculative_tokens = 0
    drafter._last_draft_probs = None
    return torch.empty(
        common_attn_metadata.batch_size(), 0, dtype=torch.int64, device=drafter.device
    )


def _no_suffixes(
    _: Any, kmax: int, input_batch: Any, sampled_token_ids: list[list[int]], **__: Any
) -> list[list[int]]:
    """The answer of `SuffixDecodingProposer.propose` where nothing matches: [B] empty lists."""
    return [[] for _ in sampled_token_ids]


def _no_drafts_on_v2(speculator: Any, input_batch: Any, *_: Any, **__: Any) -> Any:
    """The answer of `DraftModelSpeculator.propose` without a pass: [B, Kmax], to be masked."""
    return speculator.draft_tokens[: input_batch.num_reqs]
