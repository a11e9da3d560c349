"""The figures of a cell: an arm's tokens per second at a load on a device, over other arms'.

Also the files that hold them, and the rows of the simulator.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np

from adaptive_spec.errors import DataError

from .arms import NONE, STATIC, TABLE, parse_arm, table_name, warm
from benchmarks.judge.device import Charge, Device, Work
from .runs import Run, RunKey
from .setup import ROOT
from .sweep import MOST_CLIENTS, SECTIONS, Section, device_of
from .traffic import Load

RESULTS = ROOT / "benchmarks" / "results" / "virtual_device.json"
SIMULATED = RESULTS.with_name("virtual_device_simulated.json")

STEADY = 0.2, 0.9
"""Shares of a load's tokens between which a rate is measured: clients come before, leave after."""
LEAST_COLD_STEPS, COLD_STEPS = 150, 300
"""A policy that begins with nothing learned is measured from its first step on, over the load if
that has so many steps, or over so many steps."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """One arm in a cell.

    Attributes:
        cold: tokens per second, from the first step on, over as many tokens as the cold policy
            emits in its first steps.
        steady: the same in the steady part of the load.
        steps: of the engine.
        verified: drafts verified per request and step.
        off_cold: share of the steps without the drafter.
        whole: tokens per second over all requests of the load.
    """

    cold: float
    steady: float
    steps: int
    verified: float
    off_cold: float
    whole: float = 0.0


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """All arms of a method at a load on a device.

    Attributes:
        section: of the sweep.
        key: without its arm.
        device: name.
        arms: figures by arm; the arm of vLLM's table is named `table`.
        table: vLLM's table, in words.
        different: requests whose tokens differ from those without speculation, by arm.
    """

    section: str
    key: RunKey
    device: str
    arms: dict[str, Figures]
    table: str = ""
    different: dict[str, int] = {}

    @property
    def best_k(self) -> str:
        """The static arm with the most tokens per second in the steady part."""
        return max(self._static, key=lambda arm: self.arms[arm].steady)

    def over_best(self, arm: str) -> float:
        """Rate of an arm over that of the best static K, chosen for the same part of the load."""
        part = _part(arm)
        best = max(getattr(self.arms[each], part) for each in self._static)
        return float(getattr(self.arms[arm], part) / best)

    def over(self, arm: str, other: str) -> float:
        """Rate of an arm over another's."""
        part = _part(arm)
        return float(getattr(self.arms[arm], part) / getattr(self.arms[other], part))

    @property
    def _static(self) -> list[str]:
        return [arm for arm in STATIC if arm in self.arms]


class SimulatedRow(msgspec.Struct, frozen=True, kw_only=True):
    """An arm at a load, simulated: tokens per second in the steady part, and steps."""

    device: str
    clients: int
    arm: str
    real: float
    simulated: float
    real_steps: int
    simulated_steps: int

    @property
    def error(self) -> float:
        """Relative error of the simulator."""
        return self.simulated / self.real - 1.0


def published(path: Path = RESULTS) -> list[Cell]:
    """Read the cells of docs/measured.md, in the order of its rows."""
    found = msgspec.json.decode(path.read_bytes(), type=list[Cell])
    return sorted((cell for cell in found if cell.section in SECTIONS), key=_place)


def _place(cell: Cell) -> tuple[int, ...]:
    section, key = SECTIONS[cell.section], cell.key
    names = [*section.devices, cell.device]
    rows = (
        list(SECTIONS).index(section.name),
        section.methods.index(key.method),
        names.index(cell.device),
        section.kinds.index(key.kind),
    )
    return (*rows, *map(int, re.findall(r"\d+", key.load)), key.seed)


def publish(path: Path, found: Iterable[Cell]) -> None:
    """Put cells in the place of those of the same coordinates in a file."""
    cells = {
        (cell.section, cell.key, cell.device): cell
        for cell in [*(published(path) if path.exists() else ()), *found]
    }
    write_lines(path, sorted(cells.values(), key=_place))


def simulated(path: Path = SIMULATED) -> list[SimulatedRow]:
    """Read what the module `simulated` has written."""
    return msgspec.json.decode(path.read_bytes(), type=list[SimulatedRow])


def write_lines(path: Path, rows: Sequence[Cell | SimulatedRow]) -> None:
    """Write a list with a line for each row."""
    path.write_bytes(b"[\n" + b",\n".join(map(msgspec.json.encode, rows)) + b"\n]\n")


def is_cold(arm: str) -> bool:
    """Whether an arm has a policy that begins with nothing learned."""
    return parse_arm(arm).adapts and not parse_arm(arm).warm if arm != TABLE else False


def _part(arm: str) -> str:
    """Of an arm over another, both are measured in the part that belongs to the first one."""
    return "cold" if is_cold(arm) else "steady"


class Curve:
    """Time over emitted tokens of a run on a device; linear within a step.

    With `each`, the time that requests have spent, summed over them: with arrivals in time all arms
    answer as many tokens per second, but not as fast to each request.
    """

    def __init__(self, steps: Sequence[Work], charge: Charge, *, each: bool = False) -> None:
        seconds = [charge.seconds(work) * (work.drafting if each else 1) for work in steps]
        self._tokens = np.cumsum([0, *(work.emitted for work in steps)])
        self._times = np.cumsum([0.0, *seconds])
        self.total = int(self._tokens[-1])

    def at(self, tokens: float) -> float:
        """Return the seconds until so many tokens were emitted.

        A closed loop that was not run for so long would go on as in its steady part.
        """
        late = STEADY[1] * self.total
        if tokens <= late:
            return self.met(tokens)
        return self.at(late) + (tokens - late) / self.steady

    def met(self, tokens: float) -> float:
        """Return the seconds until so many tokens were emitted, of the tokens of the run."""
        return float(np.interp(tokens, self._tokens, self._times))

    @property
    def steady(self) -> float:
        """Tokens per second in the steady part."""
        early, late = (share * self.total for share in STEADY)
        return (late - early) / (self.at(late) - self.at(early))


def cold_tokens(runs: Mapping[str, Run]) -> float:
    """Tokens over which arms are compared with a policy that begins cold.

    Nearly all of the load, as all arms answer the same requests there; where the policy has made
    too few steps by then, those of its first 300 steps.
    """
    run = next((runs[arm] for arm in runs if is_cold(arm)), None)
    first = next(iter(runs.values()))
    whole = STEADY[1] * sum(work.emitted for work in first.steps)
    if run is None:
        return whole
    emitted = np.cumsum([work.emitted for work in run.steps])
    if int(np.searchsorted(emitted, whole)) >= LEAST_COLD_STEPS or len(emitted) < COLD_STEPS:
        return whole
    return float(emitted[COLD_STEPS - 1])


def figures(run: Run, device: Device, load: Load, tokens: float) -> Figures:
    """Price a run on a device; `tokens` are those that `cold` is measured over."""
    curve = Curve(run.steps, device.charge(run.key.method), each=bool(load.arrivals))
    asked = min(load.total_tokens, curve.total)
    requests = max(sum(work.requests for work in run.steps), 1)
    verified = sum(work.tokens - work.requests for work in run.steps)
    decoding = [work for work in run.steps if work.requests]
    return Figures(
        cold=round(tokens / curve.at(tokens), 3),
        steady=round(curve.steady, 3),
        steps=len(run.steps),
        verified=round(verified / requests, 3),
        off_cold=round(run.modes.get("off_cold", 0) / max(len(decoding), 1), 4),
        whole=round(asked / curve.met(asked), 3),
    )


def tables(
    sections: Iterable[Section], runs: Mapping[RunKey, Run], devices: Mapping[str, Device]
) -> dict[tuple[str, str, str], str]:
    """vLLM's table by (section, method, device), tuned on the static arms where all are at hand."""
    found = {}
    for section in sections:
        if not section.tables:
            continue
        for method, name in ((m, d) for m in section.methods for d in section.devices):
            best: dict[int, int] = {}
            for load in section.loads():
                arms = [arm for arm in (NONE, *STATIC) if arm in section.arms]
                keys = [section.key(method, arm, name, load) for arm in arms]
                if not all(key in runs for key in keys):
                    break
                rates = [_steady(runs[key], devices[name]) for key in keys]
                at = rates.index(max(rates))
                best[int(load.name)] = 0 if arms[at] == NONE else int(arms[at][1:])
            else:
                found[section.name, method, name] = table_name(best, MOST_CLIENTS)
    return found


def cells(
    sections: Iterable[Section], runs: Mapping[RunKey, Run], devices: Mapping[str, Device]
) -> list[Cell]:
    """Price every run that is at hand.

    Raises DataError if an arm of adaptive-spec failed in a run.
    """
    sections = list(sections)
    tuned = tables(sections, runs, devices)
    found = []
    for section in sections:
        for method, name in ((m, d) for m in section.methods for d in section.devices):
            table = tuned.get((section.name, method, name), "")
            for load in section.loads():
                arms = _arms(section, table)
                at_hand = {
                    arm: runs[key]
                    for arm, as_run in arms.items()
                    if (key := section.key(method, as_run, name, load)) in runs
                }
                adapting = {arm for arm in section.arms if parse_arm(arm).adapts}
                if not at_hand.keys() >= set(section.arms) - adapting or not adapting & set(
                    at_hand
                ):
                    continue
                for run in at_hand.values():
                    if run.faults:
                        raise DataError(f"{run.key}: adaptive-spec failed {run.faults} times")
                tokens = cold_tokens(at_hand)
                found.append(
                    Cell(
                        section=section.name,
                        key=_key(section, method, load),
                        device=name,
                        arms={
                            arm: figures(
                                run,
                                device_of(parse_arm(run.key.arm), devices[name]),
                                load,
                                tokens,
                            )
                            for arm, run in at_hand.items()
                        },
                        table=table.partition(":")[2],
                        different=_different(at_hand),
                    )
                )
    return found


def _arms(section: Section, table: str) -> dict[str, str]:
    """Arms of a section by the name in a cell -> the name of the run."""
    arms = {arm: arm for arm in section.arms}
    arms |= {warm(arm): warm(arm) for arm in section.arms if parse_arm(arm).adapts}
    if table:
        arms[TABLE] = table
    return arms


def _different(runs: Mapping[str, Run]) -> dict[str, int]:
    """Requests whose tokens are not those of the first arm, by arm; greedy decoding has none."""
    first = next(iter(runs.values()))
    if first.key.temperature:
        return {}
    counts = {
        arm: sum(a != b for a, b in zip(first.sums, run.sums, strict=False))
        for arm, run in runs.items()
    }
    return {arm: count for arm, count in counts.items() if count}


def _steady(run: Run, device: Device) -> float:
    return Curve(run.steps, device.charge(run.key.method)).steady


def _key(section: Section, method: str, load: Load) -> RunKey:
    """The coordinates that all runs of a cell share."""
    return msgspec.structs.replace(section.key(method, STATIC[0], "", load), arm="")
