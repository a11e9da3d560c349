"""Advice on a server that steers trees: a step is priced by its nodes, not by its depth."""

from pathlib import Path
from typing import Any

import pytest

from adaptive_spec.sim.advice import setups
from adaptive_spec.sim.advice.summary import observe
from adaptive_spec.sim.advice.worlds import recorded_world
from adaptive_spec.sim.drafters.trees import SteeredTree, steered_tree
from adaptive_spec.sim.hardware.from_trace import read_timed_steps
from adaptive_spec.step import Capability, Level
from tests.sim.small_server import PlainDrafter, PlainHardware, closed_load, independent, server

LADDER, NODES = (0, 1, 3, 5), (1, 3, 6, 8)
ENGINE = Capability(level=Level.UNIFORM, max_draft_tokens=5, ladder=LADDER, tree_nodes=NODES)
HARDWARE = PlainHardware(token=1e-3)


class Tree(PlainDrafter):
    """Has the nodes of SGLang's default tree."""

    def extra_tokens(self, k: int) -> int:
        return steered_tree(ENGINE).extra_tokens(k)

    def tree_nodes(self, ks: Any) -> tuple[int, ...]:
        return steered_tree(ENGINE).tree_nodes(ks)


def served(k: int, clients: int = 8, drawn: float = 0.0, folder: Path | None = None) -> Any:
    return server(
        closed_load(clients),
        "static",
        policy_options={"k": k, "uniform_fraction": drawn},
        data=independent(0.7, 20_000, depth=5, records=100),
        hardware=HARDWARE,
        drafter=Tree(),
        trace_directory=None if folder is None else str(folder),
        level=Level.UNIFORM,
        ladder=LADDER,
        max_draft_tokens=5,
    )


def test_nodes_at_depths_that_do_not_run_are_in_between() -> None:
    tree = steered_tree(ENGINE)
    assert tree == SteeredTree(nodes=(1, 3, 4, 6, 7, 8))
    assert [tree.extra_tokens(k) for k in LADDER] == [0, 1, 2, 2]
    assert tree.tree_nodes(LADDER) == NODES


def test_a_policy_of_the_simulator_sees_the_trees() -> None:
    assert served(3).capability.tree_nodes == NODES


@pytest.mark.parametrize("k", [1, 3, 5])
def test_predicted_throughput_of_a_depth_is_what_the_server_does(tmp_path: Path, k: int) -> None:
    for clients in (2, 8):
        served(3, clients, 1.0, tmp_path / str(clients)).run(max_tokens=4000 * clients)
    traces = sorted(tmp_path.iterdir())
    world = recorded_world(observe(traces), read_timed_steps(traces), drafter="eagle", seed=0)
    assert isinstance(world.traffic.drafter, SteeredTree)
    real = served(k).run(max_tokens=8000, warmup_steps=100).throughput_tok_s
    found = world.run(setups.static(k), 8).tokens_per_second
    assert found == pytest.approx(real, rel=0.03)
