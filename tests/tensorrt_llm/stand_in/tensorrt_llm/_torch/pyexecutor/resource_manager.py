"""KV positions, counted one by one."""

from abc import ABC, abstractmethod
from types import SimpleNamespace

from tensorrt_llm.violations import KvOverrunError, RewindError


class BaseResourceManager(ABC):
    @abstractmethod
    def get_max_resource_count(self):
        raise NotImplementedError

    @abstractmethod
    def get_needed_resource_to_completion(self, request):
        raise NotImplementedError

    def prepare_resources(self, scheduled_batch):
        pass

    def update_resources(self, scheduled_batch):
        pass

    def free_resources(self, request):
        pass


class KVCacheManager(BaseResourceManager):
    """V1: a decoding request gets 1 + K positions once K is known; the unused ones come back."""

    block = 32

    def __init__(self, blocks=4096):
        self.blocks = blocks
        self.used = 0

    def get_max_resource_count(self):
        return self.blocks

    def get_needed_resource_to_completion(self, request):
        return 0

    def get_kv_cache_stats(self):
        used = -(-self.used // self.block)
        return SimpleNamespace(
            tokens_per_block=self.block,
            max_num_blocks=self.blocks,
            free_num_blocks=max(self.blocks - used, 0),
        )

    def reserve_while_scheduling(self, request):
        pass

    def prepare_resources(self, scheduled_batch):
        for request in scheduled_batch.context_requests:
            self.grow(request, request.context_chunk_size)
        for request in scheduled_batch.generation_requests:
            self.grow(request, 1 + len(request.py_draft_tokens))

    def update_resources(self, scheduled_batch):
        for request in scheduled_batch.generation_requests:
            if request.kv_positions:
                self.grow(request, -request.py_rewind_len)
                if request.kv_positions < len(request.tokens) - 1:
                    raise RewindError(f"request {request.py_request_id}: {request.kv_positions}")

    def free_resources(self, request):
        self.grow(request, -request.kv_positions)

    def grow(self, request, positions):
        request.kv_positions += positions
        self.used += positions

    def require(self, request, new):
        """The forward pass writes `new` positions after those that hold finished tokens."""
        need = request.device.length - 1 + new
        if need > request.kv_positions:
            raise KvOverrunError(
                f"request {request.py_request_id}: {need} > {request.kv_positions} positions"
            )


class KVCacheManagerV2(KVCacheManager):
    """V2: reserves while scheduling, for the drafts a request has by then."""

    def reserve_while_scheduling(self, request):
        self.grow(request, 1 + len(request.py_draft_tokens))
        request.reserved_drafts = len(request.py_draft_tokens)

    def prepare_resources(self, scheduled_batch):
        for request in scheduled_batch.context_requests:
            self.grow(request, request.context_chunk_size)

    def update_resources(self, scheduled_batch):
        for request in scheduled_batch.generation_requests:
            if request.kv_positions:
                accepted = request.py_num_accepted_draft_tokens
                self.grow(request, accepted - request.reserved_drafts)

    def require(self, request, new):
        if new > 1 + request.reserved_drafts:
            raise KvOverrunError(f"request {request.py_request_id}: K was raised after reserving")


class MambaHybridCacheManager(KVCacheManager):
    """Only its name matters."""


class ResourceManager:
    """All managers, in turn."""

    def __init__(self, managers):
        self.managers = managers

    def prepare_resources(self, scheduled_batch):
        for manager in self.managers:
            manager.prepare_resources(scheduled_batch)

    def update_resources(self, scheduled_batch):
        for manager in self.managers:
            manager.update_resources(scheduled_batch)

    def free_resources(self, request):
        for manager in self.managers:
            manager.free_resources(request)
