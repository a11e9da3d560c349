"""Choice of the graphs to capture."""

from tensorrt_llm._torch.speculative.utils import get_draft_len_for_batch_size, is_dynamic
from tensorrt_llm.logger import logger as logger


class DecoderRunner:
    def warmup(self, resource_manager):
        kv_cache_manager = resource_manager.get_resource_manager(self.kv_cache_manager_key)
        self._warmup_scheduled(resource_manager, kv_cache_manager)

    def _warmup_scheduled(self, resource_manager, kv_cache_manager):
        raise NotImplementedError("needs a GPU")

    def _compute_dynamic_draft_len_mapping(self):
        config = self._config
        if not is_dynamic(config.spec_config):
            return None
        least = getattr(config.spec_config, "min_runtime_draft_len", 0)
        schedule, largest = config.spec_config.draft_len_schedule, config.original_max_draft_len
        return {
            size: get_draft_len_for_batch_size(schedule, size, largest, least)
            for size in config.cuda_graph_batch_sizes
        }

    def _get_graphs_to_capture(self, cuda_graph_batch_sizes):
        largest = self._config.original_max_draft_len
        if not self._dynamic_draft_len_mapping:
            return [(size, largest) for size in cuda_graph_batch_sizes]
        graphs = set(self._dynamic_draft_len_mapping.items())
        return sorted(graphs | {(max(cuda_graph_batch_sizes), largest)}, reverse=True)
