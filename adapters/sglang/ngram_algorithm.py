"""NGRAM with a K that changes, as an algorithm registered with SGLang: ``ADAPTIVE_NGRAM``.

Built-in names are reserved, so it carries its own; otherwise it answers SGLang's questions as NGRAM
does. It needs the synchronous schedule: under overlap SGLang reads the last step's tokens with the
width of this one.
"""

from __future__ import annotations

from typing import Any

from adaptive_spec.adapters.sglang.rules import NGRAM_NAME

_RESOLVED = (
    "enable_mixed_chunk",
    "max_running_requests",
    "speculative_eagle_topk",
    "speculative_num_draft_tokens",
    "speculative_num_steps",
)


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

        server_args.disable_overlap_schedule = True
        _handle_ngram(server_args)
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
