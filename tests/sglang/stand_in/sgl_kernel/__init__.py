"""Test stand-in for `sgl_kernel`, SGLang's compiled operators: the CPU ones, in plain PyTorch.

There is no CPU build of the real package on PyPI. With this folder on PYTHONPATH, SGLang's own
scheduler, workers and models run on any CPU; only the arithmetic below them is ours. It is slow,
meant for small models, and supports no more than what the tests serve.

SGLang looks for `torch.ops.sgl_kernel.convert_weight_packed` to learn whether it may use AMX
layouts for its weights. It is not defined here on purpose: layers then take their PyTorch path.
"""

from . import kvcacheio, mamba, speculative
from .attention import decode_attention_cpu, extend_attention_cpu, register
from .cache_slots import (
    assign_draft_cache_locs_contiguous_cpu,
    assign_extend_cache_locs_cpu,
    assign_req_to_token_pool_cpu,
    build_draft_decode_metadata_cpu,
    copy_all_layer_kv_cache_cpu,
    fill_accept_out_cache_loc_cpu,
)
from .draft_tree import build_tree_kernel_efficient_cpu
from .verification import (
    fill_bonus_tokens_cpu,
    rotate_input_ids_cpu,
    tree_speculative_sampling_target_only,
    verify_tree_greedy_cpu,
)

register()

__all__ = [
    "assign_draft_cache_locs_contiguous_cpu",
    "assign_extend_cache_locs_cpu",
    "assign_req_to_token_pool_cpu",
    "build_draft_decode_metadata_cpu",
    "build_tree_kernel_efficient_cpu",
    "copy_all_layer_kv_cache_cpu",
    "decode_attention_cpu",
    "extend_attention_cpu",
    "fill_accept_out_cache_loc_cpu",
    "fill_bonus_tokens_cpu",
    "kvcacheio",
    "mamba",
    "rotate_input_ids_cpu",
    "speculative",
    "tree_speculative_sampling_target_only",
    "verify_tree_greedy_cpu",
]
