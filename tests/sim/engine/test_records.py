"""A request follows a record, at the temperature the record was made with unless it names one."""

from __future__ import annotations

import numpy as np
import pytest

from adaptive_spec.errors import DataError
from adaptive_spec.sim.acceptance.data import AcceptanceData
from adaptive_spec.sim.engine.prompt_queue import Running
from adaptive_spec.sim.engine.record_choice import RecordChooser
from adaptive_spec.sim.load.request import ANY_RECORD, Request

DATA = AcceptanceData(
    name="greedy and sampled targets",
    source="a test",
    accepted=np.ones(6, dtype=np.uint8),
    offsets=np.array([0, 2, 4, 6]),
    prompt_tokens=np.zeros(3, dtype=np.int64),
    labels=("greedy", "sampled", "sampled"),
    depth=2,
    temperature=0.8,
    record_temperature=np.array([0.0, 0.8, 0.7]),
)


def admitted(
    *, record: int = ANY_RECORD, task: str = "", temperature: float | None = None
) -> Running:
    request = Request(
        id="a",
        arrival=0.0,
        prompt_tokens=1,
        output_tokens=2,
        record=record,
        task=task,
        temperature=temperature,
    )
    return RecordChooser(DATA, np.random.default_rng(0)).admit(request)


@pytest.mark.parametrize(("record", "temperature"), [(0, 0.0), (1, 0.8), (2, 0.7)])
def test_without_a_temperature_of_its_own_it_has_its_records(
    record: int, temperature: float
) -> None:
    assert admitted(record=record).temperature == temperature


def test_a_label_chooses_among_its_records() -> None:
    assert admitted(task="greedy").temperature == 0.0


def test_a_temperature_of_its_own_is_kept() -> None:
    assert admitted(record=1, temperature=0.0).temperature == 0.0


def test_a_record_that_is_not_there_is_refused() -> None:
    with pytest.raises(DataError, match="names acceptance record 3, there are 3"):
        admitted(record=3)
