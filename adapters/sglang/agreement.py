"""One K for all ranks.

Every rank of a tensor-parallel group runs its own scheduler loop over the same requests. Ranks that
run different K wait for each other for ever, and clocks differ between ranks. So rank 0 decides and
the others are told, over the group's CPU (gloo) backend.

Every rank takes part in every decode step, whatever went wrong on it: a rank without a decision
proposes SGLang's own schedule, which every rank computes alike.
"""

from __future__ import annotations

from typing import Any

OWN_SCHEDULE = -1
"""Instead of a K: this step runs what SGLang's own schedule says."""

WATCHING = -2
"""Instead of a K: we only watch, SGLang's own schedule runs and learns as without us."""


class Agreement:
    """Tells all ranks of a group what rank 0 decided.

    Args:
        group: a `torch.distributed` CPU group, or None for a single process.
    """

    def __init__(self, group: Any) -> None:
        self._group = group
        self.size, self._rank, self._root = 1, 0, 0
        if group is None:
            return
        import torch.distributed as distributed

        self.size = int(distributed.get_world_size(group))
        self._rank = int(distributed.get_rank(group))
        if self.size > 1:
            import torch

            self._root = int(distributed.get_global_rank(group, 0))
            self._message = torch.zeros(1, dtype=torch.int64)
            self._broadcast = distributed.broadcast

    @property
    def decides(self) -> bool:
        """This rank's policy is the one that is asked."""
        return self._rank == 0

    def settle(self, proposal: int) -> int:
        """What all ranks run. A collective: every rank calls it once per decode step."""
        if self.size == 1:
            return proposal
        self._message[0] = proposal
        self._broadcast(self._message, src=self._root, group=self._group)
        return int(self._message[0])
