"""K for workers that SGLang runs with one: STANDALONE, token trees, and EAGLE with attention DP.

SGLang's `AdaptiveController` exists for EAGLE's chains only, without attention DP. It is given to
the other workers of that family, with a schedule that never changes: whatever is decided is ours.

With a tree K is its depth, SGLang's `speculative_num_steps`; top-k stays that of the launch. Each K
has one number of nodes, so that a step's nodes tell its K, and a position's acceptance is that one
of the nodes of its depth is right. Nodes per level are those of the launch at every K, so that what
is learned at one K holds at the others. K = 0 is the root alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from adaptive_spec.adapters.sglang import facts
from adaptive_spec.adapters.sglang.capability import unsupported_here
from adaptive_spec.adapters.sglang.housekeeping import TREE_SOURCE
from adaptive_spec.adapters.sglang.rules import attention_dp
from adaptive_spec.adapters.sglang.settings import TREES_VARIABLE, Settings
from adaptive_spec.adapters.sglang.steered_params import FixedSchedule, SteeredParams, ladder_below
from adaptive_spec.errors import ConfigError


def give_controller(worker: Any, settings: Settings, features: frozenset[str]) -> str:
    """Give a worker that was just built a controller; return why not, empty if it has one.

    Empty as well for a chain of EAGLE without attention DP, which has SGLang's where the operator
    asks for it.

    Args:
        worker: EAGLEWorkerV2 or StandaloneWorkerV2.
        settings: what was asked for.
        features: features that this SGLang allows.
    """
    tree, replicas = worker.topk > 1, attention_dp(worker.server_args)
    chain_of_eagle = not tree and not worker.speculative_algorithm.is_standalone()
    if (chain_of_eagle and not replicas) or worker.adaptive_controller is not None:
        return ""
    if why := unsupported_here(worker.server_args):
        return why
    for needed, feature in ((tree or replicas, facts.TREES), (replicas, facts.ATTENTION_DP)):
        if needed and feature not in features:
            return f"this SGLang has changed a part that {feature} needs"
    from sglang.srt.speculative import adaptive_runtime_state, adaptive_spec_params

    path = getattr(worker.server_args, "speculative_adaptive_config", None)
    candidates = adaptive_spec_params.resolve_candidate_steps_from_config(cfg_path=path)
    owner, nodes = worker, None
    if tree:
        launch = worker.speculative_num_steps, worker.topk, worker.speculative_num_draft_tokens
        try:
            nodes = nodes_by_depth(*launch, candidates, settings.trees)
        except ConfigError as error:
            return str(error)
        owner, candidates = TreeWorker(worker, nodes), nodes
    params = SteeredParams(FixedSchedule(worker.speculative_num_steps, candidates, nodes))
    # Not through its constructor: before 0.5.20 that builds parameters of its own.
    controller_class = adaptive_runtime_state.AdaptiveController
    controller = controller_class.__new__(controller_class)
    controller.worker, controller.params, controller._states = owner, params, {}
    worker.adaptive_controller = controller
    return ""


def nodes_by_depth(
    steps: int, topk: int, nodes: int, candidates: Iterable[int], listed: Mapping[int, int]
) -> dict[int, int]:
    """Return the nodes, with the root, of each depth that may run, ascending.

    Raises ConfigError, one line, where SGLang could not build a tree, or two depths have as many.

    Args:
        steps: depth of the launch.
        topk: of the launch.
        nodes: of the launch, with the root.
        candidates: depths; those below the launch's are used.
        listed: nodes by depth as the operator wants them, in place of the candidates; may be empty.
    """
    ladder = ladder_below(steps, (0, *listed) if listed else candidates)
    found: dict[int, int] = {}
    before = 0
    for depth in ladder:
        most = 1 if depth == 0 else 1 + topk + (depth - 1) * topk * topk
        as_launched = nodes if depth == steps else 1 - (1 - nodes) * depth // steps
        each = found[depth] = listed.get(depth, min(as_launched, most))
        if not max(before, depth) < each <= min(most, nodes) or (depth == steps) != (each == nodes):
            raise ConfigError(
                f"{TREES_VARIABLE}: no tree of {each} nodes at depth {depth} beside the launch's "
                f"{nodes} at {steps}, top-k {topk}: nodes must rise with the depth and exceed it"
            )
        before = each
    if deeper := [depth for depth in listed if depth > steps]:
        raise ConfigError(f"{TREES_VARIABLE}: depth {deeper[0]} is above the launch's {steps}")
    return found


class TreeWorker:
    """SGLang's worker as its controller sees it, which takes all drafts for chains.

    Args:
        worker: SGLang's.
        nodes: by depth.
    """

    def __init__(self, worker: Any, nodes: Mapping[int, int]) -> None:
        self._worker, self._nodes = worker, nodes
        self._launched = worker.speculative_num_steps

    @property
    def speculative_num_steps(self) -> int:
        """Depth that runs now."""
        return int(self._worker.speculative_num_steps)

    def build_adaptive_runtime_state(
        self,
        speculative_num_steps: int,
        speculative_num_draft_tokens: int,
        cuda_graph_bs: list[int] | None = None,
    ) -> Any:
        """Build buffers and graphs of a depth, with its nodes in place of a chain's."""
        return self._worker.build_adaptive_runtime_state(
            speculative_num_steps, self._nodes[speculative_num_steps], cuda_graph_bs
        )

    def apply_runtime_state(self, state: Any) -> None:
        """Switch the depth; KV slots are reserved for the launch's before K is known."""
        from sglang.srt.runtime_context import get_context

        self._worker.apply_runtime_state(state)
        # A step drafts into depth x top-k slots, which SGLang reserves by this value.
        get_context().override(TREE_SOURCE, speculative_num_steps=self._launched)
