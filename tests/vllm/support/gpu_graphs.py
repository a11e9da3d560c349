"""Configurations of vLLM as it resolves them on a GPU, and its own manager of graphs.

Nothing is captured here: the manager lists graphs, and chooses one for a batch as if all that it
lists had been captured.
"""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from adaptive_spec.config import Config

ON_GPU = "FULL_AND_PIECEWISE"
Configure = Callable[..., Any]


def configuration_maker(models: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> Configure:
    """Makes a configuration as vLLM resolves it on a GPU: model runner V2, graphs on."""

    def make(
        method: str = "eagle",
        *,
        runner: str = "V2",
        graphs: str = ON_GPU,
        ranks: int = 1,
        schedule: list[tuple[int, int, int]] | None = None,
        kmax: int = 4,
        **options: Any,
    ) -> Any:
        from engines import prepare_environment, speculative_config

        prepare_environment()
        from vllm.config import VllmConfig
        from vllm.engine.arg_utils import EngineArgs

        speculation = speculative_config(models, method) | {"num_speculative_tokens": kmax}
        if schedule is not None:
            speculation["num_speculative_tokens_per_batch_size"] = schedule
        arguments = EngineArgs(
            # The head of an MTP drafter is in the target's folder.
            model=str(models["mtp" if method == "mtp" else "target"]),
            max_model_len=256,
            speculative_config=speculation,
            **({"max_num_seqs": 64} | options),
        )
        monkeypatch.undo()  # without Triton vLLM refuses V2 here; what is tested comes after
        config = arguments.create_engine_config()
        monkeypatch.setattr(VllmConfig, "use_v2_model_runner", property(lambda _: runner == "V2"))
        compilation = config.compilation_config
        compilation.cudagraph_mode = graph_mode(graphs)
        # None: vLLM chooses the sizes, as it does before a CPU platform has turned graphs off.
        compilation.cudagraph_capture_sizes = compilation.max_cudagraph_capture_size = None
        config.model_config.enforce_eager = False
        config._set_cudagraph_sizes()
        config.parallel_config.data_parallel_size = ranks
        return config

    return make


def switched_on(config: Any, **settings: Any) -> Any:
    from adaptive_spec.adapters.vllm.capability import detect
    from adaptive_spec.adapters.vllm.gate import switch_on

    settings = {"policy": "static", **settings}
    switch_on(config, Config(**settings))
    return detect(config)


def graphs_of(
    config: Any,
    monkeypatch: pytest.MonkeyPatch,
    *,
    kind: Any = None,
    mode: str = "",
    decode_query_len: int | None = None,
    **options: Any,
) -> Any:
    """vLLM's own manager of graphs, as if all it lists had been captured.

    Args:
        config: vLLM's.
        monkeypatch: undoes what lets it be built without a GPU.
        kind: its class; the target's without one.
        mode: of its graphs; the configuration's without one.
        decode_query_len: most tokens of a request in its decode graphs; 1 + Kmax without one.
        options: its own.
    """
    import torch
    from vllm.v1.worker.gpu import cudagraph_utils

    first_and_last = SimpleNamespace(is_first_rank=True, is_last_rank=True)
    monkeypatch.setattr(cudagraph_utils, "get_pp_group", lambda: first_and_last)
    pool = SimpleNamespace(get_global_graph_pool=lambda: None)
    monkeypatch.setattr(cudagraph_utils, "current_platform", pool)
    manager = (kind or cudagraph_utils.CudaGraphManager)(
        config,
        torch.device("cpu"),
        graph_mode(mode) if mode else config.compilation_config.cudagraph_mode,
        decode_query_len or 1 + int(config.num_speculative_tokens),
        **options,
    )
    manager._graphs_captured = True
    return manager


def graph_mode(name: str) -> Any:
    from vllm.config import CUDAGraphMode

    return CUDAGraphMode[name]


def graph_for(manager: Any, batch: int, k: int) -> str:
    """Name of the kind of graph that a batch with K drafts each runs in."""
    found = manager.dispatch(batch, batch * (1 + k), 1 + k, 0)
    return str(found.cg_mode.name)
