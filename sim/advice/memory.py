"""Memory of a draft model: its weights and its own KV, counted in KV tokens of the target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from adaptive_spec.bounded_read import read_small_file
from adaptive_spec.errors import DataError

_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


def memory_cost(
    model: Path | None, draft_model: Path, pool_tokens: int | None, mean_context: float
) -> list[str]:
    """Return sentences on what the draft model's memory costs.

    Args:
        model: folder of the target with config.json; None: only bytes are said.
        draft_model: folder of the draft model with config.json and weights.
        pool_tokens: size of the recorded KV pool; None: unknown.
        mean_context: tokens of context per request.

    Raises DataError naming the folder that lacks something.
    """
    weights = sum(path.stat().st_size for path in draft_model.glob("*.safetensors"))
    if not weights:
        raise DataError(f"{draft_model}: no weights in *.safetensors")
    drafter_kv = kv_bytes_per_token(draft_model)
    said = [
        f"draft model: {weights / 2**30:.2f} GiB of weights, {drafter_kv:,} bytes of KV per token"
    ]
    if model is not None:
        target_kv = kv_bytes_per_token(model)
        tokens = weights / target_kv + (pool_tokens or 0) * drafter_kv / target_kv
        requests = tokens / max(mean_context, 1.0)
        said.append(
            f"without it {tokens:,.0f} more KV tokens would fit: about {requests:,.0f} requests "
            f"of {mean_context:,.0f} tokens"
            + ("" if pool_tokens else " (weights only: the trace does not hold the pool's size)")
        )
    return [*said, *_free_vram()]


def kv_bytes_per_token(folder: Path) -> int:
    """Return the KV bytes of a token of a Hugging Face model with plain attention."""
    file = folder / "config.json"
    try:
        config = msgspec.json.decode(read_small_file(file), type=dict[str, Any])
        config = config.get("text_config", config)
        heads = int(config["num_attention_heads"])
        size = int(config.get("head_dim") or config["hidden_size"] // heads)
        kv_heads = int(config.get("num_key_value_heads") or heads)
        kind = str(config.get("dtype") or config.get("torch_dtype"))
        return 2 * int(config["num_hidden_layers"]) * kv_heads * size * _BYTES.get(kind, 2)
    except OSError as error:
        raise DataError(f"{file}: {error.strerror}") from error
    except (msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{file}: no size of a KV token in it: {error!r}") from error


def _free_vram() -> list[str]:
    """Return the free memory of each GPU by NVML; nothing without NVML or a GPU."""
    try:
        import pynvml

        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        free = [pynvml.nvmlDeviceGetMemoryInfo(handle).free / 2**30 for handle in handles]
    except Exception:  # not installed, or no driver: the rest of the advice stands
        return []
    return [f"free now by NVML: {', '.join(f'{each:.1f}' for each in free)} GiB"] if free else []
