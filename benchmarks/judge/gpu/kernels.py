"""Do vLLM's compiled parts run on this GPU: one RMS norm and one FlashAttention 3 call.

    python -m benchmarks.judge.gpu.kernels

prints a JSON object: the GPU, CUDA, and the largest errors against float32 in PyTorch.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

SECONDS = 180.0
LARGEST_ERROR = 0.05
"""Of a bf16 result, relative to values of about 1."""


def check() -> dict[str, Any]:
    """Check in a process of its own, so that nothing of CUDA is left behind in this one."""
    command = [sys.executable, "-m", __name__]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        if done.returncode:
            return {"error": done.stderr[-1000:]}
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (subprocess.TimeoutExpired, ValueError, IndexError) as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return found


def largest_errors() -> dict[str, float]:
    """Of vLLM's RMS norm and of FlashAttention 3."""
    import torch
    from vllm import _custom_ops
    from vllm.vllm_flash_attn import flash_attn_varlen_func

    torch.manual_seed(0)
    x = torch.randn(4, 4096, device="cuda", dtype=torch.bfloat16)
    weight, out = torch.ones_like(x[0]), torch.empty_like(x)
    _custom_ops.rms_norm(out, x, weight, 1e-5)
    wanted = torch.nn.functional.rms_norm(x.float(), (4096,), eps=1e-5)
    found = {"rms_norm": (out.float() - wanted).abs().max().item()}
    tokens, heads, size = 64, 8, 128
    q, k, v = (
        torch.randn(tokens, heads, size, device="cuda", dtype=torch.bfloat16) for _ in range(3)
    )
    ends = torch.tensor([0, tokens], device="cuda", dtype=torch.int32)
    attended = flash_attn_varlen_func(
        q,
        k,
        v,
        max_seqlen_q=tokens,
        cu_seqlens_q=ends,
        max_seqlen_k=tokens,
        cu_seqlens_k=ends,
        causal=True,
        fa_version=3,
    )
    heads_first = [each.float().transpose(0, 1) for each in (q, k, v)]
    exact = torch.nn.functional.scaled_dot_product_attention(*heads_first, is_causal=True)
    found["flash_attention_3"] = (attended.float() - exact.transpose(0, 1)).abs().max().item()
    return found


def main() -> int:
    """Print."""
    import torch

    found: dict[str, Any] = {"gpu": torch.cuda.get_device_name(), "cuda": torch.version.cuda}
    found["largest_errors"] = largest_errors()
    found["good"] = max(found["largest_errors"].values()) < LARGEST_ERROR
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
