"""Managers of what requests hold: blocks, slots."""

import enum
from abc import ABC, abstractmethod


class ResourceManagerType(enum.Enum):
    KV_CACHE_MANAGER = "KV_CACHE_MANAGER"
    SEQ_SLOT_MANAGER = "SEQ_SLOT_MANAGER"
    SPEC_RESOURCE_MANAGER = "SPEC_RESOURCE_MANAGER"


class BaseResourceManager(ABC):
    @abstractmethod
    def get_max_resource_count(self):
        raise NotImplementedError

    @abstractmethod
    def get_needed_resource_to_completion(self, request):
        raise NotImplementedError

    def add_dummy_requests(self, request_ids):
        pass

    def prepare_resources(self, scheduled_batch):
        pass

    def update_resources(self, scheduled_batch):
        pass

    def free_resources(self, request):
        pass


class ResourceManager:
    """All managers, in turn."""

    def __init__(self, resource_managers):
        self.resource_managers = resource_managers

    def get_resource_manager(self, name):
        return self.resource_managers.get(name)

    def prepare_resources(self, scheduled_batch):
        for manager in self.resource_managers.values():
            manager.prepare_resources(scheduled_batch)

    def update_resources(self, scheduled_batch, attn_metadata=None, kv_cache_dtype_byte_size=None):
        for manager in self.resource_managers.values():
            manager.update_resources(scheduled_batch)

    def free_resources(self, request):
        for manager in reversed(self.resource_managers.values()):
            manager.free_resources(request)
