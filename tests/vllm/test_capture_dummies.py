"""vLLM's dummy batches fit every graph that our ladder or varlen graphs make vLLM capture.

vllm#48494, vllm#53929: a table of K beside a drafter whose decode loop takes one token per request
made the capture of full graphs fail. vLLM's own managers list the graphs here, and its own
`prepare_inputs_to_capture` makes the dummy batch of each. Nothing is captured.
"""

import importlib
import importlib.util
import inspect
from types import SimpleNamespace
from typing import Any

import pytest
from gpu import Gpu, switched_on

from adaptive_spec.adapters.vllm import graph_ladder
from adaptive_spec.adapters.vllm.capability import MISSING
from adaptive_spec.adapters.vllm.facts import BASE, LADDER, SOURCE

pytestmark = [pytest.mark.engine, pytest.mark.every_version]

SHAPES = [(4, 64), (1, 20), (2, 100), (5, 256), (6, 50), (8, 33), (16, 48), (3, 3), (7, 1)]
"""(Kmax, requests)."""


class Dummies:
    """Takes the place of the model: keeps the dummy batch of each graph."""

    def __init__(self, config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        import torch
        from vllm.v1.worker.gpu import cudagraph_utils
        from vllm.v1.worker.gpu.input_batch import InputBuffers

        def prepare_each(manager: Any, create_forward_fn: Any, *_: Any) -> None:
            for desc in listed(manager):
                before = len(self.batches)
                create_forward_fn(desc, warmup=False)(desc.cg_mode)
                assert len(self.batches) == before + 1

        monkeypatch.setattr(cudagraph_utils.CudaGraphManager, "capture", prepare_each)
        monkeypatch.setattr(cudagraph_utils, "build_slot_mappings_by_layer", lambda *_: {})
        self.batches: list[Any] = []
        self.steps: set[int] = set()
        most = config.scheduler_config.max_num_seqs
        tokens = config.compilation_config.max_cudagraph_capture_size
        nothing = SimpleNamespace(
            **dict(cp_size=1, cp_rank=0, cp_interleave=1),
            get_dummy_block_tables=lambda _: None,
            get_dummy_slot_mappings=lambda _: None,
        )
        buffers = InputBuffers(most, tokens, torch.device("cpu"))
        self._arguments = (self, buffers, nothing, [], None)

    def capture(self, manager: Any, **options: Any) -> None:
        manager.capture(self._forward, *self._arguments, **options)

    def prepare_attn(self, batch: Any, *_: Any, **__: Any) -> None:
        self.batches.append(batch)

    def _forward(self, *_: Any, num_speculative_steps: int = 0) -> None:
        self.steps.add(num_speculative_steps)


@pytest.mark.parametrize("varlen", [False, True], ids=["ladder", "varlen"])
@pytest.mark.parametrize(("kmax", "requests"), SHAPES)
def test_dummy_batches_fit_the_graphs_of_target_and_mtp_drafter(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch, kmax: int, requests: int, varlen: bool
) -> None:
    drafters_manager = manager_of_drafters()
    loops_by_k = "specialize_spec_tokens" in inspect.signature(drafters_manager.capture).parameters
    config = gpu.configure("mtp", kmax=kmax, max_num_seqs=requests)
    missing = SOURCE.require([BASE], SOURCE.installed_folder()).missing
    setattr(config.scheduler_config, MISSING, missing)
    switched_on(config)
    ladder = graph_ladder.captured(config)
    assert LADDER in missing or loops_by_k
    as_target: dict[str, Any] = {"kind": drafters_manager, "varlen_decode": varlen}
    as_drafter: dict[str, Any] = {"kind": drafters_manager}
    graphs = [gpu.graphs_of(config, **as_target), gpu.graphs_of(config, **as_drafter)]
    if kmax > 1:  # vLLM has no decode loop otherwise
        one_token = dict(mode="FULL_DECODE_ONLY", decode_query_len=1)
        graphs.append(gpu.graphs_of(config, **as_drafter, **one_token))
    for place, manager in enumerate(graphs):
        dummies = Dummies(config, monkeypatch)
        loop = place == 2
        scheduled = config.speculative_config.uses_dynamic_speculative_decoding()
        options = {"specialize_spec_tokens": loop and scheduled} if loops_by_k else {}
        dummies.capture(manager, **options)
        kinds = [desc.cg_mode.name for desc in listed(manager)]
        assert "FULL" in kinds
        for kind, batch in zip(kinds, dummies.batches, strict=True):
            assert batch.num_scheduled_tokens.min() >= 1
            assert batch.num_reqs <= requests
            if kind == "FULL":
                assert batch.num_scheduled_tokens.max() <= (1 if loop else 1 + kmax)
        if loop and loops_by_k and ladder is not None:
            assert dummies.steps == set(ladder.values) - {0, 1}


def manager_of_drafters() -> Any:
    """vLLM's manager of a drafter's graphs; vLLM 0.32 has renamed its folder."""
    for folder in ("target_dependent_ar", "autoregressive"):
        name = f"vllm.v1.worker.gpu.spec_decode.{folder}.cudagraph_utils"
        if importlib.util.find_spec(name.rpartition(".")[0]) is not None:
            return importlib.import_module(name).SpeculatorCudaGraphManager
    raise AssertionError("this vLLM has no manager of a drafter's graphs")


def listed(manager: Any) -> list[Any]:
    return [desc for descs in manager._capture_descs.values() for desc in descs]
