"""Requests on their way from the load into the queue, and the acceptance record each follows."""

from __future__ import annotations

import numpy as np

from adaptive_spec.errors import ConfigError, DataError
from adaptive_spec.sim.acceptance.data import AcceptanceData
from adaptive_spec.sim.engine.kv_pool import KvPool
from adaptive_spec.sim.engine.measurements import Measurements
from adaptive_spec.sim.engine.prompt_queue import PromptQueue, Running
from adaptive_spec.sim.load.base import Load
from adaptive_spec.sim.load.request import ANY_RECORD, Request
from adaptive_spec.step import IntArray


class RecordChooser:
    """Choice of a request's record: the one it names, or the next of a seeded shuffle.

    The shuffle depends on the seed and the order of arrival only, so every policy meets the same
    records.
    """

    def __init__(self, data: AcceptanceData, random: np.random.Generator) -> None:
        self._offsets = data.offsets
        self._temperatures = data.temperatures
        self._random = random
        everything: IntArray = np.arange(data.records)
        labels = np.array(data.labels)
        by_task = {label: everything[labels == label] for label in set(data.labels)}
        self._by_task = by_task | {"": everything}
        self._left: dict[str, list[int]] = {}

    def admit(self, request: Request) -> Running:
        """The request with its record, and the temperature of that if it names none.

        Raises DataError if it names a record that is not there.
        """
        record = request.record
        if record == ANY_RECORD:
            record = self._next(request.task if request.task in self._by_task else "")
        elif not 0 <= record < len(self._offsets) - 1:
            raise DataError(
                f"request {request.id!r} names acceptance record {record}, there are "
                f"{len(self._offsets) - 1}"
            )
        start = int(self._offsets[record])
        length = int(self._offsets[record + 1]) - start
        temperature = request.temperature
        if temperature is None:
            temperature = float(self._temperatures[record])
        return Running(request, start, length, temperature)

    def _next(self, task: str) -> int:
        left = self._left.setdefault(task, [])
        if not left:
            left.extend(self._random.permutation(self._by_task[task]).tolist())
        return left.pop()


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
            request = self._load.take_request()
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
