"""One K for all ranks.

Every rank runs its own copy of the executor loop. Ranks that run different K wait for each other
for ever, so what one rank's clock or memory says must never decide locally. With tensor
parallelism all ranks hold the same requests: rank 0 decides and broadcasts. With attention data
parallelism each rank holds its own requests: each proposes, and the largest K runs everywhere.

Every rank takes part in every iteration, whatever went wrong on it: a rank that has no decision
proposes the engine's own K.
"""

from __future__ import annotations

from typing import Any


class Agreement:
    """Agreement of the ranks on one K, over upstream's own communicator."""

    def __init__(self, dist: Any, attention_dp: bool) -> None:
        self._dist = dist
        self._ranks = int(getattr(dist, "tp_size", 1)) if dist is not None else 1
        self._attention_dp = attention_dp
        self._root = self._ranks == 1 or int(dist.tp_rank) == 0

    @property
    def decides(self) -> bool:
        """Return whether this rank's policy takes part in the decision."""
        return self._root or self._attention_dp

    @property
    def speaks(self) -> bool:
        """Return whether this rank logs lines that all ranks share, such as the start line."""
        return self._root

    def settle(self, proposal: int) -> int:
        """Return the K that all ranks run. A collective: every rank calls it once per iteration."""
        if self._ranks == 1:
            return proposal
        if self._attention_dp:
            return max(int(k) for k in self._dist.tp_allgather(proposal))
        return int(self._dist.tp_broadcast(proposal, root=0))

    def describe(self) -> str:
        """Describe the ranks for the start line."""
        if self._ranks == 1:
            return "1"
        return f"{self._ranks} ({'attention DP, largest K' if self._attention_dp else 'rank 0'})"
