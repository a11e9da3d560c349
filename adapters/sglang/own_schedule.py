"""SGLang's own K where SGLang has no adaptive parameters: the K it was launched with, always.

STANDALONE and NGRAM have a fixed K upstream. The ladder below it is the candidate set that SGLang
uses for EAGLE, from ``--speculative-adaptive-config`` or its default, cut to the launch K: buffers
and KV reserves are sized from the launch K, so nothing above it may run.
"""

from __future__ import annotations

from collections.abc import Iterable


def ladder_below(launch_k: int, candidates: Iterable[int]) -> list[int]:
    """Return the candidates below the launch K, and that K, ascending."""
    return sorted({k for k in candidates if 0 <= k <= launch_k} | {launch_k})


class FixedSchedule:
    """`AdaptiveSpecPolicy` of SGLang that never changes K."""

    def __init__(self, launch_k: int, candidates: Iterable[int]) -> None:
        self._k = launch_k
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
