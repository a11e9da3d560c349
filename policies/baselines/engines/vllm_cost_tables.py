"""vLLM's cost tables for adaptive verification: step times measured once, before serving.

Times of dummy steps at the captured graph sizes, and at sizes past them (1.5 x the last, then
doubling), become a curve that never falls: a staircase inside the captured sizes, where a step
runs as the next captured one, linear between the sizes past them. Each step is measured with
8,192 tokens of context per request, whatever serving brings.

Source: `build_cost_tables_from_curves`, `batches_to_profile` in
vllm/v1/worker/gpu/spec_decode/adaptive_verification.py of vLLM 0.32. The dummy steps are replaced
by a cost profile.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from adaptive_spec.cost.profile import CostProfile
from adaptive_spec.step import Capability, FloatArray, IntArray

PROFILED_CONTEXT = 8192
"""Tokens of context per request while profiling."""
_MOST_TOKENS = 8192
_WITHOUT_GRAPHS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)


class CostCurve:
    """Cost by size, never falling.

    Args:
        sizes: measured sizes, ascending.
        costs: what they cost; any unit.
        graph_limit: largest captured size; 0: none is, and sizes snap to the next measured one.
    """

    def __init__(self, sizes: Sequence[int], costs: Sequence[float], graph_limit: int) -> None:
        self._sizes: FloatArray = np.asarray(sizes, dtype=np.float64)
        self._costs: FloatArray = np.maximum.accumulate(np.asarray(costs, dtype=np.float64))
        self._graph_limit = graph_limit

    def at(self, sizes: IntArray) -> FloatArray:
        """Cost at these sizes."""
        x, y = self._sizes, self._costs
        cost: FloatArray = y[np.minimum(np.searchsorted(x, sizes, side="left"), len(x) - 1)]
        outside = x > self._graph_limit
        if self._graph_limit and outside.any():
            # Leaving the graphs is a jump: nothing is blended over it.
            smooth = sizes > self._graph_limit
            cost[smooth] = np.interp(sizes[smooth], x[outside], y[outside])
        if len(x) > 1:
            after = sizes > x[-1]
            slope = (y[-1] - y[-2]) / (x[-1] - x[-2])
            cost[after] = y[-1] + slope * (sizes[after] - x[-1])
        return cost


def profiled_curves(profile: CostProfile, capability: Capability) -> tuple[CostCurve, CostCurve]:
    """Curves of drafting by requests and of verifying by tokens, seconds, as profiled at start-up.

    A dummy step of n tokens has ceil(n / (Kmax + 1)) requests.
    """
    kmax = capability.max_draft_tokens
    captured = [size for size in capability.token_buckets if size <= _MOST_TOKENS]
    sizes = sorted({*captured, *_past(captured[-1])}) if captured else list(_WITHOUT_GRAPHS)
    graph_limit = captured[-1] if captured else 1
    tokens = np.array(sizes, dtype=np.float64)
    requests = np.ceil(tokens / (kmax + 1))
    known, seconds = np.array(profile.tokens, dtype=np.float64), np.array(profile.seconds)
    verify = np.interp(tokens, known, seconds)
    slope = (seconds[-1] - seconds[-2]) / (known[-1] - known[-2])
    verify += slope * np.maximum(tokens - known[-1], 0.0)
    verify += profile.any_draft
    verify += requests * (
        profile.per_request
        + profile.any_draft_per_request
        + profile.per_context_token * PROFILED_CONTEXT
    )
    batches = np.unique(requests)
    draft = kmax * (profile.draft_pass + profile.draft_pass_per_request * batches)
    draft_limit = int(np.ceil(graph_limit / (kmax + 1)))
    return (
        CostCurve([int(size) for size in batches], draft.tolist(), draft_limit),
        CostCurve(sizes, verify.tolist(), graph_limit),
    )


def _past(last: int) -> list[int]:
    """Sizes past the captured ones that are profiled."""
    sizes = [min(last + last // 2, _MOST_TOKENS)]
    while last < _MOST_TOKENS:
        last = min(2 * last, _MOST_TOKENS)
        sizes.append(last)
    return sizes
