"""vLLM as on a GPU: its configurations, its own manager of graphs, and workers that have them.

Nothing is captured here: the manager lists graphs, and chooses one for a batch as if all that it
lists had been captured. Attention backends answer as vLLM's own.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from adaptive_spec.config import Config

ON_GPU = "FULL_AND_PIECEWISE"


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


class Workers:
    """An executor: calls a function with every worker, as `collective_rpc` does.

    Args:
        config: vLLM's.
        backends: attention backend classes of the target, one for each group of layers.
        monkeypatch: replaces what vLLM looks up about ranks and devices.
        draft_backends: of the drafter's layers.
        ranks: how many workers.
        features: attributes of the model runner that differ from a plain one's.
    """

    def __init__(
        self,
        config: Any,
        backends: Sequence[Any],
        monkeypatch: pytest.MonkeyPatch,
        *,
        draft_backends: Sequence[Any] = (),
        ranks: int = 1,
        **features: Any,
    ) -> None:
        from vllm.distributed import parallel_state

        alone = SimpleNamespace(world_size=1)
        monkeypatch.setattr(parallel_state, "get_world_group", lambda: alone)
        self.runners = [
            _runner(config, [*backends], [*draft_backends], monkeypatch, features)
            for _ in range(ranks)
        ]
        self.planted: dict[str, Callable[[Any], Any]] = {}
        """What a function answers instead, by its name."""

    def collective_rpc(self, method: Callable[..., Any], timeout: float | None = None) -> list[Any]:
        answer = self.planted.get(method.__name__, method)
        return [answer(SimpleNamespace(model_runner=runner)) for runner in self.runners]

    def start(self) -> None:
        """Initialise the KV cache and capture, as every worker does."""
        for runner in self.runners:
            runner.initialize_kv_cache(runner.kv_cache_config)
            runner.cudagraph_manager._graphs_captured = True


def _runner(
    config: Any,
    backends: list[Any],
    draft_backends: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    features: dict[str, Any],
) -> Any:
    from vllm.v1.attention.backend import AttentionCGSupport

    from adaptive_spec.adapters.vllm import varlen_capture

    spec = attention_spec(config)
    layers = [(f"target.{place}", backend) for place, backend in enumerate(backends)]
    drafts = [(f"draft.{place}", backend) for place, backend in enumerate(draft_backends)]
    group = SimpleNamespace(
        layer_names=[name for name, _ in (*layers, *drafts)], kv_cache_spec=spec
    )
    context = config.compilation_config.static_forward_context
    for name, backend in (*layers, *drafts):
        context[name] = attention_layer(backend)
    runner = SimpleNamespace(
        adaptive_verification=None,
        attn_groups=[],
        cudagraph_manager=None,
        decode_query_len=1 + config.num_speculative_tokens,
        kv_cache_config=SimpleNamespace(kv_cache_groups=[group]),
        max_num_reqs=config.scheduler_config.max_num_seqs,
        model=object(),
        model_state=SimpleNamespace(
            get_additional_cg_support=lambda: (AttentionCGSupport.ALWAYS, None)
        ),
        pcp_manager=None,
        speculator=SimpleNamespace(draft_attn_layer_names={name for name, _ in drafts}),
        ubatch_runner=None,
        vllm_config=config,
    )
    vars(runner).update(features)

    def initialize_kv_cache(kv_cache_config: Any) -> None:
        made = (
            varlen_capture.stand_in(backend, spec, name) for name, backend in (*layers, *drafts)
        )
        runner.attn_groups = [list(made)]
        runner.cudagraph_manager = graphs_of(config, monkeypatch)
        runner.cudagraph_manager._graphs_captured = False

    runner.initialize_kv_cache = initialize_kv_cache
    return runner


def attention_spec(config: Any) -> Any:
    from vllm.v1.kv_cache_interface import FullAttentionSpec

    model, parallel = config.model_config, config.parallel_config
    return FullAttentionSpec(
        block_size=16,
        num_kv_heads=model.get_num_kv_heads(parallel),
        head_size=model.get_head_size(),
        dtype=model.dtype,
    )


def attention_layer(backend: Any) -> Any:
    """A layer as far as it is asked for its backend."""
    from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase

    class Layer(AttentionLayerBase):
        def get_attn_backend(self) -> Any:
            return backend

        def get_kv_cache_spec(self, vllm_config: Any) -> Any:
            return None

    return Layer()


def backend_of(level: str, *, bound: int | None = None, with_adaptive: bool = False) -> Any:
    """An attention backend class whose graphs have this level of support.

    Args:
        level: name of vLLM's `AttentionCGSupport`.
        bound: most tokens per request of batches with different lengths that it can replay.
        with_adaptive: the bound holds only while `enable_adaptive_verification` is set, as
            FlashInfer has it on Blackwell.
    """
    from vllm.v1.attention.backend import AttentionCGSupport, AttentionMetadataBuilder

    class Builder(AttentionMetadataBuilder[Any]):
        _cudagraph_support = AttentionCGSupport[level]

        @classmethod
        def get_varlen_cudagraph_max_query_len(cls, vllm_config: Any, spec: Any) -> int | None:
            lacks = (
                with_adaptive and not vllm_config.speculative_config.enable_adaptive_verification
            )
            return None if lacks else bound

    name = f"{level.title().replace('_', '')}Backend"
    return type(name, (), {"get_builder_cls": staticmethod(lambda: Builder)})


class Gpu:
    """Configurations, graphs and workers of vLLM as on a GPU, for as long as a test."""

    def __init__(self, models: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
        self._models, self._patch = models, monkeypatch

    def configure(
        self,
        method: str = "eagle",
        *,
        runner: str = "V2",
        graphs: str = ON_GPU,
        ranks: int = 1,
        schedule: list[tuple[int, int, int]] | None = None,
        kmax: int = 4,
        **options: Any,
    ) -> Any:
        """Return a configuration as vLLM resolves it on a GPU."""
        from engines import prepare_environment, speculative_config

        prepare_environment()
        from vllm.config import VllmConfig
        from vllm.engine.arg_utils import EngineArgs

        speculation = speculative_config(self._models, method) | {"num_speculative_tokens": kmax}
        if schedule is not None:
            speculation["num_speculative_tokens_per_batch_size"] = schedule
        arguments = EngineArgs(
            # The head of an MTP drafter is in the target's folder.
            model=str(self._models["mtp" if method == "mtp" else "target"]),
            max_model_len=256,
            speculative_config=speculation,
            **({"max_num_seqs": 64} | options),
        )
        self._patch.undo()  # without Triton vLLM refuses V2 here; what is tested comes after
        config = arguments.create_engine_config()
        self._patch.setattr(VllmConfig, "use_v2_model_runner", property(lambda _: runner == "V2"))
        compilation = config.compilation_config
        compilation.cudagraph_mode = graph_mode(graphs)
        # None: vLLM chooses the sizes, as it does before a CPU platform has turned graphs off.
        compilation.cudagraph_capture_sizes = compilation.max_cudagraph_capture_size = None
        config.model_config.enforce_eager = False
        config._set_cudagraph_sizes()
        config.parallel_config.data_parallel_size = ranks
        return config

    def graphs_of(self, config: Any, **options: Any) -> Any:
        """vLLM's own manager of graphs."""
        return graphs_of(config, self._patch, **options)

    def expect(self, backend: Any = "ALWAYS") -> None:
        """Have vLLM choose this backend for attention; a text: one of that level of support."""
        from adaptive_spec.adapters.vllm import varlen_graphs

        chosen = backend_of(backend) if isinstance(backend, str) else backend
        self._patch.setattr(
            varlen_graphs, "_chosen_backends", lambda config: [(chosen, attention_spec(config))]
        )

    def configured(self, *method: str, backend: Any = "ALWAYS", **options: Any) -> Any:
        """A configuration that is switched on, where vLLM would choose this backend."""
        config = self.configure(*method, **options)
        self.expect(backend)
        switched_on(config)
        return config

    def workers(self, config: Any, *backends: Any, **options: Any) -> Workers:
        """Workers whose target has these backends; without any, one that can run all graphs."""
        return Workers(config, backends or [backend_of("ALWAYS")], self._patch, **options)

    def start(self, config: Any, workers: Workers) -> Any:
        """Let EngineCore start its workers, and return what the adapter finds afterwards."""
        from vllm.v1.engine.core import EngineCore

        from adaptive_spec.adapters.vllm import varlen_graphs
        from adaptive_spec.adapters.vllm.capability import detect

        varlen_graphs.uninstall()
        self._patch.setattr(EngineCore, "_initialize_kv_caches", lambda self, _: workers.start())
        varlen_graphs.install()
        core: Any = SimpleNamespace(model_executor=workers)
        EngineCore._initialize_kv_caches(core, config)
        return detect(config)

    def started(
        self, backend: Any = None, planted: dict[str, Any] | None = None, **options: Any
    ) -> tuple[Any, Any, Workers]:
        """Configuration, support and workers of an engine that was switched on and has started."""
        backend = backend or backend_of("ALWAYS")
        config = self.configured(backend=backend, **options)
        workers = self.workers(config, backend)
        workers.planted.update(planted or {})
        return config, self.start(config, workers), workers
