"""Workers with vLLM's own manager of graphs, its own answers of attention backends, and no GPU."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gpu_graphs import configuration_maker, graphs_of, switched_on


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
    """Configurations, graphs and workers of vLLM as on a GPU, for as long as a test.

    Attributes:
        configure: makes a configuration (see `configuration_maker`).
    """

    def __init__(self, models: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
        self.configure = configuration_maker(models, monkeypatch)
        self._patch = monkeypatch

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
