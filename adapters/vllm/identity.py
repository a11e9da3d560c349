"""What learned acceptance and step times belong to: where any of it differs, they say nothing."""

from __future__ import annotations

from typing import Any

import msgspec

import adaptive_spec
from adaptive_spec.step import Capability


def identity_of(vllm_config: Any, capability: Capability | None) -> dict[str, str]:
    """Names and values, for `adaptive_spec.operation.saved_state`. Read in EngineCore."""
    import vllm
    from vllm.platforms import current_platform

    model, speculation = vllm_config.model_config, vllm_config.speculative_config
    parallel, scheduling = vllm_config.parallel_config, vllm_config.scheduler_config
    drafter = speculation.draft_model_config
    found = {
        "engine": f"vllm {vllm.__version__}",
        "adaptive_spec": adaptive_spec.__version__,
        "device": current_platform.get_device_name(),
        "model": model.model,
        "revision": model.revision,
        "dtype": model.dtype,
        "quantization": model.quantization,
        "method": speculation.method,
        "drafter": getattr(drafter, "model", None),
        "drafter_revision": getattr(drafter, "revision", None),
        "drafts": getattr(speculation, "draft_sample_method", None),
        "model_runner": "V2" if vllm_config.use_v2_model_runner else "V1",
        "graphs": vllm_config.compilation_config.cudagraph_mode,
        "asynchronous": scheduling.async_scheduling,
        "tensor_parallel": parallel.tensor_parallel_size,
        "pipeline_parallel": parallel.pipeline_parallel_size,
        "data_parallel": parallel.data_parallel_size,
        "capability": msgspec.json.encode(capability).decode(),
    }
    return {name: str(value) for name, value in found.items()}
