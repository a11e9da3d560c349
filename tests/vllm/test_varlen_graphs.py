"""K per request in full graphs, as far as it can run without a GPU.

vLLM's own manager lists the graphs and chooses one for each batch, vLLM's own function answers for
attention backends, and the hook of EngineCore asks the workers. No graph is captured here.
"""

from __future__ import annotations

import pickle
import random
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import processors
import pytest
from gpu import Gpu, backend_of, graph_mode, switched_on

from adaptive_spec.adapters.vllm import graph_ladder, varlen_capture, varlen_graphs
from adaptive_spec.adapters.vllm.capability import MISSING, detect
from adaptive_spec.adapters.vllm.facts import VARLEN
from adaptive_spec.adapters.vllm.varlen_graphs import Asked, Varlen
from adaptive_spec.step import Level

pytestmark = pytest.mark.engine

SHAPES = [(4, 64), (1, 20), (2, 100), (5, 256), (6, 50), (8, 33), (16, 48), (3, 3), (7, 1)]
"""(Kmax, requests): those of `test_graph_ladder`, and very few requests."""


class TestDecodeBatches:
    @pytest.mark.parametrize(("kmax", "requests"), SHAPES)
    def test_every_batch_of_any_k_has_a_full_graph(
        self, gpu: Gpu, kmax: int, requests: int
    ) -> None:
        config, support, workers = gpu.started(kmax=kmax, max_num_seqs=requests)
        manager = workers.runners[0].cudagraph_manager
        plain = gpu.graphs_of(config)
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

    def test_a_batch_with_a_prompt_never_runs_in_such_a_graph(self, gpu: Gpu) -> None:
        _, _, workers = gpu.started()
        manager = workers.runners[0].cudagraph_manager
        for tokens in range(1, 320):
            # vLLM's runner passes no longest length for a batch that has a prompt.
            found = manager.dispatch(min(tokens, 64), tokens, None, 0, max_query_len=None)
            assert found.cg_mode.name != "FULL"

    def test_the_start_line_names_graph_mode_and_number(
        self, gpu: Gpu, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """vllm#56626: adaptive verification changed the graph mode, and nothing said so."""
        _, found, workers = gpu.started(kmax=3)
        full = workers.runners[0].cudagraph_manager._capture_descs[graph_mode("FULL")]
        assert found.graphs == f"FULL_AND_PIECEWISE:{len(full)}"
        config = gpu.configure(kmax=3, schedule=None)
        monkeypatch.setattr(varlen_graphs, "expected_refusal", lambda _: "a backend")
        found = switched_on(config)
        listed = gpu.graphs_of(config)._capture_descs[graph_mode("FULL")]
        assert found.graphs == f"FULL_AND_PIECEWISE:{len(listed)}"

    def test_graphs_are_about_as_many_as_vllms_own(self, gpu: Gpu) -> None:
        plain = gpu.graphs_of(gpu.configure(kmax=3))
        _, _, workers = gpu.started(kmax=3)
        manager = workers.runners[0].cudagraph_manager
        full = graph_mode("FULL")
        assert len(manager._capture_descs[full]) <= len(plain._capture_descs[full]) + 5


class TestBackends:
    @pytest.mark.long
    @pytest.mark.parametrize("library", processors.LIBRARIES)
    def test_all_are_imported_whatever_library_the_processor_gets(self, library: str) -> None:
        if library not in processors.loadable():
            pytest.skip(f"this processor cannot run vllm.{library}")
        command = [sys.executable, processors.__file__, library]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stderr[-2000:]
        assert int(done.stdout.splitlines()[-1]) > 25

    def test_each_gets_varlen_graphs_only_if_it_can_replay_them(self, gpu: Gpu) -> None:
        """By the level that a backend's builder states itself, not by vLLM's function."""
        levels = set()
        backends = processors.attention_backends()
        config = gpu.configure()
        for name, backend in backends.items():
            workers = gpu.workers(config, backend)
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

    def test_one_refusing_backend_among_several_is_enough(self, gpu: Gpu) -> None:
        config = gpu.configured()
        both = [backend_of("ALWAYS"), backend_of("UNIFORM_BATCH")]
        support = gpu.start(config, gpu.workers(config, *both))
        assert support.capability.level is Level.UNIFORM
        assert "UniformBatchBackend" in " ".join(support.notes)

    def test_the_drafters_backend_does_not_count(self, gpu: Gpu) -> None:
        config = gpu.configured()
        workers = gpu.workers(config, draft_backends=[backend_of("NEVER")])
        assert gpu.start(config, workers).capability.level is Level.FULL

    @pytest.mark.parametrize(("bound", "level"), [(4, Level.UNIFORM), (5, Level.FULL)])
    def test_a_bound_must_reach_one_plus_kmax(self, gpu: Gpu, bound: int, level: Level) -> None:
        backend = backend_of("UNIFORM_BATCH", bound=bound)
        _, support, _ = gpu.started(backend, kmax=4)
        assert support.capability.level is level

    def test_a_backend_is_prepared_as_with_adaptive_verification(self, gpu: Gpu) -> None:
        """FlashInfer on Blackwell makes its builders for such batches only with that option."""
        backend = backend_of("UNIFORM_BATCH", bound=5, with_adaptive=True)
        seen = []
        config = gpu.configured(kmax=4, backend=backend)
        speculation = config.speculative_config
        workers = gpu.workers(config, backend)
        runner = workers.runners[0]
        own = runner.initialize_kv_cache

        def initialize_kv_cache(kv_cache_config: Any) -> None:
            seen.append(speculation.enable_adaptive_verification)
            own(kv_cache_config)

        runner.initialize_kv_cache = initialize_kv_cache
        support = gpu.start(config, workers)
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

    def test_the_right_answer_is_taken(self, gpu: Gpu) -> None:
        found = self.verdict(gpu.configure(), [ANSWER])
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
    def test_a_wrong_answer_means_one_k_per_batch(self, gpu: Gpu, answers: Any) -> None:
        found = self.verdict(gpu.configure(), answers)
        assert found.refusal
        assert found.sizes == ()

    def test_ranks_that_differ_mean_one_k_per_batch(self, gpu: Gpu) -> None:
        config = gpu.configure()
        config.parallel_config.world_size = 2
        assert self.verdict(config, [ANSWER, ANSWER]).refusal == ""
        other = ANSWER | {"graphs": 4}
        assert self.verdict(config, [ANSWER, other]).refusal == "workers with different graphs"
        refusing = ANSWER | {"refusal": "CUDA error"}
        assert self.verdict(config, [ANSWER, refusing]).refusal == "CUDA error"
        assert "1 of 2 workers" in self.verdict(config, [ANSWER]).refusal

    @pytest.mark.parametrize("function", ["arm", "report"])
    def test_a_fault_in_a_worker_means_one_k_per_batch(self, gpu: Gpu, function: str) -> None:
        def fail(worker: Any) -> None:
            raise RuntimeError("planted")

        _, support, workers = gpu.started(planted={function: fail})
        assert support.capability.level is Level.UNIFORM
        assert "planted" in " ".join(support.notes)
        assert {0, 4} <= set(support.capability.ladder)
        if function == "arm":
            assert not workers.runners[0].cudagraph_manager.varlen_decode

    def test_a_worker_that_only_says_so_is_found_out(
        self, gpu: Gpu, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its manager has the flag, but graphs for batches of one K: the report asks for graphs."""

        def pretend(runner: Any) -> str:
            runner.cudagraph_manager.varlen_decode = True
            return ""

        config = gpu.configured()
        monkeypatch.setattr(varlen_capture, "_take_varlen", pretend)
        workers = gpu.workers(config)
        support = gpu.start(config, workers)
        assert support.capability.level is Level.UNIFORM
        manager = workers.runners[0].cudagraph_manager
        assert manager.dispatch(8, 20, None, 0, max_query_len=5).cg_mode.name == "PIECEWISE"

    def test_graphs_that_were_not_captured_do_not_count(self, gpu: Gpu) -> None:
        config = gpu.configure()
        workers = gpu.workers(config)
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
        self, gpu: Gpu, features: dict[str, Any], reason: str
    ) -> None:
        config = gpu.configured()
        workers = gpu.workers(config, **features)
        support = gpu.start(config, workers)
        assert support.capability.level is Level.UNIFORM
        assert reason in " ".join(support.notes)
        assert not workers.runners[0].cudagraph_manager.varlen_decode

    def test_a_decode_path_of_the_models_own_keeps_uniform_graphs(
        self, gpu: Gpu, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        import vllm

        config = gpu.configured()
        monkeypatch.setattr(vllm, "__file__", str(tmp_path / "__init__.py"))
        (tmp_path / "models/some/nvidia/specialized_decode").mkdir(parents=True)
        (tmp_path / "models/other/nvidia").mkdir(parents=True)
        for name, level in (("some", Level.UNIFORM), ("other", Level.FULL)):
            model = type("M", (), {"__module__": f"vllm.models.{name}.nvidia.model"})()
            workers = gpu.workers(config, model=model)
            varlen_graphs.ask_workers(config, "")
            assert gpu.start(config, workers).capability.level is level

    def test_encoder_layers_that_refuse_count(self, gpu: Gpu) -> None:
        from vllm.v1.attention.backend import AttentionCGSupport

        config = gpu.configure()
        refusing = AttentionCGSupport.UNIFORM_BATCH, "CrossAttention"
        state = SimpleNamespace(get_additional_cg_support=lambda: refusing)
        workers = gpu.workers(config, model_state=state)
        workers.collective_rpc(varlen_capture.arm)
        workers.start()
        [answer] = workers.collective_rpc(varlen_capture.report)
        assert answer["refusal"] == "attention backend CrossAttention"


class TestConfiguration:
    def test_vllms_sizes_stay_and_the_ladder_is_for_draft_loops(self, gpu: Gpu, said: Any) -> None:
        config = gpu.configure(kmax=4, max_num_seqs=33)
        own = list(config.compilation_config.cudagraph_capture_sizes)
        gpu.expect()
        support = switched_on(config)
        # The largest decode batch has a size of its own: no larger graph could serve it.
        assert config.compilation_config.cudagraph_capture_sizes == sorted({*own, 165})
        ladder = graph_ladder.captured(config)
        assert ladder.values == (0, 1, 2, 3, 4)
        assert ladder.graphs == 0
        assert support.capability.level is Level.UNIFORM, "the workers have not answered"
        assert "have not answered" in " ".join(support.notes)
        assert any("depth 0, 1, 2, 3, 4" in line for line in said())

    def test_the_depth_takes_captured_draft_loops_only(self, gpu: Gpu) -> None:
        _, support, _ = gpu.started(kmax=8)
        assert support.capability.level is Level.FULL
        assert support.capability.steers_depth
        assert support.capability.ladder == (0, 1, 2, 4, 8)
        assert support.capability.ragged_penalty == varlen_graphs.PRIOR_PENALTY

    def test_a_drafter_of_fixed_depth_needs_no_ladder(self, gpu: Gpu) -> None:
        _, support, _ = gpu.started(method="draft_model")
        assert support.capability.level is Level.VERIFY
        assert support.capability.ladder == ()

    def test_where_a_refusal_is_expected_the_ladder_is_captured(self, gpu: Gpu) -> None:
        _, support, workers = gpu.started(backend_of("UNIFORM_BATCH"))
        capability = support.capability
        assert capability.level is Level.UNIFORM
        assert capability.ladder == (0, 1, 3, 4)
        assert "attention backend UniformBatchBackend" in " ".join(support.notes)
        manager = workers.runners[0].cudagraph_manager
        assert manager.dispatch(7, 14, 2, 0, max_query_len=2).cg_mode.name == "FULL"

    def test_a_wrong_expectation_is_corrected_by_the_workers(self, gpu: Gpu) -> None:
        config = gpu.configured(backend="NEVER")
        assert gpu.start(config, gpu.workers(config)).capability.level is Level.FULL

    def test_sizes_that_the_user_gave_stay(self, gpu: Gpu) -> None:
        from adaptive_spec.adapters.vllm.gate import switch_on
        from adaptive_spec.config import Config

        config = gpu.configure()
        config.compilation_config.cudagraph_capture_sizes = [1, 2, 4, 8, 16, 32]
        config.compilation_config.max_cudagraph_capture_size = 32
        gpu.expect()
        switch_on(config, Config(policy="static"), own_sizes=True)
        support = gpu.start(config, gpu.workers(config))
        assert config.compilation_config.cudagraph_capture_sizes == [1, 2, 4, 8, 16, 32]
        assert support.capability.token_buckets == (1, 2, 4, 8, 16, 32)

    @pytest.mark.parametrize("mode", ["shadow", "off"])
    def test_what_does_not_act_asks_nobody(self, gpu: Gpu, mode: str) -> None:
        config = gpu.configure()
        gpu.expect()
        switched_on(config, mode=mode)
        assert not hasattr(config.scheduler_config, varlen_graphs.ATTRIBUTE)

    @pytest.mark.parametrize(
        ("missing", "settings", "said"),
        [
            ({VARLEN: "has no such graphs"}, {}, "this vLLM lacks"),
            ({}, {"varlen_graphs": False}, "`varlen_graphs` is false"),
        ],
        ids=["an old vLLM", "the operator"],
    )
    def test_who_has_or_wants_no_such_graphs_is_not_asked(
        self, gpu: Gpu, missing: dict[str, str], settings: dict[str, Any], said: str
    ) -> None:
        config = gpu.configure()
        setattr(config.scheduler_config, MISSING, missing)
        gpu.expect()
        support = switched_on(config, **settings)
        assert not isinstance(config.scheduler_config.adaptive_spec_varlen, Asked)
        assert support.capability.ladder == (0, 1, 3, 4)
        assert said in " ".join(support.notes)

    def test_piecewise_graphs_alone_leave_k_to_each_request(self, gpu: Gpu) -> None:
        support = switched_on(gpu.configure(graphs="PIECEWISE"))
        assert support.capability.level is Level.FULL
        assert support.capability.ragged_penalty == 0.0

    def test_ranks_of_a_mixture_of_experts_trim_per_request(self, gpu: Gpu) -> None:
        _, support, _ = gpu.started(ranks=2)
        assert support.capability.level is Level.VERIFY
        assert not support.capability.depth_follows

    def test_it_hooks_the_process_of_the_engine(self, gpu: Gpu) -> None:
        from vllm.v1.engine.core import EngineCore

        config = gpu.configured()
        varlen_graphs.uninstall()
        plain = EngineCore._initialize_kv_caches
        arrived = pickle.loads(pickle.dumps(config))
        assert isinstance(arrived.scheduler_config.adaptive_spec_varlen, Asked)
        assert EngineCore._initialize_kv_caches is not plain
        varlen_graphs.uninstall()
        assert EngineCore._initialize_kv_caches is plain

    def test_an_engine_that_asks_nothing_is_left_alone(self, gpu: Gpu) -> None:
        config = gpu.configure()
        workers = gpu.workers(config)
        own = workers.runners[0].initialize_kv_cache
        support = gpu.start(config, workers)
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
        self, gpu: Gpu, changes: dict[str, Any], level: str, says: str
    ) -> None:
        from adaptive_spec.adapters.vllm.recipe import full_graphs

        config = gpu.configure(**changes)
        gpu.expect(level)
        assert full_graphs(config).startswith(says)
        one_k = says.startswith("one K")
        assert (detect(config, expected=True).capability.level is Level.UNIFORM) == one_k

    def test_vllm_itself_is_asked_for_its_backend(self, gpu: Gpu) -> None:
        assert varlen_graphs.expected_refusal(gpu.configure()) == (
            "attention backend CPUAttentionBackend"
        )

    def test_unknown_backends_are_a_refusal(
        self, gpu: Gpu, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(_: Any) -> None:
            raise ValueError("no valid attention backend")

        config = gpu.configure()
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

    def start(self, gpu: Gpu, config: Any) -> Any:
        runner = SimpleNamespace(
            cudagraph_dispatcher=self.dispatcher(config),
            initialize_kv_cache=lambda _: None,
            kv_cache_config=None,
            lora_config=None,
            max_num_reqs=config.scheduler_config.max_num_seqs,
            vllm_config=config,
        )
        workers = gpu.workers(config, ranks=0)
        workers.runners = [runner]
        workers.start = lambda: None  # type: ignore[method-assign]
        return gpu.start(config, workers)

    def test_full_graphs_for_any_batch_give_k_per_request(self, gpu: Gpu) -> None:
        config = gpu.configured(runner="V1", graphs="FULL")
        support = self.start(gpu, config)
        assert support.capability.level is Level.FULL
        assert support.capability.depth_follows
        assert support.capability.ladder == ()

    def test_full_decode_graphs_mean_one_k_per_batch(self, gpu: Gpu) -> None:
        config = gpu.configure(runner="V1")
        gpu.expect()
        support = switched_on(config)
        assert support.capability.level is Level.UNIFORM
        assert "model runner V1" in " ".join(support.notes)

    def test_a_mode_that_vllm_gave_up_means_one_k_per_batch(self, gpu: Gpu) -> None:
        """The worker resolves FULL to decode graphs where its backend allows no more."""
        config = gpu.configured(runner="V1", graphs="FULL")
        compilation = config.compilation_config
        compilation.cudagraph_mode = graph_mode("FULL_DECODE_ONLY")
        compilation.adjust_cudagraph_sizes_for_spec_decode(1 + config.num_speculative_tokens)
        support = self.start(gpu, config)
        assert support.capability.level is Level.UNIFORM
