"""NGRAM with a K that changes, as an algorithm registered with SGLang: ``ADAPTIVE_NGRAM``.

Built-in names are reserved, so it carries its own; otherwise it answers SGLang's questions as NGRAM
does. It needs the synchronous schedule: under overlap SGLang reads the last step's tokens with the
width of this one.
"""

from __future__ import annotations

import functools
import logging
from typing import Any

from adaptive_spec.adapters.sglang.rules import NGRAM_NAME

_RESOLVED = (
    "enable_mixed_chunk",
    "max_running_requests",
    "speculative_eagle_topk",
    "speculative_num_draft_tokens",
    "speculative_num_steps",
)


_LOG = logging.getLogger("sglang.adaptive_spec")


def register_algorithm() -> None:
    """Register ADAPTIVE_NGRAM with SGLang, once."""
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
    from sglang.srt.speculative.spec_registry import get_spec

    if get_spec(NGRAM_NAME) is not None:
        return
    decorate = SpeculativeAlgorithm.register(
        NGRAM_NAME, supports_overlap=False, spec_class=_algorithm_class()
    )
    decorate(_worker_class)


def trie_problem(server_args: Any) -> str:
    """Return why SGLang's trie cannot hold what these arguments ask of it; empty if it can.

    SGLang finds out at the first request, and its scheduler ends (sglang#36495).
    """
    depth = int(server_args.speculative_ngram_max_trie_depth)
    capacity = int(server_args.speculative_ngram_capacity)
    least = int(server_args.speculative_ngram_min_bfs_breadth)
    most = int(server_args.speculative_ngram_max_bfs_breadth)
    if depth < 2:
        return f"--speculative-ngram-max-trie-depth {depth} is below 2"
    if capacity <= depth:  # the root takes a node, too
        return (
            f"--speculative-ngram-capacity {capacity} holds no path of "
            f"--speculative-ngram-max-trie-depth {depth}: {depth + 1} is the least"
        )
    if not 1 <= least <= most:
        return (
            f"--speculative-ngram-min-bfs-breadth {least} must be 1 to "
            f"--speculative-ngram-max-bfs-breadth {most}"
        )
    return ""


class _AsNgram:
    """SGLang's speculative settings, by the name that its corpora go by."""

    speculative_algorithm = "NGRAM"

    def __init__(self, spec: Any) -> None:
        self._spec = spec

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spec, name)


def let_corpora_know_the_name() -> None:
    """Let SGLang's calls that add, remove and list external corpora take our name for NGRAM.

    They compare the algorithm's name by value (sglang#35102).
    """
    try:
        from sglang.srt.managers import tokenizer_control_mixin as module

        own = module.get_spec
        if hasattr(own, "__wrapped__"):
            return

        @functools.wraps(own)
        def get_spec() -> Any:
            spec = own()
            return _AsNgram(spec) if spec.speculative_algorithm == NGRAM_NAME else spec

        module.get_spec = get_spec
    except Exception as error:
        _LOG.warning(
            "adaptive_spec: external corpora cannot be added while it runs as %s: %s: %s",
            NGRAM_NAME,
            type(error).__name__,
            error,
        )


def _worker_class(server_args: Any) -> Any:
    """Return the worker's class; SGLang calls this in the scheduler process only."""
    from adaptive_spec.adapters.sglang.ngram_worker import adaptive_worker_class

    return adaptive_worker_class()


def _algorithm_class() -> Any:
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
    from sglang.srt.speculative.spec_registry import CustomSpecAlgo

    def is_ngram(self: Any) -> bool:
        return True

    def answers_no(self: Any) -> bool:
        return False

    def create_future_map(self: Any, *args: Any, **kwargs: Any) -> Any:
        return SpeculativeAlgorithm.create_future_map(self, *args, **kwargs)

    def handle_server_args(self: Any, server_args: Any) -> None:
        from sglang.srt.arg_groups.speculative_hook import _handle_ngram

        if problem := trie_problem(server_args):
            raise ValueError(f"{NGRAM_NAME}: {problem}")
        server_args.disable_overlap_schedule = True
        _handle_ngram(server_args)
        let_corpora_know_the_name()
        # What is resolved for a registered algorithm is recorded by assignment.
        for name in _RESOLVED:
            setattr(server_args, name, getattr(server_args, name))

    return type(
        "AdaptiveNgram",
        (CustomSpecAlgo,),
        {
            "__doc__": "NGRAM with a K that changes.",
            "__module__": __name__,
            "is_ngram": is_ngram,
            "has_draft_kv": answers_no,
            "carries_draft_hidden_states": answers_no,
            "need_topk": answers_no,
            "create_future_map": create_future_map,
            "handle_server_args": handle_server_args,
        },
    )
