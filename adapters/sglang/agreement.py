"""Agreement of all ranks on one K.

Every rank of a tensor-parallel group runs its own scheduler loop. Ranks that run different K wait
for each other for ever, and clocks differ between ranks. So they agree, over the group's CPU (gloo)
backend: where all of them serve the same requests, rank 0 decides and the others are told; with
attention DP the first rank of each replica proposes for its own requests, and the largest proposal
counts.

Every rank takes part in every decode step, whatever went wrong on it: a rank without a decision
proposes SGLang's own schedule, which every rank computes alike. So before the first step all ranks
make sure that all of them are there: one without the plugin, or whose policy could not be built,
would leave the others waiting, or answer their messages with SGLang's.
"""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

OWN_SCHEDULE = -1
"""Instead of a K: this step runs what SGLang's own schedule says."""

WATCHING = -2
"""Sent instead of a K: SGLang's own schedule runs and learns."""

PATIENCE_SECONDS = 60.0
"""Seconds rank 0 waits for the other ranks; they wait twice as long."""

_KEY = "adaptive_spec/ready"


class Agreement:
    """Agreement of all ranks of a group.

    Args:
        group: a `torch.distributed` CPU group, or None for a single process.
        rank_of_replica: this rank's place in its replica of attention DP; None without.

    Attributes:
        size: number of ranks.
        replicas: the group has replicas of attention DP, each with requests of its own.
        decides: this rank's policy decides, for all ranks or for its replica.
    """

    def __init__(self, group: Any, rank_of_replica: int | None = None) -> None:
        self._group = group
        self.size, self._rank, self._root = 1, 0, 0
        self.replicas = rank_of_replica is not None
        self._members: list[int] = []
        self.decides = True
        if group is None:
            return
        import torch.distributed as distributed

        self.size = int(distributed.get_world_size(group))
        self._rank = int(distributed.get_rank(group))
        if self.size > 1:
            import torch

            self._members = [int(rank) for rank in distributed.get_process_group_ranks(group)]
            self._root = self._members[0]
            self._message = torch.zeros(1, dtype=torch.int64)
            self._broadcast = distributed.broadcast
            self._all_reduce, self._largest = distributed.all_reduce, distributed.ReduceOp.MAX
        self.decides = (self._rank if rank_of_replica is None else rank_of_replica) == 0

    def all_ready(self, ready: bool, patience: float = PATIENCE_SECONDS) -> bool:
        """Return whether every rank of the group is ready, the same answer on all ranks.

        Not a collective: a rank that never asks counts as not ready. Over PyTorch's store, which
        all processes share, since a collective that is given up would break SGLang's group. There
        the first word counts, whether it is rank 0's or of one that gave up: however late a rank
        asks, it hears what the others heard.

        Args:
            ready: this rank is.
            patience: seconds that rank 0 waits.
        """
        if self.size == 1:
            return ready
        from torch.distributed.distributed_c10d import _get_default_store

        store = _get_default_store()
        mine = f"{_KEY}/{self._root}"
        store.set(f"{mine}/{self._rank}", str(int(ready)))
        if self._rank == 0:
            until = time.monotonic() + patience
            others = [f"{mine}/{rank}" for rank in range(1, self.size)]
            word = ready and all(_word(store, key, until) for key in others)
        else:
            word = _word(store, f"{mine}/all", time.monotonic() + 2 * patience)
        try:
            return bytes(store.compare_set(f"{mine}/all", "", str(int(word)))) == b"1"
        except RuntimeError:
            return False

    def settle(self, proposal: int) -> int:
        """Return what all ranks run; a collective that each rank calls once per decode step.

        Rank 0's proposal; with replicas the largest of all ranks.
        """
        if self.size == 1:
            return proposal
        self._message[0] = proposal
        if self.replicas:
            self._all_reduce(self._message, op=self._largest, group=self._group)
            return int(self._message[0])
        self._broadcast(self._message, src=self._root, group=self._group)
        return int(self._message[0])


def _word(store: Any, key: str, until: float) -> bool:
    """Return what a rank has stored under a key; False if nothing arrives in time.

    Args:
        store: PyTorch's.
        key: the key.
        until: monotonic seconds.
    """
    try:
        # A wait of no time at all would be one without end.
        left = max(until - time.monotonic(), 0.001)
        store.wait([key], timedelta(seconds=left))
        return bytes(store.get(key)) == b"1"
    except RuntimeError:  # which PyTorch's own exceptions are
        return False
