"""Parts that all taps share: a round's way to the host, and the count of our faults."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from adaptive_spec.adapters.vllm.draft_signal.values import DraftSignals, Wanted

_LOG = logging.getLogger("vllm.adaptive_spec")


class Tap:
    """Watches a drafter. A fault of ours ends the reading, is said once, and leaves the round.

    Attributes:
        wanted: what to read of the next round; one that is not read costs a comparison a pass.
    """

    evidence = "the drafter's confidence"

    def __init__(self) -> None:
        self.wanted = Wanted.ENTROPY_TOO
        self._broken = False

    def read(self, reader: Callable[..., None], *arguments: Any) -> None:
        """Call a reader, unless one has failed before."""
        if self._broken:
            return
        try:
            reader(*arguments)
        except Exception as error:
            self._broken = True
            self.drop()
            _LOG.warning(
                "adaptive_spec: %s is not read any more: %s: %s",
                self.evidence,
                type(error).__name__,
                error,
            )

    def drop(self) -> None:
        """Forget what has been read and not taken."""


@dataclass(frozen=True, slots=True)
class Round:
    """Values of one round, [2, R, D], on the host or on their way there."""

    names: tuple[str, ...]
    values: Any
    ready: Any

    def signals(self) -> DraftSignals | None:
        """Read the values for a step that is not planned yet; None if they are not there."""
        return self._read(verified=False)

    def verified_signals(self) -> DraftSignals | None:
        """For the step whose results they go with; None if they are not there even now."""
        return self._read(verified=True)

    def _read(self, *, verified: bool) -> DraftSignals | None:
        if self.ready is not None and not self.ready.query():  # they are not waited for
            return None
        confidence, entropy = self.values.double().numpy()
        return DraftSignals(self.names, confidence, entropy, verified=verified)


def sent_to_host(names: tuple[str, ...], values: Any, stream: Any, host: Any = None) -> Round:
    """Copy the values of a round [2, R, D] to the host, in order with the passes that made them.

    Args:
        names: [R] requests.
        values: on the device.
        stream: to copy on.
        host: pinned memory; None: from PyTorch's cache.
    """
    import torch

    stream.wait_stream(torch.cuda.current_stream(values.device))
    with torch.cuda.stream(stream):
        if host is None:
            host = values.to("cpu", non_blocking=True)
        else:
            host.copy_(values, non_blocking=True)
        values.record_stream(stream)
        ready = torch.cuda.Event()
        ready.record()
    return Round(names, host, ready)
