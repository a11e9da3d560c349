"""Arms of a tree: their nodes, what is refused, and what the controller sees of them."""

from types import SimpleNamespace
from typing import Any

import pytest
from policies_for_tests import RecordingPolicy
from scheduler_loop import LADDER, Loop
from test_capability import steered_by

from adaptive_spec.adapters.sglang.arms import TreeWorker, give_controller, nodes_by_depth
from adaptive_spec.adapters.sglang.settings import TREES_VARIABLE, Settings, requested
from adaptive_spec.adapters.sglang.steered_params import FixedSchedule, SteeredParams
from adaptive_spec.config import Config
from adaptive_spec.errors import ConfigError

LLAMA = 5, 4, 8
"""SGLang's default: steps, top-k, nodes."""
CANDIDATES = (0, 1, 3, 5, 7)
"""SGLang's default."""


def test_nodes_per_level_are_those_of_the_launch() -> None:
    assert nodes_by_depth(*LLAMA, CANDIDATES, {}) == {0: 1, 1: 3, 3: 6, 5: 8}
    assert nodes_by_depth(3, 8, 64, range(4), {}) == {0: 1, 1: 9, 2: 43, 3: 64}


def test_the_operator_lists_trees_in_their_place() -> None:
    assert nodes_by_depth(*LLAMA, CANDIDATES, {2: 3, 1: 2}) == {0: 1, 1: 2, 2: 3, 5: 8}
    assert nodes_by_depth(*LLAMA, CANDIDATES, {5: 8}) == {0: 1, 5: 8}


@pytest.mark.parametrize(
    ("launch", "listed", "said"),
    [
        (LLAMA, {1: 6}, "no tree of 6 nodes at depth 1"),  # top-k 4: five at most
        (LLAMA, {3: 3}, "no tree of 3 nodes at depth 3"),
        (LLAMA, {1: 4, 2: 4}, "no tree of 4 nodes at depth 2"),
        (LLAMA, {3: 8}, "no tree of 8 nodes at depth 3"),
        (LLAMA, {5: 7}, "no tree of 7 nodes at depth 5"),
        (LLAMA, {0: 2}, "no tree of 2 nodes at depth 0"),
        (LLAMA, {6: 9}, "depth 6 is above the launch's 5"),
        ((5, 4, 5), {}, "nodes must rise with the depth and exceed it"),
    ],
)
def test_what_sglang_could_not_build_is_refused(
    launch: tuple[int, int, int], listed: dict[int, int], said: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        nodes_by_depth(*launch, CANDIDATES, listed)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["1", "1:3:4", "x:2", "1:3,1:4", "-1:2"])
def test_a_list_of_trees_that_cannot_be_read_is_one_line(text: str, tmp_path: Any) -> None:
    config = tmp_path / "config.json"
    config.write_text("{}")
    environ = {"ADAPTIVE_SPEC_CONFIG": str(config), TREES_VARIABLE: text}
    with pytest.raises(ConfigError, match=TREES_VARIABLE):
        requested(environ)
    settings = requested(environ | {TREES_VARIABLE: " 1:3, 2:5,"})
    assert settings is not None
    assert settings.trees == {1: 3, 2: 5}


class Worker:
    """As much of SGLang's worker as is asked before anything is built."""

    adaptive_controller: Any = None

    def __init__(self, topk: int, *, standalone: bool = False, **arguments: Any) -> None:
        self.topk = topk
        self.speculative_algorithm = SimpleNamespace(is_standalone=lambda: standalone)
        self.server_args = SimpleNamespace(speculative_eagle_topk=topk, **arguments)
        self.speculative_num_steps = 5
        self.built: list[tuple[int, int, Any]] = []

    def build_adaptive_runtime_state(self, steps: int, tokens: int, sizes: Any) -> None:
        self.built.append((steps, tokens, sizes))


@pytest.mark.parametrize(
    ("worker", "why"),
    [
        (Worker(1), ""),  # SGLang's own controller, or none by the operator's choice
        (Worker(4), "this SGLang has changed a part that token trees needs"),
        (Worker(4, enable_pdmux=True), "not with pdmux"),
        (Worker(4, enable_lora=True), "not with LoRA and --speculative-eagle-topk above 1"),
        (Worker(4, pp_size=2), "not with pipeline parallelism"),
        (Worker(1, standalone=True, enable_pdmux=True), "not with pdmux"),
        (
            Worker(1, attn_dp_size=2, speculative_algorithm="EAGLE3"),
            "this SGLang has changed a part that token trees needs",
        ),
    ],
)
def test_which_workers_get_no_controller(worker: Worker, why: str) -> None:
    assert give_controller(worker, Settings(config=Config()), frozenset()) == why
    assert worker.adaptive_controller is None


def test_each_depth_is_built_with_its_nodes() -> None:
    """SGLang's controller asks for chains: steps + 1 tokens."""
    worker = Worker(4)
    owner = TreeWorker(worker, {0: 1, 1: 3, 5: 8})
    owner.build_adaptive_runtime_state(
        speculative_num_steps=1, speculative_num_draft_tokens=2, cuda_graph_bs=[1, 2]
    )
    assert worker.built == [(1, 3, [1, 2])]
    worker.speculative_num_steps = 1
    assert owner.speculative_num_steps == 1


def tree_params() -> SteeredParams:
    nodes = {k: 1 + 2 * k for k in LADDER}
    return SteeredParams(FixedSchedule(LADDER[-1], LADDER, nodes))


def test_the_capability_has_the_nodes_of_each_depth() -> None:
    capability = steered_by(tree_params()).capability
    assert capability.uniform_values == LADDER
    assert capability.tree_nodes == tuple(1 + 2 * k for k in LADDER)
    assert steered_by(SteeredParams(FixedSchedule(7, LADDER))).capability.tree_nodes == ()


def test_outcomes_of_trees_have_depths_as_labels_and_nodes_as_tokens() -> None:
    loop = Loop(nodes_of=lambda k: 1 + 2 * k)
    loop.own = FixedSchedule(LADDER[-1], LADDER, {k: 1 + 2 * k for k in LADDER})
    loop.params = SteeredParams(loop.own)
    policy = RecordingPolicy()
    loop.attach(policy)
    loop.run(200)
    ran = {int(outcome.verified[0]) for outcome in policy.outcomes if outcome.slots.size}
    assert ran == set(LADDER)
    for outcome in policy.outcomes:
        assert outcome.batch_tokens == outcome.batch_size * (1 + 2 * outcome.draft_depth)
        assert (outcome.accepted <= outcome.verified).all()
    assert loop.driver is not None
    assert loop.driver.controller is not None
    assert not loop.driver.controller.counters.failures
