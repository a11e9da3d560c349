"""Mean lifetime of requests: how soon those of a batch are replaced by others."""

from __future__ import annotations

_REMEMBERED = 256.0


class RequestLifetime:
    """Mean time a request decodes, estimated from the requests that end."""

    def __init__(self) -> None:
        self.batch_size = 0
        self._exposure = 0.0
        # Before the first one has ended: twice the time that all have lived together.
        self._ended = 0.5

    def passed(self, batch_size: int, seconds: float) -> None:
        """Count a step of this many requests that took these seconds."""
        self.batch_size = batch_size
        self._exposure += batch_size * seconds

    def ended(self, requests: int) -> None:
        """Count requests that have ended."""
        self._ended += requests
        if self._ended > _REMEMBERED:
            # The older half counts half.
            self._ended *= 0.5
            self._exposure *= 0.5

    @property
    def seconds(self) -> float:
        """Mean seconds a request decodes."""
        return self._exposure / self._ended
