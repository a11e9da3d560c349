"""Ladder of K values that may run.

CUDA graphs are captured at start-up only, per batch size and K; any other K runs without a graph.
So K is taken from a short ladder, and each of its values gets a graph at each batch size.
"""

from __future__ import annotations

from typing import Any

_STEPS = (1, 2, 3, 5, 8)
"""Default K values, closer together where one draft matters most."""


def floor_of(spec_config: Any) -> int:
    """Return the smallest K that leaves the drafter usable: 0 or 1.

    A step with K = 0 skips the drafter's forward pass. In the one-engine modes the drafter's state
    then lacks the accepted tokens, and acceptance stays low from there on (TensorRT-LLM #16888).
    Newer versions declare where 0 is safe; in older ones 0 is safe for drafters without state.
    """
    declared = getattr(spec_config, "min_runtime_draft_len", None)
    if declared is not None:
        return int(declared)
    return 0 if _stateless(spec_config) else 1


def keeps_drafter_warm(spec_config: Any) -> bool:
    """Return whether the drafter still runs the pass that keeps its state current at K = 0."""
    return bool(getattr(spec_config, "keep_drafter_warm", False))


def may_vary(spec_config: Any) -> bool:
    """Return whether the mode stands another K in each iteration."""
    mode = spec_config.spec_dec_mode
    if getattr(mode, "is_mtp_vanilla", bool)() and int(spec_config.max_draft_len) > 1:
        # One module per draft: at a smaller K the KV of the later modules is not written, and no
        # floor keeps all of them current (TensorRT-LLM #16888). Older versions vary K anyway.
        return False
    return bool(getattr(mode, "support_dynamic_draft_len", bool)())


def is_dynamic(spec_config: Any) -> bool:
    """Return whether K may be resolved per iteration for this configuration."""
    if spec_config is None or not getattr(spec_config, "draft_len_schedule", None):
        return False
    return may_vary(spec_config)


def lacks_room(resources: Any, max_batch_size: int, ladder: tuple[int, ...]) -> str:
    """Return why a padding dummy for each K may find no slot; empty if all have one.

    Upstream makes a dummy request for each K that has graphs and keeps it. A dummy takes a slot of
    a state-space model's states and of the drafter's. Some managers have one slot to spare, and
    the loop ends ("No free slots") when a full batch comes.

    Args:
        resources: upstream's ResourceManager.
        max_batch_size: most requests of a batch.
        ladder: K values with graphs.
    """
    managers = {kind.name: manager for kind, manager in resources.resource_managers.items()}
    if is_a(managers.get("KV_CACHE_MANAGER"), "Mamba"):
        return "hybrid model"
    manager = managers.get("SPEC_RESOURCE_MANAGER")
    if manager is None or is_a(manager, "SuffixAutomaton"):  # one slot for all dummies
        return ""
    slots = getattr(getattr(manager, "slot_manager", None), "max_num_requests", None)
    if slots is None:
        return f"slots of {type(manager).__name__} are not known"
    spare = int(slots) - max_batch_size
    return "" if spare >= len(ladder) else f"{spare} spare drafter slots"


def is_a(thing: Any, word: str) -> bool:
    """Return whether a word is part of the name of an object's class or of a base class."""
    return any(word in cls.__name__ for cls in type(thing).__mro__)


def ladder_of(
    spec_config: Any, asked: tuple[int, ...] = (), *, only_scheduled: bool = False
) -> tuple[int, ...]:
    """Return the K values that may run, ascending.

    They include Kmax and the values of the user's `draft_len_schedule`, which runs where a decision
    is missing.

    Args:
        spec_config: upstream's speculative configuration.
        asked: the user's K values in place of the default ones.
        only_scheduled: use values of the schedule only, because there is no room for more.
    """
    largest, floor = int(spec_config.max_draft_len), floor_of(spec_config)
    wanted = set(spec_config.draft_len_schedule.values())
    if not only_scheduled:
        wanted |= set(asked or (0, *_STEPS))
    return tuple(sorted({k for k in wanted if floor <= k <= largest} | {largest}))


def _stateless(spec_config: Any) -> bool:
    mode = spec_config.spec_dec_mode
    return any(getattr(mode, name, bool)() for name in ("is_ngram", "is_sa"))
