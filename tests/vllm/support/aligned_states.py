"""Test only: vLLM's copies of recurrent states under prefix caching, which are kernels for a GPU.

With prefix caching the state of a hybrid model ("align" mode) lies in a block like a KV block. It
moves to the next block before a step that crosses the boundary, and it is saved at the boundary
after a step whose accepted tokens crossed one. The rules are those of
`vllm/v1/worker/mamba_utils.py`: precopy_mamba_align_fused_kernel, postprocess_mamba_fused_kernel.
"""

from typing import Any

import pytest


def mamba_align(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let the context of the kernels copy with PyTorch; of each copy, how many drafts it skips.

    Mamba-2 ends its prompts' chunks at the boundaries of blocks: saving a state in the middle of a
    chunk is left to a kernel, too.
    """
    from vllm.model_executor.layers.mamba.abstract import MambaBase
    from vllm.model_executor.layers.mamba.mamba_mixer2 import MambaMixer2
    from vllm.v1.worker.mamba_utils import MambaSpecDecodeGPUContext as Context

    initialize = Context.initialize_from_forward_context
    copied: list[int] = []

    def remember(
        self: Any, config: Any, layers: Any, functions: Any, tables: Any, *rest: Any
    ) -> None:
        if not self.is_initialized:
            self.states_of_tests = _states(self, config, layers, functions, tables)
            self.copied_of_tests = copied
        initialize(self, config, layers, functions, tables, *rest)

    monkeypatch.setattr(MambaMixer2, "get_kv_cache_spec", MambaBase.get_kv_cache_spec)
    monkeypatch.setattr(Context, "initialize_from_forward_context", remember)
    monkeypatch.setattr(Context, "run_fused_precopy", _before_the_step)
    monkeypatch.setattr(Context, "run_fused_postprocess", _after_the_step)
    return copied


def _states(context: Any, config: Any, layers: Any, functions: Any, tables: Any) -> list[Any]:
    """Each state tensor, whether it is a convolution's, and the block table of its group."""
    from vllm.model_executor.layers.mamba.mamba_utils import get_conv_copy_spec
    from vllm.v1.worker.mamba_utils import _get_mamba_spec_for_layer

    found = []
    # vLLM hands over the rows of the first step's requests; its kernels read on from there.
    whole = [rows if rows._base is None else rows._base for rows in tables]
    for group_id, table in zip(context.mamba_group_ids, whole, strict=True):
        group = config.kv_cache_groups[group_id]
        for name in group.layer_names:
            kinds = functions[_get_mamba_spec_for_layer(group, name).mamba_type]
            for state, kind in zip(layers[name].kv_cache, kinds, strict=False):
                found.append((state, kind is get_conv_copy_spec, table))
    return found


def _copy(context: Any, row: int, source: int, target: int, bias: int) -> None:
    """Copy a request's states from one block column to another, `bias` tokens on."""
    from vllm.v1.worker.mamba_utils import is_conv_state_dim_first

    context.copied_of_tests.append(bias)
    for state, convolution, table in context.states_of_tests:
        into = state[int(table[row, target])]
        if convolution:
            axis = 1 if is_conv_state_dim_first() else 0
            kept = into.shape[axis] - bias
            moved = state[int(table[row, source])].narrow(axis, bias, kept).clone()
            into.narrow(axis, 0, kept).copy_(moved)
        else:
            into.copy_(state[int(table[row, source + bias])].clone())


def _before_the_step(
    self: Any,
    num_reqs: int,
    state_idx_gpu: Any,
    src_col_gpu: Any,
    token_bias_gpu: Any,
    idx_mapping: Any,
) -> None:
    assert idx_mapping is None, "model runner V1 needs no mapping"
    for row in range(num_reqs if self.is_initialized else 0):
        source, target = int(src_col_gpu[row]), int(state_idx_gpu[row])
        if source >= 0 and source != target:
            _copy(self, row, source, target, int(token_bias_gpu[row]))


def _after_the_step(
    self: Any,
    num_reqs: int,
    num_accepted_tokens_gpu: Any,
    mamba_state_idx_gpu: Any,
    num_scheduled_tokens_gpu: Any,
    num_computed_tokens_gpu: Any,
    num_draft_tokens_gpu: Any,
) -> None:
    if num_reqs == 0 or not self.is_initialized:
        return
    self.num_accepted_tokens_out[:num_reqs].copy_(num_accepted_tokens_gpu[:num_reqs])
    for row in range(num_reqs):
        running = int(num_computed_tokens_gpu[row]) + int(num_scheduled_tokens_gpu[row])
        running -= int(num_draft_tokens_gpu[row])
        computed = running + int(num_accepted_tokens_gpu[row]) - 1
        aligned = computed // self.block_size * self.block_size
        if aligned < running:
            continue
        source, target = int(mamba_state_idx_gpu[row]), aligned // self.block_size - 1
        if source == target:
            self.num_accepted_tokens_out[row] = 1
        if source != target or aligned != running:
            _copy(self, row, source, target, aligned - running)
