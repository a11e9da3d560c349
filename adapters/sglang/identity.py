"""Server and model that learned state belongs to."""

from __future__ import annotations

from typing import Any


def identity_of(scheduler: Any) -> dict[str, object]:
    """Return names and values from SGLang's arguments and device.

    Args:
        scheduler: SGLang's Scheduler, built.
    """
    import sglang
    from sglang.srt.utils import get_device_name

    arguments = scheduler.server_args
    return {
        "engine": f"sglang {sglang.__version__}",
        "device": get_device_name() or arguments.device,
        "model": arguments.model_path,
        "revision": arguments.revision,
        "dtype": arguments.dtype,
        "quantization": arguments.quantization,
        "drafter": arguments.speculative_draft_model_path,
        "drafter_revision": arguments.speculative_draft_model_revision,
        "topk": arguments.speculative_eagle_topk,
        "graphs": not arguments.disable_cuda_graph,
        "asynchronous": scheduler.enable_overlap,
        "tensor_parallel": arguments.tp_size,
        "pipeline_parallel": arguments.pp_size,
        "data_parallel": arguments.dp_size,
    }
