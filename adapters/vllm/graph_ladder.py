"""CUDA graphs for every K that may run: the ladder, captured through vLLM's own schedule of K.

Model runner V2 captures a decode graph for each number of tokens per request that the user's
schedule of K by batch size names (v1/worker/gpu/cudagraph_utils.py:268), and fused draft loops for
the same numbers (v1/worker/gpu/spec_decode/target_dependent_ar/cudagraph_utils.py:60); without a
schedule for 1 + Kmax only. So a schedule that names the whole ladder is put in, for capture; the
scheduler gets the user's own back, so that fail-open means what the user configured.

A batch runs in the next larger captured size, and in full only if that size is a multiple of its
own tokens per request (cudagraph_utils.py:106, 381; vllm#56136, open). Sizes captured for one K
would take batches of another K, Kmax included, from their graphs. So the sizes are chosen anew:
multiples of what all rungs have in common, and every single size where that is too coarse.

Where the target gets varlen graphs (`varlen_graphs`), which take every K, the schedule is for the
draft loops alone: they run one token per request at every depth, so that the sizes stay vLLM's.

Not on model runner V1, where a schedule turns its full graphs off (config/vllm.py:1039), and not
with data parallelism, where vLLM drops it (config/vllm.py:1058).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import combinations, pairwise
from typing import Any, TypeAlias

import msgspec

Schedule: TypeAlias = list[tuple[int, int, int]]
"""vLLM's ``num_speculative_tokens_per_batch_size``: first and last batch size, K."""

ATTRIBUTE = "adaptive_spec_ladder"
"""Name under which the gate leaves the ladder on `SchedulerConfig`."""

# Each rung costs a graph per batch size, at start-up and in memory.
MOST_BETWEEN = 3
"""Rungs between 0 and Kmax."""

# vLLM's own sizes are 8 to 16 tokens apart.
FINEST, COARSEST = 8, 24
"""Tokens between captured sizes: the most padding of a batch."""


class GraphLadder(msgspec.Struct, frozen=True, kw_only=True):
    """Captured rungs, and the settings of the user before them.

    Attributes:
        values: K with graphs of their own, ascending.
        user_schedule: the user's schedule of K by batch size; None without one.
        graphs: decode graphs of the target, in all; 0 where only draft loops are captured for it.
    """

    values: tuple[int, ...]
    user_schedule: Schedule | None
    graphs: int


def capture(vllm_config: Any, *, drafts_only: bool = False) -> GraphLadder | None:
    """Have a resolved `VllmConfig` capture the ladder; None, and no change, where that can't be.

    Args:
        vllm_config: vLLM's.
        drafts_only: the target's graphs take every K; capture draft loops.
    """
    if not can_capture(vllm_config):
        return None
    speculation, most = vllm_config.speculative_config, vllm_config.scheduler_config.max_num_seqs
    compilation = vllm_config.compilation_config
    kmax = int(vllm_config.num_speculative_tokens)
    given: Schedule | None = speculation.num_speculative_tokens_per_batch_size
    users = () if given is None else _dense(given, most, kmax)[1:]
    values = rungs(kmax, users, most=most, shared=not drafts_only)
    if not values:
        return None
    graphs = 0
    if not drafts_only:
        sizes = capture_sizes(values, most, compilation.max_cudagraph_capture_size)
        graphs = sum(
            size % (1 + k) == 0 and size <= most * (1 + k) for size in sizes for k in values
        )
        compilation.cudagraph_capture_sizes = sizes
    ladder = GraphLadder(values=values, user_schedule=given, graphs=graphs)
    speculation.num_speculative_tokens_per_batch_size = schedule_for(values, most)
    # On the nested object: vLLM copies VllmConfig field by field and stumbles over strangers.
    setattr(vllm_config.scheduler_config, ATTRIBUTE, ladder)
    return ladder


def can_capture(vllm_config: Any) -> bool:
    """Are there full decode graphs, and would a schedule add to them?"""
    from vllm.config import CUDAGraphMode

    return bool(
        vllm_config.use_v2_model_runner
        and vllm_config.parallel_config.data_parallel_size == 1
        and vllm_config.compilation_config.cudagraph_mode.decode_mode() == CUDAGraphMode.FULL
        and vllm_config.compilation_config.max_cudagraph_capture_size
    )


def captured(vllm_config: Any) -> GraphLadder | None:
    """The ladder that `capture` put in, in this process or in the one that made the config."""
    found: GraphLadder | None = getattr(vllm_config.scheduler_config, ATTRIBUTE, None)
    return found


def give_back_schedule(scheduler: Any) -> None:
    """Let a newly built scheduler look K up in the user's schedule, or nowhere.

    Before anything else reads `dynamic_sd_lookup`.
    """
    ladder = captured(scheduler.vllm_config)
    if ladder is None:
        return
    scheduler.dynamic_sd_lookup = (
        None
        if ladder.user_schedule is None
        else _dense(
            ladder.user_schedule, scheduler.scheduler_config.max_num_seqs, scheduler.num_spec_tokens
        )
    )


def rungs(kmax: int, users: Iterable[int], *, most: int, shared: bool = True) -> tuple[int, ...]:
    """The K of the ladder, ascending; empty if graphs of several K don't fit beside each other.

    Kmax, 0, what the user's own schedule names, and up to `MOST_BETWEEN` more, so that tokens per
    request grow by ratios as equal as can be. Together they must have a common multiple that is no
    coarser than `COARSEST`, or twice 1 + Kmax where that is more.

    Args:
        kmax: the K the engine was configured with.
        users: K of the user's schedule.
        most: rungs that fit, one per batch size: the engine's ``max_num_seqs``.
        shared: batches of all rungs run in the same captured sizes. Draft loops need no common
            multiple.
    """
    coarsest: float = max(COARSEST, 2 * (1 + kmax)) if shared else math.inf
    base = {0, kmax, *users}
    if len(base) > most or _stride(base) > coarsest:
        return ()
    others = [k for k in range(1, kmax) if k not in base and _stride({*base, k}) <= coarsest]
    ladders = [
        tuple(sorted({*base, *between}))
        for count in range(min(MOST_BETWEEN, most - len(base), len(others)) + 1)
        for between in combinations(others, count)
    ]
    return min(
        (ladder for ladder in ladders if _stride(ladder) <= coarsest),
        key=lambda ladder: sum(math.log((1 + b) / (1 + a)) ** 2 for a, b in pairwise(ladder)),
    )


def capture_sizes(values: tuple[int, ...], max_num_seqs: int, largest: int) -> list[int]:
    """Captured sizes in tokens, ascending, with a full graph for every batch of every rung.

    Multiples of the rungs' common multiple have a graph for each of them. Between two of these
    every size is captured where padding would weigh most, which is below the first, and where the
    batches of a rung end, because the upper one has no graph for so many requests.

    Args:
        values: K of the ladder.
        max_num_seqs: most requests in a batch.
        largest: most tokens that vLLM captures.
    """
    stride = _stride(values)
    stride *= -(-FINEST // stride)
    sizes = set(range(stride, largest + 1, stride))
    for inside in (1, largest, *(max_num_seqs * (1 + k) for k in values)):
        if inside <= largest and inside % stride:
            below = inside - inside % stride
            sizes.update(range(below + 1, min(below + stride, largest) + 1))
    return sorted(sizes)


def schedule_for(values: tuple[int, ...], most: int) -> Schedule:
    """A schedule that names every value: one batch size each, the last for all the others."""
    count = len(values)
    return [(place, place if place < count else most, k) for place, k in enumerate(values, start=1)]


def _stride(values: Iterable[int]) -> int:
    """Return the greatest common divisor of the tokens per request of all rungs."""
    return math.lcm(*(1 + k for k in values))


def _dense(schedule: Schedule, max_num_seqs: int, kmax: int) -> list[int]:
    """K by batch size, as vLLM's scheduler reads it; index 0 is unused."""
    from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup

    lookup: list[int] = build_dynamic_sd_schedule_lookup(
        schedule, vllm_max_batch_size=max_num_seqs, vllm_num_speculative_tokens=kmax
    )
    return lookup


class Unpadded:
    """Stands in for vLLM's table of K by batch size while a step with trimmed drafts is composed.

    vLLM fills the single-token step of an admitted request with placeholder drafts up to
    1 + Kmax, so that the batch fits its uniform graph, unless such a table is present. With
    trimmed drafts the batch doesn't fit that graph anyway, and the placeholders are only work.
    """

    def __init__(self, k: int) -> None:
        self._k = k

    def __getitem__(self, batch_size: int) -> int:
        return self._k
