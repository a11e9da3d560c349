"""Requests on their way from the load into the queue."""

from __future__ import annotations

from adaptive_spec.errors import ConfigError
from adaptive_spec.sim.engine.kv_pool import KvPool
from adaptive_spec.sim.engine.measurements import Measurements
from adaptive_spec.sim.engine.prompt_queue import PromptQueue
from adaptive_spec.sim.engine.records import RecordChooser
from adaptive_spec.sim.load.base import Load
from adaptive_spec.sim.load.request import Request

_MOST_WAITING = 1_000_000
_ALL_REJECTED = 10_000
"""An endless load of requests that never fit would otherwise be rejected for ever."""


class Arrivals:
    """Intake of requests: acceptance record and place in the queue."""

    def __init__(
        self,
        load: Load,
        records: RecordChooser,
        pool: KvPool,
        prompts: PromptQueue,
        measurements: Measurements,
    ) -> None:
        self._load = load
        self._records = records
        self._pool = pool
        self._prompts = prompts
        self._measurements = measurements

    def up_to(self, now: float) -> None:
        """Take in what has arrived by now. Raises ConfigError for a load beyond all bounds."""
        while self._load.next_arrival() <= now:
            request = self._load.take()
            # It must fit when it is alone, with its last token.
            if request.prompt_tokens + request.output_tokens > self._pool.tokens:
                self._reject(request, now)
                continue
            self._prompts.arrive(self._records.admit(request))
            if len(self._prompts.waiting) > _MOST_WAITING:
                raise ConfigError(
                    f"more than {_MOST_WAITING:,} requests wait at {now:.1f} s: the load is "
                    "far beyond what this hardware can serve; lower its rate"
                )

    def _reject(self, request: Request, now: float) -> None:
        measured = self._measurements
        measured.rejected += 1
        if measured.rejected >= _ALL_REJECTED and not measured.tokens:
            raise ConfigError(
                f"no request fits into the KV pool of {self._pool.tokens:,} tokens, the last had "
                f"{request.prompt_tokens:,} + {request.output_tokens:,}: give more --kv-tokens or "
                "another hardware"
            )
        self._load.finished(request, now)
