"""Which batch sizes have a graph, and the dummies that fill a batch up to one."""

from bisect import bisect_left
from contextlib import contextmanager

from tensorrt_llm._torch.pyexecutor.resource_manager import ResourceManagerType

CUDA_GRAPH_DUMMY_REQUEST_ID = (1 << 64) - 1


class CUDAGraphRunner:
    def _round_up_batch_size(self, batch_size):
        index = bisect_left(self.supported_batch_sizes, batch_size)
        fits = index < len(self.supported_batch_sizes)
        return self.supported_batch_sizes[index] if fits else 0

    def _round_up_batch_size_with_draft_len(self, batch_size, draft_len):
        """The schedule gives each batch size one K: the next size that has this one."""
        if not self.dynamic_draft_len_mapping:
            return self._round_up_batch_size(batch_size)
        sizes = [
            size
            for size in self.supported_batch_sizes
            if size >= batch_size and self.dynamic_draft_len_mapping[size] == draft_len
        ]
        return sizes[0] if sizes else 0

    def preallocate_padding_dummies(self, resource_manager):
        """One dummy for each K that was captured; it keeps its block and slot for good."""
        for k in sorted({key[1] for key in self.graphs}):
            if any(
                batch_size < self._round_up_batch_size_with_draft_len(batch_size, k)
                for batch_size in range(1, self.max_supported_batch_size + 1)
            ):
                self._dummy(resource_manager, k)

    @contextmanager
    def pad_batch(self, batch, resource_manager, runtime_draft_len):
        """Fill a batch up to the next graph, for the length of the block."""
        own = batch.generation_requests
        size = self._round_up_batch_size_with_draft_len(len(own), runtime_draft_len)
        missing = max(size - len(own), 0) if batch.can_run_cuda_graph else 0
        dummy = self._dummy(resource_manager, runtime_draft_len) if missing else None
        batch.generation_requests = own + ([dummy] * missing if dummy is not None else [])
        yield batch
        batch.generation_requests = own

    def _dummy(self, resource_manager, k):
        if k not in self.padding_dummy_requests:
            name = CUDA_GRAPH_DUMMY_REQUEST_ID - k
            made = resource_manager.get_resource_manager(
                self.config.kv_cache_manager_key
            ).add_dummy_requests([name], is_gen=True, max_num_draft_tokens=k)
            if made is None:
                return None
            made[0].is_cuda_graph_dummy = True
            slots = resource_manager.get_resource_manager(ResourceManagerType.SPEC_RESOURCE_MANAGER)
            if slots is not None:
                slots.add_dummy_requests([name])
            self.padding_dummy_requests[k] = made[0]
        return self.padding_dummy_requests[k]
