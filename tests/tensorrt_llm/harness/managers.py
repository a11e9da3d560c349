"""Managers of KV positions and slots, in place of those that allocate GPU memory."""

from types import SimpleNamespace
from typing import Any

from harness.violations import KvOverrunError


class _Manager:
    """What upstream asks of every manager and these have nothing to do for."""

    def update_resources(self, batch: Any, *_: Any) -> None:
        """Nothing."""

    def shutdown(self) -> None:
        """Nothing."""


class KVCacheManager(_Manager):
    """V1: a decoding request gets 1 + K positions once K is known; unused ones come back.

    Args:
        package: modules of TensorRT-LLM.
        blocks: size (blocks of 32 tokens).
    """

    tokens_per_block = 32
    enable_block_reuse = False
    max_beam_width = 1

    def __init__(self, package: Any, blocks: int = 512) -> None:
        self._package = package
        self.blocks = blocks
        self.reserved: dict[int, int] = {}
        """Request -> reserved positions."""

    def get_kv_cache_stats(self) -> SimpleNamespace:
        """Blocks in all, in use and free."""
        used = sum(-(-tokens // self.tokens_per_block) for tokens in self.reserved.values())
        return SimpleNamespace(
            tokens_per_block=self.tokens_per_block,
            max_num_blocks=self.blocks,
            used_num_blocks=used,
            free_num_blocks=max(self.blocks - used, 0),
        )

    def scheduled(self, request: Any) -> None:
        """Reserve while scheduling: V1 does not."""

    def prepare_resources(self, batch: Any) -> None:
        """Reserve for a batch whose K is known."""
        for request in batch.context_requests:
            if request.is_first_context_chunk:
                self.reserved[request.py_request_id] = request.prompt_len
        for request in batch.generation_requests:
            self.grow(request, 1 + drafts_of(request))

    def update_resources(self, batch: Any, *_: Any) -> None:
        """Take rejected positions back."""
        for request in batch.generation_requests:
            if not request.is_finished:
                self.grow(request, -request.py_rewind_len)

    def free_resources(self, request: Any, *_: Any) -> None:
        """Take everything back."""
        self.reserved.pop(request.py_request_id, None)

    def grow(self, request: Any, positions: int) -> None:
        """Add positions to a request that holds some."""
        if request.py_request_id in self.reserved:
            self.reserved[request.py_request_id] += positions

    def require(self, request: Any, positions: int, new: int) -> None:
        """Check that a forward pass may write; `positions` in all, `new` of them now."""
        held = self.reserved.get(request.py_request_id, 0)
        if positions > held:
            text = f"request {request.py_request_id}: {positions} > {held} positions"
            raise KvOverrunError(text)

    def add_dummy_requests(
        self, request_ids: list[int], *_: Any, max_num_draft_tokens: int = 0, **__: Any
    ) -> list[Any] | None:
        """Make requests that fill up a batch; each holds a block for good."""
        made = []
        for name in request_ids:
            if not self.get_kv_cache_stats().free_num_blocks:
                return None
            request = self._package.LlmRequest(
                request_id=name,
                max_new_tokens=1 << 20,
                input_tokens=[1],
                sampling_config=self._package.SamplingConfig(),
            )
            request.is_dummy_request = True
            request.state = self._package.LlmRequestState.GENERATION_IN_PROGRESS
            request.py_draft_tokens = [1] * max_num_draft_tokens
            self.reserved[name] = 2 + max_num_draft_tokens
            made.append(request)
        return made


class KVCacheManagerV2(KVCacheManager):
    """V2: reserves while scheduling, for the drafts that a request has by then."""

    def scheduled(self, request: Any) -> None:
        request.reserved_drafts = drafts_of(request)
        self.grow(request, 1 + request.reserved_drafts)

    def prepare_resources(self, batch: Any) -> None:
        for request in batch.context_requests:
            if request.is_first_context_chunk:
                self.reserved[request.py_request_id] = request.prompt_len

    def update_resources(self, batch: Any, *_: Any) -> None:
        for request in batch.generation_requests:
            self.grow(request, request.py_num_accepted_draft_tokens - request.reserved_drafts)

    def require(self, request: Any, positions: int, new: int) -> None:
        if new > 1 + request.reserved_drafts:
            raise KvOverrunError(f"request {request.py_request_id}: K was raised after reserving")


class MambaHybridCacheManager(KVCacheManager):
    """Only its name matters."""


class SequenceSlots(_Manager):
    """A place in the sampler's buffers for each request."""

    def __init__(self, count: int) -> None:
        self._free = list(range(count))

    def prepare_resources(self, batch: Any) -> None:
        """Give a place to prompts and dummies."""
        for request in (*batch.context_requests, *batch.generation_requests):
            if request.py_seq_slot is None:
                request.py_seq_slot = self._free.pop()

    def free_resources(self, request: Any, *_: Any) -> None:
        """Take the place back."""
        if request.py_seq_slot is not None:
            self._free.append(request.py_seq_slot)
            request.py_seq_slot = None


class SpeculationSlots(_Manager):
    """Slots of a drafter's state, as `Eagle3ResourceManager` or `MTPHiddenStatesManager`.

    Dummies take slots too. `slot_manager.max_num_requests` tells how many there are.
    """

    def __init__(self, count: int) -> None:
        self.slot_manager = SimpleNamespace(max_num_requests=count)
        self.held: set[int] = set()

    def add_dummy_requests(self, request_ids: list[int], *_: Any, **__: Any) -> None:
        """Give each a slot. Raises ValueError without a free one."""
        for name in request_ids:
            if len(self.held) >= self.slot_manager.max_num_requests:
                raise ValueError("No free slots")
            self.held.add(name)

    def prepare_resources(self, batch: Any) -> None:
        """Give each new prompt a slot."""
        self.add_dummy_requests(
            [r.py_request_id for r in batch.context_requests if r.is_first_context_chunk]
        )

    def free_resources(self, request: Any, *_: Any) -> None:
        """Take the slot back."""
        self.held.discard(request.py_request_id)


class MTPHiddenStatesManager(SpeculationSlots):
    """Only its name matters."""


def drafts_of(request: Any) -> int:
    """Return how many drafts a request has."""
    return len(request.py_draft_tokens or ())
