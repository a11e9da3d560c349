"""Ranks as threads that meet at every collective."""

import threading
from typing import Any, ClassVar

from harness.violations import RanksDivergedError


class World:
    """What the ranks of one run share."""

    def __init__(self, size: int, timeout: float = 20.0) -> None:
        self.size = size
        self.timeout = timeout
        self.barrier = threading.Barrier(size)
        self.slots: list[Any] = [None] * size


class Rank:
    """One rank's communicator; alone without a world."""

    pp_size = cp_size = 1
    cp_config: ClassVar[dict[str, Any]] = {}

    def __init__(self, world: World | None = None, rank: int = 0) -> None:
        self._world = world
        self.tp_rank = self.rank = rank
        self.tp_size = self.world_size = 1 if world is None else world.size

    def tp_allgather(self, obj: Any) -> list[Any]:
        """Every rank's object."""
        return self._exchange("allgather", obj)

    def tp_broadcast(self, obj: Any, root: int = 0, **_: Any) -> Any:
        """The object of rank `root`."""
        return self._exchange("broadcast", obj)[root]

    def require_same(self, what: str, value: Any) -> None:
        """Meet the others as in the model's own collectives. Raises where one would hang."""
        if self._world is not None and len(set(self._exchange(what, value))) > 1:
            raise RanksDivergedError(f"{what}: rank {self.tp_rank} has {value}")

    def abort(self) -> None:
        """Leave: the others need not wait."""
        if self._world is not None:
            self._world.barrier.abort()

    def _exchange(self, kind: str, obj: Any) -> list[Any]:
        world = self._world
        if world is None:
            return [obj]
        try:
            world.slots[self.tp_rank] = (kind, obj)
            world.barrier.wait(world.timeout)
            values = list(world.slots)
            world.barrier.wait(world.timeout)
        except threading.BrokenBarrierError:
            text = f"rank {self.tp_rank} waits at {kind}, the others don't"
            raise RanksDivergedError(text) from None
        if {what for what, _ in values} != {kind}:
            raise RanksDivergedError(f"rank {self.tp_rank} is at {kind}, others are at {values}")
        return [value for _, value in values]
