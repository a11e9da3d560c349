"""What becomes of speculation beside TensorRT-LLM's other features.

The table is that of `adaptive_spec.engines.rules`; PATCHES.md has the longer story of each row.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from adaptive_spec.adapters.tensorrt_llm.ladder import is_a, may_vary
from adaptive_spec.engines.rules import INERT, SHADOW, SUPPORTED, Rule, when

_ONE_ENGINE = "tests/tensorrt_llm/test_one_engine.py"


class Setup(NamedTuple):
    """An executor, as a rule's reason reads it.

    Attributes:
        executor: TensorRT-LLM's PyExecutor.
        spec_config: its speculative configuration, or None.
    """

    executor: Any
    spec_config: Any

    @property
    def method(self) -> str:
        """TensorRT-LLM's name of the speculation mode."""
        mode = getattr(self.spec_config, "spec_dec_mode", "")
        return str(getattr(mode, "name", mode))


def uses_kv_manager_v2(executor: Any) -> bool:
    """Return whether KV blocks are reserved during scheduling, before K is known."""
    declared = getattr(executor, "_is_kv_manager_v2", None)
    if declared is not None:
        return bool(declared)
    return is_a(getattr(executor, "kv_cache_manager", None), "KVCacheManagerV2")


def _drafts_trees(spec_config: Any) -> bool:
    """Return whether drafts are trees: the upper limit of nodes says so, or the dynamic tree does.

    With one child for each node upstream drafts a chain.
    """
    if not getattr(spec_config, "is_linear_tree", True):
        return True
    width = getattr(spec_config, "dynamic_tree_max_topK", None)
    return bool(getattr(spec_config, "use_dynamic_tree", False)) and width != 1


def _fixed_length(setup: Setup) -> str:
    return "" if may_vary(setup.spec_config) else f"{setup.method} has a fixed draft length"


RULES: tuple[Rule[Setup], ...] = (
    Rule(
        "EAGLE3, MTP, draft target, PARD, DFlash, suffix automaton in one engine",
        SUPPORTED,
        "one K per batch and iteration, where `support_dynamic_draft_len` has the mode",
        _ONE_ENGINE,
    ),
    Rule(
        "tensor parallelism",
        SUPPORTED,
        "rank 0 decides, and all ranks run its K",
        "tests/tensorrt_llm/test_ranks.py",
    ),
    Rule(
        "attention data parallelism",
        SUPPORTED,
        "every rank proposes, and the largest K runs; TensorRT-LLM's own schedule reads the batch "
        "of each rank, and ranks that differ may wait for ever (#16888)",
        "tests/tensorrt_llm/test_ranks.py",
    ),
    Rule(
        "a mode that needs its passes, such as vanilla MTP with several modules; DSpark; "
        "two engines",
        INERT,
        "the draft length is fixed",
        _ONE_ENGINE,
        _fixed_length,
    ),
    Rule(
        "KV cache manager V2",
        SHADOW,
        "it reserves before K is known (#18661)",
        _ONE_ENGINE,
        when(
            lambda setup: uses_kv_manager_v2(setup.executor),
            "KV cache manager V2 reserves before K is known "
            "(kv_cache_config.use_kv_cache_manager_v2: false)",
        ),
    ),
    Rule(
        "pipeline parallelism",
        SHADOW,
        "never executed",
        _ONE_ENGINE,
        when(
            lambda setup: getattr(setup.executor.dist, "pp_size", 1) > 1,
            "pipeline parallelism",
        ),
    ),
    Rule(
        "context parallelism",
        SHADOW,
        "never executed",
        _ONE_ENGINE,
        when(
            lambda setup: getattr(setup.executor.dist, "cp_size", 1) > 1,
            "context parallelism",
        ),
    ),
    Rule(
        "prefill/decode disaggregation",
        SHADOW,
        "never executed",
        _ONE_ENGINE,
        when(
            lambda setup: getattr(setup.executor, "kv_cache_transceiver", None) is not None,
            "prefill/decode disaggregation",
        ),
    ),
    Rule(
        "KV connector",
        SHADOW,
        "never executed",
        _ONE_ENGINE,
        when(
            lambda setup: getattr(setup.executor, "kv_connector_manager", None) is not None,
            "KV connector",
        ),
    ),
    Rule(
        "tree drafts",
        SHADOW,
        "K is not the depth of a tree, and its buffers are those of the launch",
        _ONE_ENGINE,
        when(lambda setup: _drafts_trees(setup.spec_config), "tree drafts"),
    ),
    Rule(
        "use_rejection_sampling",
        SHADOW,
        "filler would be judged by draft probabilities of an earlier iteration",
        _ONE_ENGINE,
        when(
            lambda setup: getattr(setup.spec_config, "use_rejection_sampling", False),
            "use_rejection_sampling: filled-up drafts have no probabilities of their own",
        ),
    ),
)
