"""Test only: what vLLM 0.32's CPU build lacks for hybrid models at any K, and for LoRA.

Each fix keeps the rule of vLLM's GPU kernel for the same operator; no test compares the two. Their
check is test_families.py: the same tokens with speculation and without.
`stale_state` is no fix: it puts back vLLM's fault before vllm#56531, for a test that must fail.
"""

import importlib
import inspect
import textwrap
from collections.abc import Iterable
from typing import Any

import pytest


def apply(monkeypatch: pytest.MonkeyPatch, names: Iterable[str]) -> None:
    """Apply fixes by name, until the monkeypatch is undone."""
    for name in names:
        _FIXES[name](monkeypatch)


def keep(names: Iterable[str]) -> None:
    """Apply fixes for the rest of this process."""
    apply(pytest.MonkeyPatch(), names)


def mamba_conv(monkeypatch: pytest.MonkeyPatch) -> None:
    """The update of a convolution's history, which the CPU takes from its end.

    vLLM's CPU function ignores how many tokens were accepted. The history of a request starts at
    the last accepted token, and the tokens that run now are appended.
    """
    from vllm.model_executor.layers.mamba import mamba_mixer, mamba_mixer2, short_conv
    from vllm.model_executor.layers.mamba.ops.cpu import causal_conv1d as module

    for place in (mamba_mixer2, mamba_mixer, short_conv, module):
        for name in ("causal_conv1d_update", "causal_conv1d_update_cpu"):
            if hasattr(place, name):
                monkeypatch.setattr(place, name, causal_conv1d_update)


def causal_conv1d_update(
    x: Any,
    conv_state: Any,
    weight: Any,
    bias: Any = None,
    activation: Any = None,
    conv_state_indices: Any = None,
    query_start_loc: Any = None,
    num_accepted_tokens: Any = None,
    null_block_id: int = 0,
    **_: Any,
) -> Any:
    """Convolve ragged rows of tokens, x [tokens, channels], and roll each request's history."""
    import torch
    from torch.nn import functional

    width, out = weight.shape[1], torch.empty_like(x)
    rows = list(range(x.shape[0] + 1)) if query_start_loc is None else query_start_loc.tolist()
    slots = conv_state_indices if conv_state_indices.dim() == 1 else conv_state_indices[:, 0]
    for row, slot in enumerate(slots.tolist()):
        begin, end = rows[row], rows[row + 1]
        if slot == null_block_id or begin == end:
            continue
        first = 0 if num_accepted_tokens is None else int(num_accepted_tokens[row]) - 1
        state = conv_state[slot]
        history = state[:, first : first + width - 1]
        window = torch.cat([history, x[begin:end].T.to(state.dtype)], dim=1)
        made = functional.conv1d(
            window[None].to(weight.dtype), weight[:, None], bias, groups=weight.shape[0]
        )[0]
        state[:, : width - 2 + end - begin] = window[:, 1:].clone()
        if activation in ("silu", "swish", True):
            made = functional.silu(made)
        out[begin:end] = made.T.to(out.dtype)
    return out


def mamba_ssm(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recurrence of Mamba-2, which the CPU runs for one token per request."""
    from vllm.model_executor.layers.mamba.ops.ssu_dispatch import CPUSSUBackend

    monkeypatch.setattr(CPUSSUBackend, "__call__", selective_state_update)


def selective_state_update(
    self: Any,
    state: Any,
    x: Any,
    dt: Any,
    A: Any,  # noqa: N803 (vLLM's names)
    B: Any,  # noqa: N803
    C: Any,  # noqa: N803
    D: Any,  # noqa: N803
    dt_bias: Any,
    z: Any = None,
    dt_softplus: bool = False,
    state_batch_indices: Any = None,
    dst_state_batch_indices: Any = None,
    null_block_id: int = 0,
    out: Any = None,
    num_accepted_tokens: Any = None,
    cu_seqlens: Any = None,
    **_: Any,
) -> None:
    """Run ragged rows of tokens; the state after token t goes to the request's t-th block.

    The next step starts from the block of the last accepted token.
    """
    from torch.nn import functional

    source = _columns(state_batch_indices)
    target = source if dst_state_batch_indices is None else _columns(dst_state_batch_indices)
    rows = list(range(x.shape[0] + 1)) if cu_seqlens is None else cu_seqlens.tolist()
    heads_per_group = x.shape[1] // B.shape[1]
    for row in range(source.shape[0]):
        first = 0 if num_accepted_tokens is None else int(num_accepted_tokens[row]) - 1
        slot = int(source[row, first])
        if slot == null_block_id:
            continue
        hidden = state[slot].float()
        for place, token in enumerate(range(rows[row], rows[row + 1])):
            step = dt[token].float() + (0 if dt_bias is None else dt_bias.float())
            step = functional.softplus(step) if dt_softplus else step
            into = B[token].float().repeat_interleave(heads_per_group, 0)
            read = C[token].float().repeat_interleave(heads_per_group, 0)
            value = x[token].float()
            hidden = hidden * (step[..., None] * A.float()).exp()
            hidden = hidden + (step * value)[..., None] * into[:, None]
            made = (hidden * read[:, None]).sum(-1) + (0 if D is None else D.float() * value)
            if z is not None:
                made = made * functional.silu(z[token].float())
            out[token] = made.to(out.dtype).view_as(out[token])
            if num_accepted_tokens is not None:
                state[int(target[row, place])] = hidden.to(state.dtype)
        if num_accepted_tokens is None:
            state[int(target[row, 0])] = hidden.to(state.dtype)


def gdn_ragged(monkeypatch: pytest.MonkeyPatch) -> None:
    """The convolution before the gated delta rule, which the CPU rolls by 1 + Kmax tokens."""
    from vllm.model_executor.layers.mamba.ops.cpu import gdn_attention as module

    source = inspect.getsource(module._spec_forward)
    begin, last = "            keep = B[:", "            B.copy_(new_B)"
    old = source[source.index(begin) : source.index(last) + len(last)]
    new = """\
            rolled = torch.cat([prior[:, 1:].clone(), x_seq], dim=-1)
            B[:, : width - 2 + q_i].copy_(rolled)"""
    names = dict(vars(module))
    exec(compile(textwrap.dedent(source.replace(old, new)), module.__file__, "exec"), names)
    monkeypatch.setattr(module, "_spec_forward", names["_spec_forward"])


def gdn_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gated delta rule runs in bfloat16 only; the rest of the model stays in float32.

    In bfloat16 two tokens are often equally likely, and which of them wins says nothing.
    """
    import torch
    import vllm._custom_ops as operators
    from vllm.model_executor.layers.mamba.ops.cpu import gdn_attention as module

    # Loads the library for this CPU, before other answers load another one.
    importlib.import_module("vllm.kernels")
    # Its convolution in torch takes any type; the packed one, and AMX's for prompts, do not.
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    core = module.cpu_gdn_attention_core

    def in_bfloat16(mixed_qkv: Any, b: Any, a: Any, core_attn_out: Any, layer_name: Any) -> None:
        out = core_attn_out.to(torch.bfloat16)
        core(*(given.to(torch.bfloat16) for given in (mixed_qkv, b, a)), out, layer_name)
        core_attn_out.copy_(out)

    # An operator is registered once per process; what vLLM finds under its name can change.
    module.register_cpu_gdn_attention_ops()
    monkeypatch.setattr(torch.ops.vllm, "cpu_gdn_attention_core", in_bfloat16)
    for name in (
        "fused_sigmoid_gating_delta_rule_update_cpu",
        "fused_sigmoid_gating_delta_rule_update_spec_cpu",
        "fused_gdn_gating_cpu",
    ):
        monkeypatch.setattr(operators, name, _bias_in_bfloat16(getattr(operators, name)))


def _bias_in_bfloat16(original: Any) -> Any:
    import torch

    def call(*args: Any, **given: Any) -> Any:
        return original(*args, **given | {"dt_bias": given["dt_bias"].to(torch.bfloat16)})

    return call


def mla_uniform(monkeypatch: pytest.MonkeyPatch) -> None:
    """MLA that decodes rows of one length at once, as several backends for GPUs do.

    vLLM's backend for a CPU decodes single tokens and computes all else as parts of prompts.
    """
    from vllm.model_executor.layers.attention.mla_attention import (
        MLACommonMetadataBuilder,
        QueryLenSupport,
    )
    from vllm.v1.attention.backends.mla.cpu_mla import CPUMLABackend, CPUMLAImpl

    class Builder(MLACommonMetadataBuilder[Any]):
        query_len_support = QueryLenSupport.UNIFORM

    monkeypatch.setattr(CPUMLABackend, "get_builder_cls", staticmethod(lambda: Builder))
    monkeypatch.setattr(CPUMLAImpl, "forward_mqa", attend_latents)


def attend_latents(self: Any, q: Any, cache: Any, metadata: Any, layer: Any) -> tuple[Any, None]:
    """Attend from the last tokens of each request, q [tokens, heads, latent], to its latents."""
    import torch

    q = torch.cat(q, -1) if isinstance(q, tuple) else q
    lengths, size = metadata.decode.seq_lens.tolist(), cache.shape[1]
    count = q.shape[0] // len(lengths)
    made = []
    for row, length in enumerate(lengths):
        blocks = metadata.decode.block_table[row, : -(-length // size)].long()
        latents = cache[blocks].flatten(0, 1)[:length]
        weights = q[row * count : (row + 1) * count] @ latents.T * self.scale
        future = torch.ones(count, length, dtype=torch.bool).triu(1 + length - count)
        weights = weights.masked_fill(future[:, None], float("-inf")).softmax(-1)
        made.append(weights @ latents[:, : self.kv_lora_rank])
    return torch.cat(made), None


def lora_of_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens without an adapter, index -1, which the CPU takes as those of the last adapter."""
    from vllm.lora.ops.torch_ops import lora_ops
    from vllm.lora.punica_wrapper import punica_cpu

    def masked(operator: Any) -> Any:
        def run(
            inputs: Any, weights: Any, output: Any, indices: Any, *more: Any, **named: Any
        ) -> None:
            operator(inputs * (indices >= 0)[:, None], weights, output, indices, *more, **named)

        return run

    for name in ("bgmv_expand", "bgmv_expand_slice", "bgmv_shrink"):
        mended = masked(getattr(lora_ops, name))
        monkeypatch.setattr(lora_ops, name, mended)
        monkeypatch.setattr(punica_cpu, name, mended)


def stale_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request without drafts counts as a plain decode again: its state is that of Kmax ago."""
    import torch
    from vllm.v1.attention.backends import gdn_attn, mamba_attn

    def forget(accepted: Any, drafts: Any) -> Any:
        if accepted is None or drafts is None:
            return accepted
        return torch.where(drafts == 0, 1, accepted)

    build = gdn_attn.GDNAttentionMetadataBuilder.build

    def gdn(
        self: Any,
        *args: Any,
        num_accepted_tokens: Any = None,
        num_decode_draft_tokens_cpu: Any = None,
        **given: Any,
    ) -> Any:
        drafts = num_decode_draft_tokens_cpu
        accepted = forget(num_accepted_tokens, drafts)
        return build(
            self, *args, num_accepted_tokens=accepted, num_decode_draft_tokens_cpu=drafts, **given
        )

    monkeypatch.setattr(gdn_attn.GDNAttentionMetadataBuilder, "build", gdn)
    owner = mamba_attn.BaseMambaAttentionMetadataBuilder
    common = owner._compute_common_metadata

    def mamba(
        self: Any,
        metadata: Any,
        *,
        num_accepted_tokens: Any = None,
        num_decode_draft_tokens_cpu: Any = None,
    ) -> Any:
        drafts = num_decode_draft_tokens_cpu
        accepted = forget(num_accepted_tokens, drafts)
        return common(
            self, metadata, num_accepted_tokens=accepted, num_decode_draft_tokens_cpu=drafts
        )

    monkeypatch.setattr(owner, "_compute_common_metadata", mamba)


def _columns(indices: Any) -> Any:
    return indices if indices.dim() == 2 else indices[:, None]


_FIXES = {
    function.__name__: function
    for function in (
        *(mamba_conv, mamba_ssm, gdn_ragged, gdn_float32, mla_uniform),
        *(lora_of_nobody, stale_state),
    )
}
