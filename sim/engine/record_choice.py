"""The acceptance record that each request follows."""

from __future__ import annotations

import numpy as np

from adaptive_spec.errors import DataError
from adaptive_spec.sim.acceptance.data import AcceptanceData
from adaptive_spec.sim.engine.prompt_queue import Running
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
