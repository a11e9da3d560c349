"""Attention over a paged KV pool: `torch.ops.sgl_kernel.{extend,decode}_attention_cpu`.

SGLang's `intel_amx` backend (layers/attention/intel_amx_backend.py) calls these two. Shapes:
queries [tokens, heads, size], pools [slots, key-value heads, size]; `req_to_token` maps (request
row, position) to a slot. Soft caps, sliding windows, sinks and cross attention are refused.
"""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention


def register() -> None:
    """Make the operators known under the names that SGLang looks up."""
    torch.ops.sgl_kernel.extend_attention_cpu = extend_attention_cpu
    torch.ops.sgl_kernel.decode_attention_cpu = decode_attention_cpu


def extend_attention_cpu(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    key_pool: Tensor,
    value_pool: Tensor,
    key_scale: float,
    value_scale: float,
    req_to_token: Tensor,
    req_pool_indices: Tensor,
    seq_lens: Tensor,
    extend_seq_lens: Tensor,
    extend_start_loc: Tensor,
    max_len_extend: int,
    scaling: float,
    logit_cap: float,
    is_cross_attention: bool,
    sliding_window: int,
    encoder_lens: Tensor | None = None,
    sinks: Tensor | None = None,
    tree_mask: Tensor | None = None,
    is_causal: bool = True,
) -> None:
    """New tokens attend to the prefix and to each other; their keys are already in the pool.

    `seq_lens` counts prefix and new tokens. `tree_mask`, flat bool, says which new token sees
    which, [requests, new, new]; without it, each sees those before it.
    """
    _refuse(logit_cap, sliding_window, is_cross_attention, sinks)
    new_lens = extend_seq_lens.tolist()
    if tree_mask is not None and len(set(new_lens)) > 1:
        raise NotImplementedError("stand-in: a tree mask needs equally many new tokens everywhere")
    if tree_mask is not None and any(new_lens):
        # Requests behind those of the mask are padding, see `decode_attention_cpu`.
        new_lens = new_lens[: tree_mask.numel() // new_lens[0] ** 2]
        output[len(new_lens) * extend_seq_lens[0] :] = 0.0
    if len(set(new_lens)) == 1 and new_lens[0]:
        groups = [slice(0, len(new_lens))]
    else:
        groups = [slice(row, row + 1) for row, count in enumerate(new_lens) if count]
    for group in groups:
        count = new_lens[group.start]
        starts = extend_start_loc[group]
        tokens = (starts[:, None] + torch.arange(count)).flatten()
        totals = seq_lens[group]
        slots, positions = _slots(req_to_token, req_pool_indices[group], int(totals.max()))
        first_new = (totals - count)[:, None, None]
        if tree_mask is not None:
            place = (positions[None, None] - first_new).expand(-1, count, -1)
            among_new = tree_mask.view(-1, count, count).bool()
            visible = among_new.gather(2, place.clamp(0, count - 1))
            visible = (place < 0) | (visible & (place < count))
        elif is_causal:
            visible = positions <= first_new + torch.arange(count)[None, :, None]
        else:
            visible = (positions < totals[:, None, None]).expand(-1, count, -1)
        queries = query[tokens].view(len(totals), count, *query.shape[1:])
        found = _attend(queries, key_pool[slots], value_pool[slots], visible, scaling)
        output[tokens] = found.flatten(0, 1).to(output.dtype)


def decode_attention_cpu(
    query: Tensor,
    key_pool: Tensor,
    value_pool: Tensor,
    key_scale: float,
    value_scale: float,
    output: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    out_cache_loc: Tensor,
    attn_logits: Tensor,
    req_to_token: Tensor,
    req_pool_indices: Tensor,
    seq_lens: Tensor,
    scaling: float,
    logit_cap: float,
    is_cross_attention: bool = False,
    sliding_window: int = 0,
    encoder_lens: Tensor | None = None,
    sinks: Tensor | None = None,
) -> None:
    """One token per request attends to all of its sequence; its key and value are stored first."""
    _refuse(logit_cap, sliding_window, is_cross_attention, sinks)
    if key is not None and value is not None:
        rows = out_cache_loc.long()
        key_pool[rows] = key.view(-1, *key_pool.shape[1:])[: len(rows)].to(key_pool.dtype)
        value_pool[rows] = value.view(-1, *value_pool.shape[1:])[: len(rows)].to(value_pool.dtype)
    # Rows behind those of requests are padding: attention DP brings all ranks to one length.
    output[len(seq_lens) :] = 0.0
    if not len(seq_lens):
        return
    slots, positions = _slots(req_to_token, req_pool_indices, int(seq_lens.max()))
    visible = (positions < seq_lens[:, None])[:, None]
    queries = query[: len(seq_lens), None]
    found = _attend(queries, key_pool[slots], value_pool[slots], visible, scaling)
    output[: len(seq_lens)] = found[:, 0]


def _slots(req_to_token: Tensor, rows: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """Slots [requests, length] of the first positions, and those positions [length]."""
    return req_to_token[rows.long(), :length].long(), torch.arange(length)


def _attend(queries: Tensor, keys: Tensor, values: Tensor, visible: Tensor, scale: float) -> Tensor:
    """Queries [batch, new, heads, size], keys and values [batch, length, heads, size]."""
    found = scaled_dot_product_attention(
        queries.transpose(1, 2).float(),
        keys.transpose(1, 2).float(),
        values.transpose(1, 2).float(),
        attn_mask=visible[:, None],
        scale=scale,
        enable_gqa=True,
    )
    return found.transpose(1, 2)


def _refuse(
    logit_cap: float, sliding_window: int, is_cross_attention: bool, sinks: Tensor | None
) -> None:
    if logit_cap > 0 or sliding_window > 0 or is_cross_attention or sinks is not None:
        raise NotImplementedError(
            "stand-in: no soft cap, sliding window, cross attention or sinks; serve a plain Llama"
        )
