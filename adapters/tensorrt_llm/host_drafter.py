"""Prompt-lookup drafter for TensorRT-LLM 1.2 that switches itself on and off; patches nothing.

Give it to the LLM API (there is no YAML for it, and the overlap scheduler must be off)::

    drafter = AdaptivePromptLookup(max_draft_len=5)
    LLM(model, disable_overlap_scheduler=True, speculative_config=UserProvidedDecodingConfig(
        max_draft_len=5, drafter=drafter, resource_manager=drafter.companion))

On this path the target always computes Kmax + 1 positions per request, or 1 where nothing is
drafted at all, and KV is reserved for the announced length. So K is 0 or Kmax; a request for which
nothing was found has fewer drafts within that. Both objects are copied into every worker.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from tensorrt_llm._torch.pyexecutor.resource_manager import BaseResourceManager
from tensorrt_llm._torch.speculative.drafter import Drafter
from tensorrt_llm._utils import mpi_broadcast, mpi_rank

from adaptive_spec.adapters.tensorrt_llm.context import is_real, name_of
from adaptive_spec.adapters.tensorrt_llm.host_decisions import LOG, Decisions, LiveRequest
from adaptive_spec.adapters.tensorrt_llm.switch import requested
from adaptive_spec.config import Config
from adaptive_spec.engines.fail_open import Guarded, fail_open

_DECODES, _ENDED = "GENERATION_IN_PROGRESS", "GENERATION_COMPLETE"


class AdaptivePromptLookup(Guarded, Drafter):  # type: ignore[misc]
    """Prompt-lookup drafter, active while a policy expects a gain.

    Every rank holds the same requests and finds the same drafts; whether they are used is rank
    0's decision. Without its companion as resource manager it never switches itself off, since
    only the companion can see requests while nothing is drafted.
    """

    # Drafts are filled up to Kmax; upstream versions with this flag reserve KV for the filler.
    _needs_padding_kv_extension = True

    def __init__(
        self, max_draft_len: int, *, longest_match: int = 3, config: Config | None = None
    ) -> None:
        """Configure the drafter; each worker gets a copy.

        Args:
            max_draft_len: Kmax, the same as in UserProvidedDecodingConfig.
            longest_match: most tokens that are compared.
            config: None reads TLLM_ADAPTIVE_SPEC; without that variable, the defaults.
        """
        Guarded.__init__(self, None, LOG)
        Drafter.__init__(
            self,
            max_draft_len=max_draft_len,
            max_total_draft_tokens=max_draft_len,
            # Any schedule makes upstream ask get_draft_len_for_batch_size at each iteration.
            draft_len_schedule={1: max_draft_len},
        )
        self.companion = Companion(self)
        self._kmax = max_draft_len
        self._longest = longest_match
        self._config = config
        self._decisions: Decisions | None = None
        self.live: dict[str, LiveRequest] = {}
        self.companion_works = False

    def get_draft_len_for_batch_size(self, batch_size: int) -> int:
        """Return Kmax, or 0 to draft nothing. Upstream calls this once per iteration."""
        k = self._next_k()
        k = self._kmax if k is None else k
        return int(mpi_broadcast(k, root=0)) if self.companion_works else k

    def prepare_draft_tokens(self, scheduled_requests: Any, resource_manager: Any = None) -> None:
        """Hand over the drafts; a request that decodes for the first time has none."""
        for request in scheduled_requests.generation_requests:
            request.py_draft_tokens = self._drafts_of(request) or []

    @fail_open
    def batch_scheduled(self, scheduled_batch: Any) -> None:
        """Record the launch of a batch, with drafts or without (called by the companion)."""
        self.companion_works = True
        decoding, prompts = _requests_of(scheduled_batch)
        for request in (*decoding, *prompts):
            # Off is remembered per request and would outlast this iteration. There is no drafter
            # state to protect here.
            request.py_disable_speculative_decoding = False
        self._decided().launched(scheduled_batch)

    @fail_open
    def batch_done(self, scheduled_batch: Any) -> None:
        """Learn from the applied results of a batch (called by the companion)."""
        decoding, prompts = _requests_of(scheduled_batch)
        self._decided().done(self.live)
        for request in (*decoding, *prompts):
            name = name_of(request)
            if request.state.name == _ENDED:
                self._forget((name,))
            elif name not in self.live and request.state.name == _DECODES:
                self.live[name] = LiveRequest(request, self._longest)

    def freed(self, request: Any) -> None:
        """Forget an ended request (called by the companion)."""
        self._forget((name_of(request),))

    @fail_open
    def _next_k(self) -> int:
        for live in self.live.values():
            live.look_up(self._kmax)
        return self._decided().next_k(self.live.values(), self.companion_works)

    @fail_open
    def _drafts_of(self, request: Any) -> list[int]:
        live = self.live.get(name_of(request))
        return [] if live is None else live.drafts[: int(request.py_draft_pages_allocated)]

    def _forget(self, names: Iterable[str]) -> None:
        gone = [name for name in names if self.live.pop(name, None) is not None]
        if gone and self._decisions is not None:
            self._decisions.controller.finish(gone)

    def _decided(self) -> Decisions:
        """Build the controller in the worker, because controllers cannot be copied."""
        if self._decisions is None:
            switch = requested(os.environ)
            config = self._config or (switch.config if switch else Config())
            self._decisions = Decisions(config, self._kmax, acts=mpi_rank() == 0)
            self.report_to(self._decisions.controller)
        return self._decisions

    def __getstate__(self) -> dict[str, Any]:
        state = {**self.__dict__, "_decisions": None, "live": {}, "companion_works": False}
        return state | {"_takes_faults": None}


class Companion(BaseResourceManager):  # type: ignore[misc]
    """Resource manager without resources; it sees every batch, a drafter only drafted ones."""

    def __init__(self, drafter: AdaptivePromptLookup) -> None:
        self._drafter = drafter

    def get_max_resource_count(self) -> int:
        """Return a number that never limits."""
        return 1 << 30

    def get_needed_resource_to_completion(self, request: Any) -> int:
        """Return 0: no resource is needed."""
        return 0

    def prepare_resources(self, scheduled_batch: Any, *rest: Any) -> None:
        """Tell the drafter that a batch is about to run."""
        self._drafter.batch_scheduled(scheduled_batch)

    def update_resources(self, scheduled_batch: Any, *rest: Any) -> None:
        """Tell the drafter that results are applied."""
        self._drafter.batch_done(scheduled_batch)

    def free_resources(self, request: Any) -> None:
        """Tell the drafter that a request has ended."""
        self._drafter.freed(request)


def _requests_of(scheduled_batch: Any) -> tuple[list[Any], list[Any]]:
    """Return the decoding and the prefilling requests of a batch, without dummies."""
    return (
        [request for request in scheduled_batch.generation_requests if is_real(request)],
        [request for request in scheduled_batch.context_requests if is_real(request)],
    )
