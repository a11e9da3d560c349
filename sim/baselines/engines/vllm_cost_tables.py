"""vLLM's cost tables for adaptive verification: step times measured once, before serving.

Times of dummy steps at the captured graph sizes, and at larger sizes (1.5 x the last, then
doubling), form a non-decreasing curve: a staircase over the captured sizes, where a step runs as
the next captured one, and linear beyond. Each dummy step has 8,192 tokens of context per request,
whatever the traffic.

Source: `build_cost_tables_from_curves`, `batches_to_profile` in
vllm/v1/worker/gpu/spec_decode/adaptive_verification.py of vLLM 0.32. A cost profile replaces the
dummy steps.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from adaptive_spec.policies.step_time.profile import CostProfile
from adaptive_spec.step import Capability, FloatArray, IntArray

PROFILED_CONTEXT = 8192
"""Context per request while profiling (tokens)."""
_MOST_TOKENS = 8192
_WITHOUT_GRAPHS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)


class CostCurve:
    """Non-decreasing cost by size.

    Args:
        sizes: measured sizes, ascending.
        costs: cost of each size; any unit.
        graph_limit: largest captured size; 0 without captured sizes, when sizes snap to the next
            measured one.
    """

    def __init__(self, sizes: Sequence[int], costs: Sequence[float], graph_limit: int) -> None:
        self._sizes: FloatArray = np.asarray(sizes, dtype=np.float64)
        self._costs: FloatArray = np.maximum.accumulate(np.asarray(costs, dtype=np.float64))
        self._graph_limit = graph_limit

    def at(self, sizes: IntArray) -> FloatArray:
        """Return the cost at these sizes."""
        x, y = self._sizes, self._costs
        cost: FloatArray = y[np.minimum(np.searchsorted(x, sizes, side="left"), len(x) - 1)]
        outside = x > self._graph_limit
        if self._graph_limit and outside.any():
            # Cost jumps where the graphs end, so do not interpolate across the jump.
            smooth = sizes > self._graph_limit
            cost[smooth] = np.interp(sizes[smooth], x[outside], y[outside])
        if len(x) > 1:
            after = sizes > x[-1]
            slope = (y[-1] - y[-2]) / (x[-1] - x[-2])
            cost[after] = y[-1] + slope * (sizes[after] - x[-1])
        return cost


def profiled_curves(profile: CostProfile, capability: Capability) -> tuple[CostCurve, CostCurve]:
    """Return curves of drafting by requests and of verifying by tokens (seconds).

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
    """Return the profiled sizes beyond the captured ones."""
    sizes = [min(last + last // 2, _MOST_TOKENS)]
    while last < _MOST_TOKENS:
        last = min(2 * last, _MOST_TOKENS)
        sizes.append(last)
    return sizes
