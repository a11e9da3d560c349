"""Server and model that learned state belongs to."""

from __future__ import annotations

import logging
from typing import Any

import msgspec

import adaptive_spec
from adaptive_spec.engines.support import Support

LOG = logging.getLogger("sglang.adaptive_spec")


def identity(scheduler: Any, support: Support) -> dict[str, str] | None:
    """Return names and values for `adaptive_spec.operation`; None if SGLang hides them."""
    try:
        return identity_of(scheduler, support)
    except Exception as error:  # no state is no reason not to steer
        LOG.warning("adaptive_spec: no identity: %s: %s", type(error).__name__, error)
        return None


def identity_of(scheduler: Any, support: Support) -> dict[str, str]:
    """Read SGLang's arguments and device.

    Args:
        scheduler: SGLang's Scheduler, built.
        support: control that this set-up allows.
    """
    import sglang
    from sglang.srt.utils import get_device_name

    arguments = scheduler.server_args
    found = {
        "engine": f"sglang {sglang.__version__}",
        "adaptive_spec": adaptive_spec.__version__,
        "device": get_device_name() or arguments.device,
        "model": arguments.model_path,
        "revision": arguments.revision,
        "dtype": arguments.dtype,
        "quantization": arguments.quantization,
        "method": support.method,
        "drafter": arguments.speculative_draft_model_path,
        "drafter_revision": arguments.speculative_draft_model_revision,
        "topk": arguments.speculative_eagle_topk,
        "graphs": not arguments.disable_cuda_graph,
        "asynchronous": scheduler.enable_overlap,
        "tensor_parallel": arguments.tp_size,
        "pipeline_parallel": arguments.pp_size,
        "data_parallel": arguments.dp_size,
        "capability": msgspec.json.encode(support.capability).decode(),
    }
    return {name: str(value) for name, value in found.items()}
