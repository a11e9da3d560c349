"""Steps of a real engine, with the drafter's confidence, that come with the package.

How they were made and under which names: ``records/README.md``. ``record:NAME`` is all kinds of
prompt, mixed; ``record:NAME:KIND`` is one of them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from adaptive_spec.errors import DataError
from adaptive_spec.sim.acceptance.data import AcceptanceData
from adaptive_spec.sim.acceptance.pool import select
from adaptive_spec.sim.acceptance.recorded import read_recorded_npz

PREFIX = "record:"
FOLDER = Path(__file__).with_name("records")


def record_names() -> tuple[str, ...]:
    """Names of the records that come with the package."""
    return tuple(sorted(file.stem for file in FOLDER.glob("*.npz")))


def record_file(name: str) -> Path:
    """The file of a record. Raises DataError naming the records there are."""
    if name not in record_names():
        raise DataError(
            f"{PREFIX}{name}: no such record; there are {', '.join(record_names()) or 'none'}, "
            "each also with :KIND behind it"
        )
    return FOLDER / f"{name}.npz"


def shipped_record(text: str, *, depth: int | None = None, seed: int = 0) -> AcceptanceData:
    """A record, ``NAME`` or ``NAME:KIND``, labelled with the kinds of prompt.

    Args:
        text: without the prefix.
        depth: drafts known at each position; None: those recorded.
        seed: of the draws that continue runs past those.

    Raises DataError naming the records, or the kinds, that there are.
    """
    name, _, kind = text.partition(":")
    data = read_recorded_npz(record_file(name), depth=depth, seed=seed)
    if not kind:
        return data
    chosen = np.flatnonzero(np.array(data.labels) == kind)
    if not chosen.size:
        kinds = ", ".join(dict.fromkeys(data.labels))
        raise DataError(f"{PREFIX}{text}: no such kind of prompt; there are {kinds}")
    return replace(select(data, chosen), name=f"{name}:{kind}")
