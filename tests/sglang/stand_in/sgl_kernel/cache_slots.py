"""Where tokens lie in the KV pool: copying slot numbers, and whole rows.

Callers: kernels/ops/speculative/{cache_locs,eagle}.py, kernels/ops/kvcache/cache_move.py,
srt/mem_cache/allocation.py and layers/attention/intel_amx_backend.py. `req_to_token` is
[request rows, longest sequence]: the slot of each position.
"""

import ctypes

import numpy as np
import torch
from torch import Tensor


def assign_req_to_token_pool_cpu(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    start_offset: Tensor,
    end_offset: Tensor,
    out_cache_loc: Tensor,
    pool_len: int,
) -> None:
    """Write newly allocated slots, request after request, to positions start..end."""
    taken = 0
    for row, start, end in _ranges(req_pool_indices, start_offset, end_offset):
        count = end - start
        req_to_token[row, start:end] = out_cache_loc[taken : taken + count].to(req_to_token.dtype)
        taken += count


def assign_extend_cache_locs_cpu(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    start_offset: Tensor,
    end_offset: Tensor,
    out_cache_loc: Tensor,
    pool_len: int,
) -> None:
    """Read the slots of positions start..end, request after request."""
    taken = 0
    for row, start, end in _ranges(req_pool_indices, start_offset, end_offset):
        count = end - start
        out_cache_loc[taken : taken + count] = req_to_token[row, start:end].to(out_cache_loc.dtype)
        taken += count


def _ranges(rows: Tensor, starts: Tensor, ends: Tensor) -> list[tuple[int, int, int]]:
    listed = zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True)
    return [(row, start, end) for row, start, end in listed if end > start]


def assign_draft_cache_locs_contiguous_cpu(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    seq_lens: Tensor,
    out_cache_loc: Tensor,
    pool_len: int,
    topk: int,
    num_steps: int,
) -> None:
    """Read the `topk * num_steps` slots that follow each sequence."""
    positions = seq_lens[:, None] + torch.arange(topk * num_steps)
    found = req_to_token[req_pool_indices[:, None].long(), positions.long()]
    out_cache_loc[: found.numel()] = found.flatten().to(out_cache_loc.dtype)


def build_draft_decode_metadata_cpu(
    req_to_token: Tensor,
    req_pool_indices: Tensor,
    seq_lens: Tensor,
    topk: int,
    num_steps: int,
    pool_len: int,
) -> Tensor:
    """A slot table with a row for each branch: the request's sequence, then the branch's drafts.

    Branch b of a request has its drafts at positions `seq_len + b * num_steps` and on.
    """
    made = req_to_token[req_pool_indices.long(), :pool_len].repeat_interleave(topk, dim=0)
    for index, (row, length) in enumerate(
        zip(req_pool_indices.tolist(), seq_lens.tolist(), strict=True)
    ):
        for branch in range(1, topk):
            start = length + branch * num_steps
            drafts = req_to_token[row, start : start + num_steps]
            made[index * topk + branch, length : length + len(drafts)] = drafts
    return made


def fill_accept_out_cache_loc_cpu(
    accept_index: Tensor, out_cache_loc: Tensor, accept_out_cache_loc: Tensor
) -> None:
    """Pack the slots of accepted tokens; -1 in `accept_index` means none."""
    accepted = accept_index.flatten()
    accepted = accepted[accepted >= 0].long()
    accept_out_cache_loc[: len(accepted)] = out_cache_loc[accepted]


def copy_all_layer_kv_cache_cpu(
    data_ptrs: Tensor, strides: Tensor, tgt_loc: Tensor, src_loc: Tensor
) -> None:
    """Copy rows `src_loc` to `tgt_loc` in every buffer, given by address and bytes a row."""
    sources, targets = src_loc.numpy(), tgt_loc.numpy()
    if not len(sources):
        return
    rows = int(max(sources.max(), targets.max())) + 1
    for address, stride in zip(data_ptrs.tolist(), strides.tolist(), strict=True):
        memory = (ctypes.c_uint8 * (rows * stride)).from_address(address)
        table = np.frombuffer(memory, dtype=np.uint8).reshape(rows, stride)
        table[targets] = table[sources]
