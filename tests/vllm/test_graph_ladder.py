"""The ladder of K that is captured as CUDA graphs, as far as it can run without a GPU.

Real configurations of vLLM, vLLM's own reading of the schedule, and its own choice of graphs by
batch; the engine runs on CPU at the level a GPU would have. No graph is captured here.
"""

import math
import pickle
from collections.abc import Iterable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from gpu import ON_GPU, Gpu, graph_for, graph_mode, switched_on
from hypothesis import given
from hypothesis import strategies as st

from adaptive_spec.adapters.vllm import graph_ladder
from adaptive_spec.adapters.vllm.graph_ladder import (
    COARSEST,
    MOST_BETWEEN,
    capture_sizes,
    rungs,
    schedule_for,
)
from adaptive_spec.config import Config
from adaptive_spec.step import Level


@given(
    kmax=st.integers(1, 32),
    users=st.lists(st.integers(0, 32), max_size=4),
    most=st.integers(1, 512),
)
def test_a_ladder_has_what_the_user_needs_and_a_common_multiple(
    kmax: int, users: list[int], most: int
) -> None:
    users = [min(k, kmax) for k in users]
    values = rungs(kmax, users, most=most)
    needed = {0, kmax, *users}
    if not values:
        assert len(needed) > most or stride(needed) > max(COARSEST, 2 + 2 * kmax)
        return
    assert list(values) == sorted(set(values))
    assert needed <= set(values)
    assert len(values) <= min(most, len(needed) + MOST_BETWEEN)
    assert stride(values) <= max(COARSEST, 2 + 2 * kmax)
    schedule = schedule_for(values, most)
    assert [k for _, _, k in schedule] == list(values)
    assert (schedule[0][0], schedule[-1][1]) == (1, most)
    assert all(end + 1 == begin for (_, end, _), (begin, _, _) in pairwise(schedule))


def stride(values: Iterable[int]) -> int:
    return math.lcm(*(1 + k for k in values))


def test_tokens_per_request_grow_by_even_ratios() -> None:
    assert rungs(1, [], most=99) == (0, 1)
    assert rungs(4, [], most=99) == (0, 1, 3, 4)
    assert rungs(5, [], most=99) == (0, 1, 2, 3, 5)
    assert rungs(8, [], most=99) == (0, 1, 2, 5, 8)
    assert rungs(5, [4], most=99) == ()
    assert rungs(4, [], most=3) == (0, 1, 4)
    assert rungs(4, [], most=1) == ()


@given(kmax=st.integers(1, 16), most=st.integers(2, 300), largest=st.integers(1, 512))
def test_sizes_are_about_as_many_as_vllms(kmax: int, most: int, largest: int) -> None:
    values = rungs(kmax, [], most=most)
    sizes = capture_sizes(values, most, largest)
    assert sizes[0] == 1
    assert sizes[-1] == largest
    assert sizes == sorted(set(sizes))
    assert len(sizes) <= largest
    assert len(sizes) <= largest / 8 + (2 + len(values)) * max(COARSEST, 2 + 2 * kmax)


def schedule_of(config: Any) -> Any:
    return config.speculative_config.num_speculative_tokens_per_batch_size


@pytest.mark.engine
class TestConfiguration:
    @pytest.mark.parametrize(
        ("kmax", "requests"), [(4, 64), (1, 20), (2, 100), (5, 256), (6, 50), (8, 33), (16, 48)]
    )
    def test_every_batch_of_every_rung_has_a_full_graph(
        self, gpu: Gpu, kmax: int, requests: int
    ) -> None:
        config = gpu.configure(kmax=kmax, max_num_seqs=requests)
        largest = config.compilation_config.max_cudagraph_capture_size
        plain = gpu.graphs_of(config)
        support = switched_on(config)
        ladder = graph_ladder.captured(config)
        ours = gpu.graphs_of(config)
        assert support.capability.level is Level.UNIFORM
        assert support.capability.ladder == ladder.values == rungs(kmax, [], most=requests)
        assert support.capability.depth_follows
        for batch in range(1, requests + 1):
            for k in ladder.values:
                if batch * (1 + k) <= largest:
                    assert graph_for(ours, batch, k) == "FULL", (batch, k)
                    assert (graph_for(plain, batch, k) == "FULL") <= (k == kmax)
        full = ours._capture_descs[graph_mode("FULL")]
        assert len(full) == ladder.graphs

    def test_a_batch_of_mixed_k_has_no_full_graph(self, gpu: Gpu) -> None:
        config = gpu.configure()
        switched_on(config)
        manager = gpu.graphs_of(config)
        assert manager.dispatch(8, 20, None, 0).cg_mode.name == "PIECEWISE"
        assert manager.dispatch(8, 16, 2, 0).cg_mode.name == "FULL"

    def test_a_batch_runs_padded_to_a_size_the_capability_names(self, gpu: Gpu) -> None:
        config = gpu.configure()
        sizes = switched_on(config).capability.token_buckets
        assert list(sizes) == config.compilation_config.cudagraph_capture_sizes
        manager = gpu.graphs_of(config)
        for batch in range(1, 65):
            for k in (0, 1, 3, 4):
                tokens = batch * (1 + k)
                padded = manager.dispatch(batch, tokens, 1 + k, 0).num_tokens
                assert padded == min(size for size in sizes if size >= tokens)

    def test_the_user_s_schedule_keeps_its_graphs_and_comes_back(self, gpu: Gpu) -> None:
        config = gpu.configure(schedule=[(1, 8, 3), (9, 64, 0)])
        support = switched_on(config)
        assert support.capability.ladder == (0, 1, 3, 4)
        scheduler = SimpleNamespace(
            vllm_config=config,
            scheduler_config=config.scheduler_config,
            num_spec_tokens=4,
            dynamic_sd_lookup=["of the ladder"],
        )
        graph_ladder.give_back_schedule(scheduler)
        assert scheduler.dynamic_sd_lookup == [0, *[3] * 8, *[0] * 56]
        manager = gpu.graphs_of(config)
        assert {graph_for(manager, 4, 3), graph_for(manager, 20, 0)} == {"FULL"}

    def test_graphs_that_do_not_fit_beside_the_users_are_left_out(
        self, gpu: Gpu, said: Any
    ) -> None:
        given = [(1, 8, 4), (9, 20, 3), (21, 64, 2)]  # 5, 4 and 3 tokens: 60 in common
        config = gpu.configure(schedule=given)
        sizes = list(config.compilation_config.cudagraph_capture_sizes)
        assert switched_on(config).capability.ladder == ()
        assert schedule_of(config) == given
        assert config.compilation_config.cudagraph_capture_sizes == sizes
        assert len([line for line in said() if "would not fit" in line]) == 1

    def test_a_fault_of_ours_costs_the_ladder_only(
        self, gpu: Gpu, monkeypatch: pytest.MonkeyPatch, said: Any
    ) -> None:
        config = gpu.configure()
        sizes = list(config.compilation_config.cudagraph_capture_sizes)
        with monkeypatch.context() as broken:
            broken.setattr(graph_ladder, "capture_sizes", None)
            support = switched_on(config)
        assert support.capability.level is Level.UNIFORM
        assert support.capability.ladder == ()
        assert schedule_of(config) is None
        assert config.compilation_config.cudagraph_capture_sizes == sizes
        assert len([line for line in said() if "no ladder is captured" in line]) == 1

    def test_sizes_that_the_user_gave_stay(self, gpu: Gpu, said: Any) -> None:
        from adaptive_spec.adapters.vllm.gate import _own_sizes, switch_on

        config = gpu.configure()
        assert _own_sizes(SimpleNamespace(cudagraph_capture_sizes=[1, 2], compilation_config={}))
        switch_on(config, Config(policy="static"), own_sizes=True)
        assert schedule_of(config) is None
        assert len([line for line in said() if "cudagraph_capture_sizes are given" in line]) == 1

    def test_it_reaches_the_engine_and_the_workers(self, gpu: Gpu) -> None:
        config = gpu.configure()
        support = switched_on(config)
        arrived = pickle.loads(pickle.dumps(config))
        assert graph_ladder.captured(arrived) == graph_ladder.captured(config)
        assert schedule_of(arrived) == schedule_of(config)
        from adaptive_spec.adapters.vllm.capability import detect

        assert detect(arrived) == support

    def test_few_requests_mean_few_rungs(self, gpu: Gpu) -> None:
        config = gpu.configure(max_num_seqs=3)
        assert switched_on(config).capability.ladder == (0, 1, 4)
        assert schedule_of(config) == [(1, 1, 0), (2, 2, 1), (3, 3, 4)]

    @pytest.mark.parametrize(
        "changes",
        [{"runner": "V1"}, {"ranks": 2}, {"graphs": "PIECEWISE"}, {"graphs": "NONE"}],
        ids=lambda changes: "-".join(map(str, changes.values())),
    )
    def test_elsewhere_no_schedule_is_put_in(self, gpu: Gpu, changes: dict[str, Any]) -> None:
        config = gpu.configure(**changes)
        support = switched_on(config)
        assert schedule_of(config) is None
        assert support.capability.ladder == ()
        full = "FULL" in changes.get("graphs", ON_GPU)
        assert (support.capability.level is Level.UNIFORM) == full

    @pytest.mark.parametrize("mode", ["shadow", "off"])
    def test_what_does_not_act_costs_no_graph(self, gpu: Gpu, mode: str) -> None:
        config = gpu.configure()
        switched_on(config, mode=mode)
        assert schedule_of(config) is None

    def test_a_draft_loop_captured_for_kmax_only_does_not_follow(self, gpu: Gpu) -> None:
        support = switched_on(gpu.configure(), mode="shadow")
        assert not support.capability.depth_follows
        assert "captured for Kmax only" in " ".join(support.notes)

    def test_the_drafter_of_draft_model_does_not_follow_on_v2(self, gpu: Gpu) -> None:
        support = switched_on(gpu.configure("draft_model"))
        assert support.capability.level is Level.UNIFORM
        assert not support.capability.steers_depth
        assert support.capability.ladder == (0, 1, 3, 4)
