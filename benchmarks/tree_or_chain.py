"""Tree or chain, and at which load: SGLang's default tree for Llama against chains of a depth.

    python -m benchmarks.tree_or_chain [--profile NAME] [--tree STEPS,TOPK,NODES] [--context TOKENS]

The hazard of a tree at depth j is the probability that one of the nodes at that depth is right,
given that the path to it was. It follows from the hazards of the first choices (the models shipped
for the simulator), their confidence, and the rank of the right token where the first choice is
wrong (`sim.drafters.ranks`). A tree is grown as SGLang grows it: the `TOPK` likeliest nodes of a
level are expanded, and the likeliest `NODES` less the root are verified. A step takes what its
nodes take, not its depth; the drafter runs `STEPS` passes over `TOPK` tokens for each request.

Columns: tokens per second of the tree over the best chain of 0 to `STEPS` drafts, and that chain;
last, what a tree must emit over a chain as deep to take as long per token. Published measurements
of that ratio disagree: 0.87 and 0.91 (SGLang on an H200, SpecForge), 1.05 to 1.13 (vLLM, pull
request 22752). The model's own ratio stands below the table.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from adaptive_spec.sim.acceptance.data import AcceptanceData, mean_accepted
from adaptive_spec.sim.acceptance.hazard import generate, shipped_model
from adaptive_spec.sim.drafters.base import DraftCost
from adaptive_spec.sim.drafters.chains import NoDrafter
from adaptive_spec.sim.drafters.pricing import draft_cost, network_share
from adaptive_spec.sim.drafters.trees import Eagle2Tree
from adaptive_spec.sim.engine.step_time import StepTime
from adaptive_spec.sim.hardware.registry import hardware

MODELS = ("good", "steady-80", "steady-50", "poor")
LOADS = (1, 4, 16, 32, 64, 128)
DEFAULT = (5, 4, 8)
"""SGLang's steps, top-k and nodes for Llama (arg_groups/speculative_hook.py)."""
CONTEXT = 1024
SEED = 0


class Row(NamedTuple):
    """One load.

    Attributes:
        clients: requests that decode.
        ratios: by model, tokens per second of the tree over those of the best chain.
        chains: by model, K of that chain; 0 is no speculation.
        needed: tokens that the tree must emit over a chain as deep to pay for its nodes.
    """

    clients: int
    ratios: tuple[float, ...]
    chains: tuple[int, ...]
    needed: float


class Worlds:
    """Emitted tokens per step and request, by model: of chains by K, and of the tree."""

    def __init__(self, tree: Eagle2Tree, records: int = 60) -> None:
        self.chains: list[list[float]] = []
        self.trees: list[float] = []
        for name in MODELS:
            data = generate(shipped_model(name), depth=tree.levels, records=records, seed=SEED)
            ks = range(tree.levels + 1)
            self.chains.append([1.0 + mean_accepted(data, k) for k in ks])
            self.trees.append(1.0 + mean_accepted(tree_accepted(tree, data), tree.levels))


def tree_accepted(tree: Eagle2Tree, data: AcceptanceData) -> AcceptanceData:
    """Return the data with the depth of the accepted path in place of a chain's drafts."""
    sizes = tree.shape(data, np.random.default_rng(SEED)).tree_sizes
    assert sizes is not None
    depth = (sizes <= tree.nodes).sum(axis=1).astype(np.uint8)
    return replace(data, accepted=depth)


def rows(profile: str, tree: Eagle2Tree, worlds: Worlds, context: int = CONTEXT) -> list[Row]:
    """Return a row for each load."""
    machine = hardware(profile)
    verify = StepTime(machine, NoDrafter(), 0.0).verify
    share = network_share(machine, layers=1)
    by_tree, by_chain = (
        draft_cost("eagle", machine, share, tokens_per_request=width)
        for width in (tree.branching, 1)
    )

    def seconds(cost: DraftCost, clients: int, drafts: int, depth: int) -> float:
        total = clients * context
        drafting = cost.seconds(depth, clients, total)
        if not depth:  # the drafter keeps its state
            drafting = cost.warm_seconds(clients, total)
        ran = clients * (1 + drafts)
        return drafting + verify(clients, ran, total, 0, 0, any_draft=drafts > 0, ragged=False)

    found = []
    for clients in LOADS:
        chain = [seconds(by_chain, clients, k, k) for k in range(tree.levels + 1)]
        whole = seconds(by_tree, clients, tree.nodes, tree.levels)
        paces = [np.array(emitted) / chain for emitted in worlds.chains]
        found.append(
            Row(
                clients,
                tuple(
                    float(emitted / whole / pace.max())
                    for emitted, pace in zip(worlds.trees, paces, strict=True)
                ),
                tuple(int(pace.argmax()) for pace in paces),
                whole / chain[-1],
            )
        )
    return found


def table(profile: str, tree: Eagle2Tree, worlds: Worlds, context: int = CONTEXT) -> str:
    """Return the table as Markdown."""
    lines = [
        f"| clients | {' | '.join(MODELS)} | a tree must emit |",
        f"| --- |{' --- |' * (len(MODELS) + 1)}",
    ]
    for row in rows(profile, tree, worlds, context):
        cells = [f"{ratio:.2f} (K = {k})" for ratio, k in zip(row.ratios, row.chains, strict=True)]
        lines.append(f"| {row.clients} | {' | '.join(cells)} | {row.needed:.2f} |")
    emits = [
        f"{emitted / chain[-1]:.2f}"
        for emitted, chain in zip(worlds.trees, worlds.chains, strict=True)
    ]
    lines.append(f"| a tree emits, by the model | {' | '.join(emits)} | |")
    return "\n".join(lines)


def tree_of(steps: int, topk: int, nodes: int) -> Eagle2Tree:
    """Return SGLang's tree; its number of nodes counts the root."""
    return Eagle2Tree(levels=steps, branching=topk, nodes=nodes - 1)


def published() -> str:
    """Return the table of docs/simulator.md."""
    tree = tree_of(*DEFAULT)
    return table("h100-llama-8b", tree, Worlds(tree))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--profile", default="h100-llama-8b")
    parser.add_argument("--tree", default=",".join(map(str, DEFAULT)), help="STEPS,TOPK,NODES")
    parser.add_argument("--context", type=int, default=CONTEXT, help="tokens of each request")
    args = parser.parse_args()
    tree = tree_of(*map(int, args.tree.split(",")))
    print(table(args.profile, tree, Worlds(tree), args.context))


if __name__ == "__main__":
    main()
