"""One run of an engine, and the file that every run is appended to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from adaptive_spec.errors import DataError

from ..device import Work


class RunKey(msgspec.Struct, frozen=True, kw_only=True):
    """The coordinates of a run.

    Attributes:
        engine: ``vllm-v1``, ``vllm-v1-async``, ``sglang``.
        method: of drafting, ``none`` without a drafter.
        arm: its name.
        device: on whose clock; empty where the steps do not depend on the clock.
        load: name of the load.
        kind: of prompts.
        temperature: of sampling.
        seed: of the prompts' order.
    """

    engine: str = "vllm-v1"
    method: str
    arm: str
    device: str = ""
    load: str
    kind: str = "mixed"
    temperature: float = 0.0
    seed: int = 7


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One load, answered.

    Attributes:
        key: of what.
        steps: what each step ran, in order.
        sums: checksum of each request's tokens, in the order of requests.
        texts: tokens of each request's prompt and answer, of the arm without speculation.
        modes: steps by mode of speculation, for arms with our plugin.
        faults: failures of our plugin; must be 0.
        learned: steps that the policy had learned from before.
        wall: seconds that the run took on this machine.
    """

    key: RunKey
    steps: list[Work]
    sums: list[int]
    texts: list[tuple[list[int], list[int]]] = []
    modes: dict[str, int] = {}
    faults: int = 0
    learned: int = 0
    wall: float = 0.0


class RunFile:
    """Runs, one JSON line each. A line that a kill has cut off is left out and run again."""

    def __init__(self, path: Path) -> None:
        """Raises DataError for a file of something else."""
        self._path = path
        self.keys: set[RunKey] = set()
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            data = path.read_bytes()
            whole = data[: data.rfind(b"\n") + 1]
            if whole != data:
                path.write_bytes(whole)
            self.keys = {run.key for run in self.read()}

    def read(self) -> Iterator[Run]:
        """Return the runs in the order in which they ended."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                try:
                    yield msgspec.json.decode(line, type=Run)
                except msgspec.DecodeError as error:
                    raise DataError(f"{self._path}:{number}: no run ({error})") from error

    def add(self, run: Run) -> None:
        """Keep a run; it is on disk when this returns."""
        self.keys.add(run.key)
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(run) + b"\n")
