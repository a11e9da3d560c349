"""K per request in full graphs, as far as it can run without a GPU.

vLLM's own manager lists the graphs and chooses one for each batch, vLLM's own function answers for
attention backends, and the hook of EngineCore asks the workers. No graph is captured here.
"""

from __future__ import annotations

import pickle
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gpu_graphs import Configure, configuration_maker, graph_mode, graphs_of, switched_on
from varlen_workers import Workers, attention_spec, backend_of, start_engine

from adaptive_spec.adapters.vllm import graph_ladder, varlen_capture, varlen_graphs
from adaptive_spec.adapters.vllm.varlen_graphs import Asked, Varlen
from adaptive_spec.step import Level

pytestmark = pytest.mark.engine

SHAPES = [(4, 64), (1, 20), (2, 100), (5, 256), (6, 50), (8, 33), (16, 48), (3, 3), (7, 1)]
"""(Kmax, requests): those of `test_graph_ladder`, and very few requests."""


@pytest.fixture
def configure(models: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> Configure:
    return configuration_maker(models, monkeypatch)


def expect(monkeypatch: pytest.MonkeyPatch, backend: Any) -> None:
    """Have vLLM choose this backend for attention."""
    monkeypatch.setattr(
        varlen_graphs, "_chosen_backends", lambda config: [(backend, attention_spec(config))]
    )


def started(
    configure: Configure,
    monkeypatch: pytest.MonkeyPatch,
    backend: Any = None,
    planted: dict[str, Any] | None = None,
    **options: Any,
) -> tuple[Any, Any, Workers]:
    """Configuration, support and workers of an engine that was switched on and has started."""
    config = configure(**options)
    backend = backend or backend_of("ALWAYS")
    expect(monkeypatch, backend)
    switched_on(config)
    workers = Workers(config, [backend], monkeypatch)
    workers.planted.update(planted or {})
    return config, start_engine(config, workers, monkeypatch), workers


class TestDecodeBatches:
    @pytest.mark.parametrize(("kmax", "requests"), SHAPES)
    def test_every_batch_of_any_k_has_a_full_graph(
        self, configure: Configure, monkeypatch: pytest.MonkeyPatch, kmax: int, requests: int
    ) -> None:
        config, support, workers = started(configure, monkeypatch, kmax=kmax, max_num_seqs=requests)
        manager = workers.runners[0].cudagraph_manager
        plain = graphs_of(config, monkeypatch)
        most = requests * (1 + kmax)
        largest = min(config.compilation_config.max_cudagraph_capture_size, most)
        # One request at most: no ladder of K by batch size, and the depth is fixed.
        assert support.capability.level is (Level.FULL if requests > 1 else Level.VERIFY)
        draw = random.Random(1)
        in_full = {"varlen": 0, "plain": 0}
        batches = 0
        while batches < 2000:
            lengths = [1 + draw.randint(0, kmax) for _ in range(draw.randint(1, requests))]
            if sum(lengths) > largest:
                continue
            batches += 1
            equal = lengths[0] if len(set(lengths)) == 1 else None
            for name, graphs in (("varlen", manager), ("plain", plain)):
                found = graphs.dispatch(
                    len(lengths), sum(lengths), equal, 0, max_query_len=max(lengths)
                )
                in_full[name] += found.cg_mode.name == "FULL"
                if name == "varlen":
                    assert found.num_reqs >= len(lengths)
                    assert found.num_tokens in support.capability.token_buckets
        assert in_full["varlen"] == batches
        assert requests == 1 or in_full["plain"] < batches / 2
        for k in range(kmax + 1):
            for batch in range(1, requests + 1):
                tokens = batch * (1 + k)
                found = manager.dispatch(batch, tokens, 1 + k, 0, max_query_len=1 + k)
                assert (found.cg_mode.name == "FULL") == (tokens <= largest), (batch, k)

    def test_a_batch_with_a_prompt_never_runs_in_such_a_graph(
        self, configure: Configure, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _, _, workers = started(configure, monkeypatch)
        manager = workers.runners[0].cudagraph_manager
        for tokens in range(1, 320):
            # vLLM's runner passes no longest length for a batch that has a prompt.
            found = manager.dispatch(min(tokens, 64), tokens, None, 0, max_query_len=None)
            assert found.cg_mode.name != "FULL"

    def test_the_start_line_names_graph_mode_and_number(
        self, configure: Configure, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """vllm#56626: adaptive verification changed the graph mode, and nothing said so."""
        _, found, workers = started(configure, monkeypatch, kmax=3)
        full = workers.runners[0].cudagraph_manager._capture_descs[graph_mode("FULL")]
        assert found.graphs == f"FULL_AND_PIECEWISE:{len(full)}"
        config = configure(kmax=3, schedule=None)
        monkeypatch.setattr(varlen_graphs, "expected_refusal", lambda _: "a backend")
        found = switched_on(config)
        listed = graphs_of(config, monkeypatch)._capture_descs[graph_mode("FULL")]
        assert found.graphs == f"FULL_AND_PIECEWISE:{len(listed)}"

    def test_a_longer_request_never_runs_in_such_a_graph(
        self, configure: Configure, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _, _, workers = started(configure, monkeypatch, kmax=4)
        manager = workers.runners[0].cudagraph_manager
        assert manager.dispatch(3, 8, None, 0, max_query_len=5).cg_mode.name == "FULL"
        assert manager.dispatch(3, 8, None, 0, max_query_len=6).cg_mode.name != "FULL"

    def test_graphs_are_about_as_many_as_vllms_own(
        self, configure: Configure, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        plain = graphs_of(configure(kmax=3), monkeypatch)
        _, _, workers = started(configure, monkeypatch, kmax=3)
        manager = workers.runners[0].cudagraph_manager
        full = graph_mode("FULL")
        assert len(manager._capture_descs[full]) <= len(plain._capture_descs[full]) + 5


class TestDataParallelism:
    """vLLM's own agreement between two ranks, each with its own manager of varlen graphs."""

    def agreed(
        self, managers: list[Any], batches: list[list[int]], prompts: bool = False
    ) -> list[Any]:
        """What each rank runs; all_reduce adds up what the ranks have put in."""
        from vllm.v1.worker.gpu import dp_utils

        put_in: list[Any] = []
        found = []
        for collecting in (True, False):
            for rank, (manager, lengths) in enumerate(zip(managers, batches, strict=True)):

                def all_reduce(tensor: Any, group: Any, collecting: bool = collecting) -> None:
                    if collecting:
                        put_in.append(tensor.clone())
                    else:
                        tensor.copy_(sum(put_in))

                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(dp_utils.dist, "all_reduce", all_reduce)
                    patch.setattr(dp_utils, "get_dp_group", lambda: SimpleNamespace(cpu_group=None))
                    patch.setattr(dp_utils, "should_skip_dp_coordination", lambda: False)
                    desc, _ = dp_utils.dispatch_cg_and_sync_dp(
                        manager,
                        len(lengths),
                        sum(lengths),
                        lengths[0] if len(set(lengths)) == 1 else None,
                        2,
                        rank,
                        max_query_len=None if prompts and rank else max(lengths),
                    )
                if not collecting:
                    found.append(desc)
        return found

    def managers(self, configure: Configure, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
        config = configure(kmax=4)
        return [graphs_of(config, monkeypatch, varlen_decode=True) for _ in range(2)]

    def test_ranks_with_different_k_run_one_size_in_full_graphs(
        self, configure: Configure, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        managers = self.managers(configure, monkeypatch)
        draw = random.Random(3)
        for _ in range(200):
            batches = [[draw.randint(1, 5) for _ in range(draw.randint(1, 64))] for _ in range(2)]
            one, other = self.agreed(managers, batches)
            assert one.cg_mode.name == other.cg_mode.name == "FULL"
            assert one.num_tokens == other.num_tokens >= max(map(sum, batches))
            assert one.num_reqs >= max(map(len, batches))

    def test_a_prompt_on_one_rank_keeps_both_out_of_such_graphs(
        self, configure: Configure, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        managers = self.managers(configure, monkeypatch)
        one, other = self.agreed(managers, [[1, 4, 2], [3, 3, 5]], prompts=True)
        assert one.cg_mode.name == other.cg_mode.name == "PIECEWISE"
        assert one.num_tokens == other.num_tokens


def backends_of_vllm() -> dict[str, Any]:
    """Every attention backend of vLLM that can be imported here."""
    from vllm.v1.attention.backends.registry import AttentionBackendEnum, MambaAttentionBackendEnum

    found = {}
    for kinds in (AttentionBackendEnum, MambaAttentionBackendEnum):
        for kind in kinds:
            try:
                backend = kind.get_class()
                backend.get_builder_cls()
            except Exception:  # its kernels are missing
                continue
            found[kind.name] = backend
    return found


class TestBackends:
    def test_each_gets_varlen_graphs_only_if_it_can_replay_them(
        self, configure: Configure, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """By the level that a backend's builder states itself, not by vLLM's function."""
        levels = set()
        backends = backends_of_vllm()
        config = configure()
        for name, backend in backends.items():
            workers = Workers(config, [backend], monkeypatch)
            builder = backend.get_builder_cls()
            spec = workers.runners[0].kv_cache_config.kv_cache_groups[0].kv_cache_spec
            level = builder.get_cudagraph_support(config, spec).name
            bound = builder.get_varlen_cudagraph_max_query_len(config, spec)
            can = level == "ALWAYS" or (level != "NEVER" and bound is not None and bound >= 5)
            levels.add((level, can))
            workers.collective_rpc(varlen_capture.arm)
            workers.start()
            found = varlen_graphs.verdict(workers.collective_rpc(varlen_capture.report), config)
            assert (found.refusal == "") == can, (name, found)
            assert can or found.refusal == f"attention backend {backend.__name__}"
            assert workers.runners[0].cudagraph_manager.varlen_decode == can
        assert len(backends) > 25
        assert levels >= {
            ("ALWAYS", True),
            ("UNIFORM_BATCH", True),
            ("UNIFORM_BATCH", False),
            ("UNIFORM_SINGLE_TOKEN_DECODE", False),
            ("NEVER", False),
        }

    def test_one_refusing_backend_among_several_is_enough(
        self, configure: Configure, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        config = configure()
        expect(monkeypatch, backend_of("ALWAYS"))
        switched_on(config)
        both = [backend_of("ALWAYS"), backend_of("UNIFORM_BATCH")]
        support = start_engine(config, Workers(config, both, monkeypatch), monkeypatch)
        assert support.capability.level is Level.UNIFORM
        assert "UniformBatchBackend" in " ".join(support.notes)

    def test_the_drafters_backend_does_not_count(
        self, configure: Configure, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        config = configure()
        expect(monkeypatch, backend_of("ALWAYS"))
        switched_on(config)
        workers = Workers(
            config, [backend_of("ALWAYS")], monkeypatch, draft_backends=[backend_of("NEVER")]
        )
        assert start_engine(config, workers, monkeypatch).capability.level is Level.FULL

    @pytest.mark.parametrize(("bound", "level"), [(4, Level.UNIFORM), (5, Level.FULL)])
    def test_a_bound_must_reach_one_plus_kmax(
        self, configure: Configure, monkeypatch: pytest.MonkeyPatch, bound: int, level: Level
    ) -> None:
        backend = backend_of("UNIFORM_BATCH", bound=bound)
        _, support, _ = started(configure, monkeypatch, backend, kmax=4)
        assert support.capability.level is level

    def test_a_backend_is_prepared_as_with_adaptive_verification(
        self, configure: Configure, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """FlashInfer on Blackwell makes its builders for such batches only with that option."""
        backend = backend_of("UNIFORM_BATCH", bound=5, with_adaptive=True)
        seen = []
        config = configure(kmax=4)
        expect(monkeypatch, backend)
        switched_on(config)
        speculation = config.speculative_config
        workers = Workers(config, [backend], monkeypatch)
        runner = workers.runners[0]
        own = runner.initialize_kv_cache

        def initialize_kv_cache(kv_cache_config: Any) -> None:
            seen.append(speculation.enable_adaptive_verification)
            own(kv_cache_config)

        runner.initialize_kv_cache = initialize_kv_cache
        support = start_engine(config, workers, monkeypatch)
        assert seen == [True]
        assert speculation.enable_adaptive_verification is False
        assert support.capability.level is Level.UNIFORM  # asked again, it refuses


ANSWER = {
    "query_len": 5,
    "full_up_to": 320,
    "sizes": [1, 2, 4, 8, 320],
    "graphs": 5,
    "refusal": "",
}
"""The answer of a worker for Kmax 4 and 64 requests, with five sizes."""


class TestPlantedAnswers:
    def verdict(self, config: Any, answers: Any) -> Varlen:
        config.compilation_config.cudagraph_capture_sizes = [1, 2, 4, 8, 320]
        return varlen_graphs.verdict(answers, config)

    def test_the_right_answer_is_taken(self, configure: Configure) -> None:
        found = self.verdict(configure(), [ANSWER])
        assert found == Varlen(sizes=(1, 2, 4, 8, 320), graphs=5)

    @pytest.mark.parametrize(
        "answers",
        [
            None,
            [],
            [None],
            ["yes"],
            [{}],
            [ANSWER, ANSWER],
            [ANSWER | {"query_len": 4}],
            [ANSWER | {"query_len": 6}],
            [ANSWER | {"full_up_to": 0}],
            [ANSWER | {"full_up_to": 319}],
            [ANSWER | {"full_up_to": "320"}],
            [ANSWER | {"sizes": [1, 2, 4, 8, 16, 320]}],
            [ANSWER | {"refusal": "attention backend FlashMLABackend"}],
        ],
    )
    def test_a_wrong_answer_means_one_k_per_batch(self, configure: Configure, answers: Any) -> None:
        found = self.verdict(configure(), answers)
        assert found.refusal
        assert found.sizes == ()

    def test_ranks_that_differ_mean_one_k_per_batch(self, configure: Configure) -> None:
        config = configure()
        config.parallel_config.world_size = 2
        assert self.verdict(config, [ANSWER, ANSWER]).refusal == ""
        other = ANSWER | {"graphs": 4}
        assert self.verdict(config, [ANSWER, other]).refusal == "workers with different graphs"
        refusing = ANSWER | {"refusal": "CUDA error"}
        assert self.verdict(config, [ANSWER, refusing]).refusal == "CUDA error"
        assert "1 of 2 workers" in self.verdict(config, [ANSWER]).refusal

    @pytest.mark.parametrize("function", ["arm", "report"])
    def test_a_fault_in_a_worker_means_one_k_per_batch(
        self, configure: Configure, monkeypatch: pytest.MonkeyPatch, function: str
    ) -> None:
        def fail(worker: Any) -> None:
            raise RuntimeError("planted")

        _, support, workers = started(configure, monkeypatch, planted={function: fail})
        assert support.capability.level is Level.UNIFORM
        assert "planted" in " ".join(support.notes)
        assert {0, 4} <= set(support.capability.ladder)
        if function == "arm":
            assert not workers.runners[0].cudagraph_manager.varlen_decode

    def test_a_worker_that_only_says_so_is_found_out(
        self, configure: Configure, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its manager has the flag, but graphs for batches of one K: the report asks for graphs."""

        def pretend(runner: Any) -> str:
            runner.cudagraph_manager.varlen_decode = True
            return ""

        config = configure()
        monkeypatch.setattr(varlen_capture, "_take_varlen", pretend)
        expect(monkeypatch, backend_of("ALWAYS"))
        switched_on(config)
        workers = Workers(config, [backend_of("ALWAYS")], monkeypatch)
        support = start_engine(config, workers, monkeypatch)
        assert support.capability.level is Level.UNIFORM
        manager = workers.runners[0].cudagraph_manager
        assert manager.dispatch(8, 20, None, 0, max_query_len=5).cg_mode.name == "PIECEWISE"

    def test_a_lie_costs_the_full_graph_and_never_gives_a_wrong_one(
        self, configure: Configure, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        config = configure()
        config.compilation_config.cudagraph_capture_sizes = sizes = [1, 2, 4, 8, 320]
        lie = ANSWER | {"sizes": sizes}
        monkeypatch.setattr(varlen_capture, "_take_varlen", lambda _: "")
        expect(monkeypatch, backend_of("ALWAYS"))
        switched_on(config)
        workers = Workers(config, [backend_of("ALWAYS")], monkeypatch)
        workers.planted["report"] = lambda _: lie
        assert start_engine(config, workers, monkeypatch).capability.level is Level.FULL
        manager = workers.runners[0].cudagraph_manager
        draw = random.Random(2)
        for _ in range(2000):
            lengths = [1 + draw.randint(0, 4) for _ in range(draw.randint(2, 64))]
            if len(set(lengths)) > 1:
                found = manager.dispatch(
                    len(lengths), sum(lengths), None, 0, max_query_len=max(lengths)
                )
                assert found.cg_mode.name == "PIECEWISE"

    def test_graphs_that_were_not_captured_do_not_count(
        self, configure: Configure, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        config = configure()
        workers = Workers(config, [backend_of("ALWAYS")], monkeypatch)
        workers.collective_rpc(varlen_capture.arm)
        workers.start()
        workers.runners[0].cudagraph_manager._graphs_captured = False
        [answer] = workers.collective_rpc(varlen_capture.report)
        assert answer["full_up_to"] == 0
        assert answer["refusal"]


class TestRefusals:
    @pytest.mark.parametrize(
        ("features", "reason"),
        [
            ({"ubatch_runner": object()}, "dual batch overlap"),
            ({"pcp_manager": object()}, "prefill context parallelism"),
            ({"adaptive_verification": object()}, "enable_adaptive_verification"),
            ({"decode_query_len": 7}, "7 tokens per decoding request"),
        ],
        ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
    )
    def test_what_expects_equal_lengths_keeps_uniform_graphs(
        self,
        configure: Configure,
        monkeypatch: pytest.MonkeyPatch,
        features: dict[str, Any],
        reason: str,
    ) -> None:
        config = configure()
        expect(monkeypatch, backend_of("ALWAYS"))
        switched_on(config)
        workers = Workers(config, [backend_of("ALWAYS")], monkeypatch, **features)
        support = start_engine(config, workers, monkeypatch)
        assert support.capability.level is Level.UNIFORM
        assert reason in " ".join(support.notes)
        assert not workers.runners[0].cudagraph_manager.varlen_decode

    def test_a_decode_path_of_the_models_own_keeps_uniform_graphs(
        self, configure: Configure, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        import vllm

        config = configure()
        expect(monkeypatch, backend_of("ALWAYS"))
        switched_on(config)
        monkeypatch.setattr(vllm, "__file__", str(tmp_path / "__init__.py"))
        (tmp_path / "models/some/nvidia/specialized_decode").mkdir(parents=True)
        (tmp_path / "models/other/nvidia").mkdir(parents=True)
        for name, level in (("some", Level.UNIFORM), ("other", Level.FULL)):
            model = type("M", (), {"__module__": f"vllm.models.{name}.nvidia.model"})()
            workers = Workers(config, [backend_of("ALWAYS")], monkeypatch, model=model)
            varlen_graphs.ask(config, "")
            assert start_engine(config, workers, monkeypatch).capability.level is level

    def test_encoder_layers_that_refuse_count(
        self, configure: Configure, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from vllm.v1.attention.backend import AttentionCGSupport

        config = configure()
        refusing = AttentionCGSupport.UNIFORM_BATCH, "CrossAttention"
        state = SimpleNamespace(get_additional_cg_support=lambda: refusing)
        workers = Workers(config, [backend_of("ALWAYS")], monkeypatch, model_state=state)
        workers.collective_rpc(varlen_capture.arm)
        workers.start()
        [answer] = workers.collective_rpc(varlen_capture.report)
        assert answer["refusal"] == "attention backend CrossAttention"


class TestConfiguration:
    def test_vllms_sizes_stay_and_the_ladder_is_for_draft_loops(
        self, configure: Configure, monkeypatch: pytest.MonkeyPatch, said: Any
    ) -> None:
        config = configure(kmax=4, max_num_seqs=33)
        own = list(config.compilation_config.cudagraph_capture_sizes)
        expect(monkeypatch, backend_of("ALWAYS"))
        support = switched_on(config)
        # The largest decode batch has a size of its own: no larger graph could serve it.
        assert config.compilation_config.cudagraph_capture_sizes == sorted({*own, 165})
        ladder = graph_ladder.captured(config)
        assert ladder is not None
        assert ladder.values == (0, 1, 2, 3, 4)
        assert ladder.graphs == 0
        assert support.capability.level is Level.UNIFORM, "the workers have not answered"
        assert "have not answered" in " ".join(support.notes)
        assert any("depth 0, 1, 2, 3, 4" in line for line in said())

    def test_the_depth_takes_captured_draft_loops_only(
        self, configure: Configure, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _, support, _ = started(configure, monkeypatch, kmax=8)
        assert support.capability.level is Level.FULL
        assert support.capability.steers_depth
        assert support.capability.ladder == (0, 1, 2, 4, 8)
        assert support.capability.ragged_penalty == varlen_graphs.PRIOR_PENALTY

    def test_a_drafter_of_fixed_depth_needs_no_ladder(
        self, configure: Configure, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        config = configure("draft_model")
        expect(monkeypatch, backend_of("ALWAYS"))
        switched_on(config)
        workers = Workers(config, [backend_of("ALWAYS")], monkeypatch)
        support = start_engine(config, workers, monkeypatch)
        assert support.capability.level is Level.VERIFY
        assert support.capability.ladder == ()

    def test_where_a_refusal_is_expected_the_ladder_is_captured(
        self, configure: Configure, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _, support, workers = started(configure, monkeypatch, backend_of("UNIFORM_BATCH"))
        capability = support.capability
        assert capability.level is Level.UNIFORM
        assert capability.ladder == (0, 1, 3, 4)
        assert "attention backend UniformBatchBackend" in " ".join(support.notes)
        manager = workers.runners[0].cudagraph_manager
        assert manager.dispatch(7, 14, 2, 0, max_query_len=2).cg_mode.name == "FULL"

    def test_a_wrong_expectation_is_corrected_by_the_workers(
        self, configure: Configure, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        config = configure()
        expect(monkeypatch, backend_of("NEVER"))
        switched_on(config)
        workers = Workers(config, [backend_of("ALWAYS")], monkeypatch)
        assert start_engine(config, workers, monkeypatch).capability.level is Level.FULL

    def test_sizes_that_the_user_gave_stay(
        self, configure: Configure, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from adaptive_spec.adapters.vllm.gate import switch_on
        from adaptive_spec.config import Config

        config = configure()
        config.compilation_config.cudagraph_capture_sizes = [1, 2, 4, 8, 16, 32]
        config.compilation_config.max_cudagraph_capture_size = 32
        expect(monkeypatch, backend_of("ALWAYS"))
        switch_on(config, Config(policy="static"), own_sizes=True)
        workers = Workers(config, [backend_of("ALWAYS")], monkeypatch)
        support = start_engine(config, workers, monkeypatch)
        assert config.compilation_config.cudagraph_capture_sizes == [1, 2, 4, 8, 16, 32]
        assert support.capability.token_buckets == (1, 2, 4, 8, 16, 32)

    @pytest.mark.parametrize("mode", ["shadow", "off"])
    def test_what_does_not_act_asks_nobody(
        self, configure: Configure, monkeypatch: pytest.MonkeyPatch, mode: str
    ) -> None:
        config = configure()
        expect(monkeypatch, backend_of("ALWAYS"))
        switched_on(config, mode=mode)
        assert not hasattr(config.scheduler_config, varlen_graphs.ATTRIBUTE)

    def test_an_old_vllm_is_not_asked(
        self, configure: Configure, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from adaptive_spec.adapters.vllm.capability import MISSING
        from adaptive_spec.adapters.vllm.facts import VARLEN

        config = configure()
        setattr(config.scheduler_config, MISSING, {VARLEN: "has no such graphs"})
        expect(monkeypatch, backend_of("ALWAYS"))
        support = switched_on(config)
        assert not isinstance(config.scheduler_config.adaptive_spec_varlen, Asked)
        assert support.capability.ladder == (0, 1, 3, 4)
        assert "this vLLM lacks" in " ".join(support.notes)

    def test_the_operator_can_refuse_them(
        self, configure: Configure, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        config = configure()
        expect(monkeypatch, backend_of("ALWAYS"))
        support = switched_on(config, varlen_graphs=False)
        assert not isinstance(config.scheduler_config.adaptive_spec_varlen, Asked)
        assert support.capability.ladder == (0, 1, 3, 4)
        assert "`varlen_graphs` is false" in " ".join(support.notes)

    def test_piecewise_graphs_alone_leave_k_to_each_request(self, configure: Configure) -> None:
        support = switched_on(configure(graphs="PIECEWISE"))
        assert support.capability.level is Level.FULL
        assert support.capability.ragged_penalty == 0.0

    def test_ranks_of_a_mixture_of_experts_trim_per_request(
        self, configure: Configure, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _, support, _ = started(configure, monkeypatch, ranks=2)
        assert support.capability.level is Level.VERIFY
        assert not support.capability.depth_follows

    def test_it_hooks_the_process_of_the_engine(
        self, configure: Configure, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from vllm.v1.engine.core import EngineCore

        config = configure()
        expect(monkeypatch, backend_of("ALWAYS"))
        switched_on(config)
        varlen_graphs.uninstall()
        plain = EngineCore._initialize_kv_caches
        arrived = pickle.loads(pickle.dumps(config))
        assert isinstance(arrived.scheduler_config.adaptive_spec_varlen, Asked)
        assert EngineCore._initialize_kv_caches is not plain
        varlen_graphs.uninstall()
        assert EngineCore._initialize_kv_caches is plain

    def test_an_engine_that_asks_nothing_is_left_alone(
        self, configure: Configure, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        config = configure()
        workers = Workers(config, [backend_of("ALWAYS")], monkeypatch)
        own = workers.runners[0].initialize_kv_cache
        support = start_engine(config, workers, monkeypatch)
        assert workers.runners[0].initialize_kv_cache is own
        assert support.capability.level is Level.UNIFORM


class TestDoctor:
    """What `doctor --recipe` says before the start."""

    @pytest.mark.parametrize(
        ("changes", "level", "says"),
        [
            ({}, "ALWAYS", "K per request"),
            ({}, "UNIFORM_BATCH", "one K per batch (attention backend UniformBatchBackend)"),
            ({"runner": "V1"}, "ALWAYS", "one K per batch (model runner V1"),
            ({"graphs": "PIECEWISE"}, "NEVER", "none (cudagraph_mode=PIECEWISE)"),
            ({"graphs": "NONE"}, "NEVER", "no graphs are captured"),
        ],
    )
    def test_it_says_what_full_graphs_leave_and_why(
        self,
        configure: Configure,
        monkeypatch: pytest.MonkeyPatch,
        changes: dict[str, Any],
        level: str,
        says: str,
    ) -> None:
        from adaptive_spec.adapters.vllm.capability import detect
        from adaptive_spec.adapters.vllm.recipe import full_graphs

        config = configure(**changes)
        expect(monkeypatch, backend_of(level))
        assert full_graphs(config).startswith(says)
        one_k = says.startswith("one K")
        assert (detect(config, expected=True).capability.level is Level.UNIFORM) == one_k

    def test_vllm_itself_is_asked_for_its_backend(self, configure: Configure) -> None:
        assert varlen_graphs.expected_refusal(configure()) == (
            "attention backend CPUAttentionBackend"
        )

    def test_unknown_backends_are_a_refusal(
        self, configure: Configure, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(_: Any) -> None:
            raise ValueError("no valid attention backend")

        config = configure()
        monkeypatch.setattr(varlen_graphs, "_chosen_backends", fail)
        assert "no valid attention backend" in varlen_graphs.expected_refusal(config)


class TestModelRunnerV1:
    def dispatcher(self, config: Any) -> Any:
        """vLLM's own dispatcher of V1, with all keys that its mode has."""
        from vllm.v1.cudagraph_dispatcher import CudagraphDispatcher

        made = CudagraphDispatcher(config)
        made.initialize_cudagraph_keys(
            config.compilation_config.cudagraph_mode, 1 + config.num_speculative_tokens
        )
        return made

    def start(self, config: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
        runner = SimpleNamespace(
            cudagraph_dispatcher=self.dispatcher(config),
            initialize_kv_cache=lambda _: None,
            kv_cache_config=None,
            lora_config=None,
            max_num_reqs=config.scheduler_config.max_num_seqs,
            vllm_config=config,
        )
        workers = Workers(config, [], monkeypatch, ranks=0)
        workers.runners = [runner]
        workers.start = lambda: None  # type: ignore[method-assign]
        return start_engine(config, workers, monkeypatch)

    def test_full_graphs_for_any_batch_give_k_per_request(
        self, configure: Configure, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        config = configure(runner="V1", graphs="FULL")
        expect(monkeypatch, backend_of("ALWAYS"))
        switched_on(config)
        support = self.start(config, monkeypatch)
        assert support.capability.level is Level.FULL
        assert support.capability.depth_follows
        assert support.capability.ladder == ()

    def test_full_decode_graphs_mean_one_k_per_batch(
        self, configure: Configure, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        config = configure(runner="V1")
        expect(monkeypatch, backend_of("ALWAYS"))
        support = switched_on(config)
        assert support.capability.level is Level.UNIFORM
        assert "model runner V1" in " ".join(support.notes)

    def test_a_mode_that_vllm_gave_up_means_one_k_per_batch(
        self, configure: Configure, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The worker resolves FULL to decode graphs where its backend allows no more."""
        config = configure(runner="V1", graphs="FULL")
        expect(monkeypatch, backend_of("ALWAYS"))
        switched_on(config)
        compilation = config.compilation_config
        compilation.cudagraph_mode = graph_mode("FULL_DECODE_ONLY")
        compilation.adjust_cudagraph_sizes_for_spec_decode(1 + config.num_speculative_tokens)
        support = self.start(config, monkeypatch)
        assert support.capability.level is Level.UNIFORM
