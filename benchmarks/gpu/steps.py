"""What each step of an engine reports of itself, and figures over many steps."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

FEWEST_STEPS = 5
"""Steps of a K below which its median is not reported."""
OTHER = -1
"""In place of K: prompts in the step, or requests that differ in K."""


@dataclass
class Steps:
    """Columns with one entry per finished step.

    Attributes:
        at: seconds on the monotonic clock when the step's results arrived.
        running: requests.
        tokens: scheduled tokens, prompts included; 0 where vLLM does not report them.
        drafts: requests that verified at least one draft.
        draft_tokens: drafts verified.
        accepted: drafts accepted.
        graph: CUDA graph mode that ran, such as FULL; empty where vLLM does not report it.
    """

    at: list[float] = field(default_factory=list)
    running: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    drafts: list[int] = field(default_factory=list)
    draft_tokens: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    graph: list[str] = field(default_factory=list)

    def add(self, at: float, scheduler_stats: Any) -> None:
        """Append a step from vLLM's SchedulerStats."""
        spec, graph = scheduler_stats.spec_decoding_stats, scheduler_stats.cudagraph_stats
        self.at.append(at)
        self.running.append(scheduler_stats.num_running_reqs)
        self.tokens.append(graph.num_unpadded_tokens if graph else 0)
        self.drafts.append(spec.num_drafts if spec else 0)
        self.draft_tokens.append(spec.num_draft_tokens if spec else 0)
        self.accepted.append(spec.num_accepted_tokens if spec else 0)
        self.graph.append(str(graph.runtime_mode).rsplit(".", 1)[-1] if graph else "")

    def clear(self) -> None:
        """Forget all steps."""
        for column in vars(self).values():
            column.clear()

    def uniform_k(self) -> NDArray[np.int64]:
        """K of each step [steps]: `OTHER` unless all requests decoded with the same K.

        Where vLLM reports no scheduled tokens, a step that held a prompt cannot be told apart.
        """
        drafts, verified, tokens, running = (
            np.asarray(column, dtype=np.int64)
            for column in (self.drafts, self.draft_tokens, self.tokens, self.running)
        )
        requests = np.where(drafts > 0, drafts, running)
        k = verified // np.maximum(requests, 1)
        uniform = (requests > 0) & (k * requests == verified)
        uniform &= (tokens == 0) | (tokens == requests * (1 + k))
        return np.where(uniform, k, OTHER)

    def seconds(self) -> NDArray[np.float64]:
        """Duration of each step but the first [steps - 1]."""
        return np.diff(np.asarray(self.at, dtype=np.float64))

    def summary(self, since: float) -> dict[str, Any]:
        """Medians and counts of the steps whose results arrived after a moment."""
        if len(self.at) < 2:
            return {"steps": 0}
        kept = np.asarray(self.at)[1:] >= since
        seconds, k = self.seconds()[kept], self.uniform_k()[1:][kept]
        if not len(seconds):
            return {"steps": 0}
        running, drafts, verified, accepted = (
            np.asarray(column)[1:][kept]
            for column in (self.running, self.drafts, self.draft_tokens, self.accepted)
        )
        requests = np.maximum(running, drafts)  # those that end in a step no longer run after it
        graphs = np.asarray(self.graph)[1:][kept]
        of_k = {int(value): k == value for value in np.unique(k)}
        return {
            "steps": len(seconds),
            "step_ms": [round(1e3 * float(q), 4) for q in np.percentile(seconds, (10, 50, 90))],
            "step_ms_by_k": {
                value: [int(these.sum()), round(1e3 * float(np.median(seconds[these])), 4)]
                for value, these in of_k.items()
                if value != OTHER and these.sum() >= FEWEST_STEPS
            },
            "mean_k": round(float(verified.sum() / max(requests.sum(), 1)), 4),
            "mean_running": round(float(running.mean()), 2),
            "drafted": int(verified.sum()),
            "accepted": int(accepted.sum()),
            "graphs_by_k": {
                value: dict(sorted(Counter(graphs[these].tolist()).items()))
                for value, these in of_k.items()
            },
        }
