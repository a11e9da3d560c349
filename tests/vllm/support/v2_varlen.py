"""Model runner V2 as on a GPU with varlen graphs: vLLM's own dispatch, padding and inputs.

Everything runs as it would there but the replay: a step that vLLM dispatches to a full graph runs
the model eagerly on the padded inputs and attention metadata that the graph would have read.
Runs in the process of `v2_engines`, or as a plugin in every process of a server.
"""

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

SIZES = [1, 2, 4, 8, 16]
"""Captured token counts."""

DISPATCHED: Counter[str] = Counter()
"""Steps by the kind of graph they ran in, and whether the K of their requests differed."""

COUNTS = "V2_VARLEN_COUNTS"
"""Variable with the folder for the counts of a server's workers."""


def counts_of(folder: Path) -> list[dict[str, int]]:
    """What each worker of a server has dispatched."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("counts-*.json"))]


def plant(backend_level: str = "ALWAYS") -> None:
    """From the next engine on, give the runner graphs as on a GPU.

    Args:
        backend_level: what the attention backend says of its graphs.
    """
    from types import SimpleNamespace

    from vllm.v1.attention.backend import AttentionCGSupport
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionMetadataBuilder
    from vllm.v1.worker.cpu_worker import CPUWorker
    from vllm.v1.worker.gpu import cudagraph_utils, model_runner

    from adaptive_spec.adapters.vllm import graph_ladder, varlen_graphs

    CPUAttentionMetadataBuilder._cudagraph_support = AttentionCGSupport[backend_level]
    DISPATCHED.clear()
    if hasattr(model_runner, "_planted"):
        return
    model_runner._planted = True
    pool = SimpleNamespace(get_global_graph_pool=lambda: None)
    cudagraph_utils.current_platform = pool
    model_runner.ModelCudaGraphManager = _manager_class()
    warm_up = CPUWorker.compile_or_warm_up_model

    def compile_or_warm_up_model(self: Any) -> Any:
        done = warm_up(self)
        manager = self.model_runner.cudagraph_manager
        manager.runner = self.model_runner
        _remember_inputs(self.model_runner)
        manager._graphs_captured = True
        return done

    CPUWorker.compile_or_warm_up_model = compile_or_warm_up_model
    varlen_graphs.has_full_decode_graphs = lambda _: True
    varlen_graphs.expected_refusal = lambda _: ""
    graph_ladder.can_capture = lambda _: True
    cover = varlen_graphs.cover_every_batch

    def with_sizes(vllm_config: Any) -> None:
        compilation = vllm_config.compilation_config
        compilation.cudagraph_capture_sizes = list(SIZES)
        compilation.max_cudagraph_capture_size = 32
        cover(vllm_config)

    varlen_graphs.cover_every_batch = with_sizes


def sizes_of(config: Any) -> list[int]:
    """The captured sizes, with one for the largest batch."""
    most = config.scheduler_config.max_num_seqs * (1 + config.num_speculative_tokens)
    return sorted({*SIZES, most})


def dispatched() -> dict[str, int]:
    return dict(DISPATCHED)


def _manager_class() -> Any:
    from vllm.config import CUDAGraphMode
    from vllm.v1.worker.gpu.cudagraph_utils import ModelCudaGraphManager

    class Manager(ModelCudaGraphManager):
        runner: Any = None

        def __init__(self, config: Any, device: Any, _: Any, *args: Any, **kwargs: Any) -> None:
            # vLLM copies a configuration for a draft model, and on a CPU that empties its sizes.
            config.compilation_config.cudagraph_capture_sizes = sizes_of(config)
            super().__init__(config, device, CUDAGraphMode.FULL_AND_PIECEWISE, *args, **kwargs)

        def dispatch(
            self, num_reqs: int, num_tokens: int, uniform: Any, *args: Any, **kw: Any
        ) -> Any:
            found = super().dispatch(num_reqs, num_tokens, uniform, *args, **kw)
            if self.runner is not None and self.runner.counts_graphs:
                prompts = kw.get("max_query_len") is None
                kind = "prompts" if prompts else "equal" if uniform else "mixed"
                DISPATCHED[f"{found.cg_mode.name} {kind}"] += 1
                DISPATCHED["padding"] += found.num_tokens - num_tokens
                if folder := os.environ.get(COUNTS):
                    Path(folder, f"counts-{os.getpid()}.json").write_text(json.dumps(DISPATCHED))
            return found

        def run_fullgraph(self, desc: Any) -> Any:
            return _run_eagerly(self.runner)

    return Manager


def _remember_inputs(runner: Any) -> None:
    """Keep what the step's graph would read."""
    state = runner.model_state
    prepare_attn, prepare_inputs = state.prepare_attn, state.prepare_inputs
    runner.counts_graphs = False
    execute = runner.execute_model

    def attn(
        input_batch: Any, mode: Any, tables: Any, slots: Any, groups: Any, kv: Any, **kw: Any
    ) -> Any:
        runner.last_attn = prepare_attn(input_batch, mode, tables, slots, groups, kv, **kw)
        runner.last_batch, runner.last_slots = input_batch, (slots, kv)
        return runner.last_attn

    def inputs(input_batch: Any, req_states: Any) -> Any:
        runner.last_inputs = prepare_inputs(input_batch, req_states)
        return runner.last_inputs

    def execute_model(*args: Any, **kwargs: Any) -> Any:
        runner.counts_graphs = True
        try:
            return execute(*args, **kwargs)
        finally:
            runner.counts_graphs = False

    state.prepare_attn, state.prepare_inputs = attn, inputs
    runner.execute_model = execute_model


def _run_eagerly(runner: Any) -> Any:
    from vllm.forward_context import BatchDescriptor, set_forward_context
    from vllm.v1.worker.gpu.attn_utils import build_slot_mappings_by_layer

    batch = runner.last_batch
    tokens = batch.num_tokens_after_padding
    with set_forward_context(
        runner.last_attn,
        runner.vllm_config,
        num_tokens=tokens,
        batch_descriptor=BatchDescriptor(num_tokens=tokens),
        slot_mapping=build_slot_mappings_by_layer(*runner.last_slots),
        is_padding=batch.is_padding,
    ):
        own = {"inputs_embeds": None, "intermediate_tensors": None}
        return runner.model(
            input_ids=batch.input_ids, positions=batch.positions, **own | runner.last_inputs
        )
