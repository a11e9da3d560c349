"""Parameters that SGLang's `AdaptiveController` asks for K instead of its own.

It implements SGLang's `AdaptiveSpecPolicy` protocol around SGLang's own object and never raises:
`AdaptiveController` lets an exception, or a K without a runtime state, through to the step loop.
Candidates and captured batch sizes stay SGLang's, so start-up time and memory do not change.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Any, Protocol


class Decides(Protocol):
    """Part of the step driver that the parameters use."""

    def decided_k(self, batch_size: int) -> int | None:
        """Return K for the batch about to run; None for SGLang's own."""
        ...

    @property
    def watching(self) -> bool:
        """Return whether SGLang's own schedule runs and learns as without the plugin."""
        ...

    def think(self, batch: Any) -> None:
        """Use the time in which the device works on a batch."""
        ...

    @property
    def ran_own_k(self) -> bool:
        """Return whether the step that is being read ran the K of SGLang's own schedule."""
        ...


class SteeredParams:
    """Stand-in for SGLang's adaptive parameters.

    Attributes:
        own: SGLang's own object.
        driver: who decides; None until the scheduler is built.
    """

    def __init__(self, own: Any) -> None:
        self.own = own
        self.driver: Decides | None = None
        self._graph_sizes: list[int] | None = None
        self._sizes_of: dict[int, frozenset[int]] = {}
        self._runnable: dict[int, tuple[int, ...]] = {}

    @property
    def candidate_steps(self) -> list[int]:
        """K values with a runtime state, ascending."""
        return [int(k) for k in self.own.candidate_steps]

    @property
    def tree_nodes(self) -> tuple[int, ...]:
        """Tokens that a request verifies at each candidate, where drafts are trees; else empty."""
        return tuple(getattr(self.own, "nodes", ()))

    def k_of(self, tokens: int) -> int:
        """Return the K of a step in which each request verified so many tokens."""
        nodes = self.tree_nodes
        return self.candidate_steps[nodes.index(tokens)] if nodes else tokens - 1

    def set_cuda_graph_bs(self, cuda_graph_bs: list[int] | None) -> None:
        """Note for which batch sizes SGLang captures graphs; None without graphs."""
        self.own.set_cuda_graph_bs(cuda_graph_bs)
        self._graph_sizes = sorted(cuda_graph_bs) if cuda_graph_bs else None

    def cuda_graph_bs_for_step(self, step: int) -> list[int] | None:
        """Return the batch sizes that get a graph at this K, which SGLang's own object decides."""
        sizes: list[int] | None = self.own.cuda_graph_bs_for_step(step)
        self._sizes_of[step] = frozenset(sizes or ())
        return sizes

    def runnable(self, batch_size: int) -> tuple[int, ...]:
        """Return the K that may run with this many requests, ascending; never empty.

        Where graphs are captured, only those with a graph at the padded batch size: any other
        would run without one.
        """
        sizes = self._graph_sizes
        if sizes is None or batch_size > sizes[-1]:
            return tuple(self.candidate_steps)
        padded = sizes[bisect_left(sizes, batch_size)]
        found = self._runnable.get(padded)
        if found is None:
            ladder = self.candidate_steps
            # The K of the launch has all graphs already, so SGLang does not request it.
            every = frozenset(sizes)
            with_graph = tuple(k for k in ladder if padded in self._sizes_of.get(k, every))
            found = self._runnable[padded] = with_graph or tuple(ladder)
        return found

    def get_steps_for_batch(self, batch_size: int) -> int:
        """Return K for the batch about to run."""
        if self.driver is not None:
            k = self.driver.decided_k(batch_size)
            if k is not None:
                return k
        return int(self.own.get_steps_for_batch(batch_size))

    def launched(self, batch: Any) -> None:
        """Let the driver use the time in which the device works on a launched batch."""
        if self.driver is not None:
            self.driver.think(batch)

    def on_verify_complete(
        self, num_correct_drafts_per_req: list[int], batch_size: int
    ) -> int | None:
        """Feed SGLang's own schedule with the steps that ran its own K.

        K changes in `get_steps_for_batch` only: with overlap scheduling the next batch may be under
        way here. While we only watch, SGLang's answer is passed on.
        """
        driver = self.driver
        if driver is None or driver.watching:
            answer: int | None = self.own.on_verify_complete(num_correct_drafts_per_req, batch_size)
            return answer
        if driver.ran_own_k:
            self.own.on_verify_complete(num_correct_drafts_per_req, batch_size)
        return None


def ladder_below(launch_k: int, candidates: Iterable[int]) -> list[int]:
    """Return the candidates below the launch K, and that K, ascending."""
    return sorted({k for k in candidates if 0 <= k <= launch_k} | {launch_k})


class FixedSchedule:
    """`AdaptiveSpecPolicy` of SGLang that never changes K.

    STANDALONE, NGRAM and trees have a fixed K upstream. The ladder below it is the candidate set
    that SGLang uses for EAGLE, from ``--speculative-adaptive-config`` or its default, cut to the
    launch K: buffers and KV reserves are sized from the launch K, so nothing above it may run.

    Attributes:
        nodes: tokens that a request verifies at each candidate, where drafts are trees; else empty.
    """

    def __init__(
        self, launch_k: int, candidates: Iterable[int], nodes: Mapping[int, int] | None = None
    ) -> None:
        self._k = launch_k
        self.nodes = () if nodes is None else tuple(nodes.values())
        self._candidates = ladder_below(launch_k, candidates)
        self._captured: list[int] | None = None

    @property
    def candidate_steps(self) -> list[int]:
        """K values with a runtime state."""
        return self._candidates

    def set_cuda_graph_bs(self, cuda_graph_bs: list[int] | None) -> None:
        """Batch sizes that get graphs; None without graphs."""
        self._captured = sorted(cuda_graph_bs) if cuda_graph_bs else None

    def cuda_graph_bs_for_step(self, step: int) -> list[int] | None:
        """Each K gets a graph at each batch size."""
        return self._captured

    def get_steps_for_batch(self, batch_size: int) -> int:
        """The launch K."""
        return self._k

    def on_verify_complete(
        self, num_correct_drafts_per_req: list[int], batch_size: int
    ) -> int | None:
        """Learn nothing: K is fixed."""
        return None
