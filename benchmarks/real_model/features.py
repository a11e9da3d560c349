"""What an EAGLE-3 head reads of the target: residual streams at some layers, taken as vLLM runs."""

from __future__ import annotations

from typing import Any

import torch

LAYERS = (10, 20, 30)
"""Layers that are behind where a stream is read, as in `eagle_aux_hidden_state_layer_ids`."""


class Recorder:
    """Hooks in the model of an engine in this process. Prefix caching must be off.

    Args:
        engine: `vllm.LLM` with `enforce_eager`.
    """

    def __init__(self, engine: Any) -> None:
        core = engine.llm_engine.engine_core.engine_core
        self._runner = core.model_executor.driver_worker.worker.model_runner
        self._seen: dict[str, list[torch.Tensor]] = {}
        self._streams: list[torch.Tensor] = []
        for layer in LAYERS:
            self._runner.get_model().model.layers[layer - 1].register_forward_hook(self._see)

    def _see(self, module: object, arguments: object, output: tuple[torch.Tensor, ...]) -> None:
        del module, arguments
        self._streams.append((output[0] + output[1]).to(torch.bfloat16))
        if len(self._streams) < len(LAYERS):
            return
        streams = torch.stack(self._streams, dim=1)
        self._streams = []
        requests = self._runner.input_batch.req_ids
        starts = self._runner.query_start_loc.np[: len(requests) + 1].tolist()
        for row, request in enumerate(requests):
            rows = streams[starts[row] : starts[row + 1]].clone()
            self._seen.setdefault(request.partition("-")[0], []).append(rows)

    def take(self, request: str) -> torch.Tensor:
        """Return [tokens - 1, layers, width] of a request that has ended; the last has no pass."""
        return torch.cat(self._seen.pop(request.partition("-")[0]))
