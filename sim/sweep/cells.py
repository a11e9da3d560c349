"""The cells of a sweep: one scenario each, the cross product of the axes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import TypeVar

import msgspec

from adaptive_spec.errors import ConfigError, PolicyError
from adaptive_spec.sim.data_folder import data_folder
from adaptive_spec.sim.drafters.registry import drafter as find_drafter
from adaptive_spec.sim.hardware.registry import hardware_profile
from adaptive_spec.sim.load.load_text import existing_path
from adaptive_spec.sim.policy_choice import parse_policy
from adaptive_spec.sim.scenario import Phase, Scenario
from adaptive_spec.sim.sweep.config import AcceptanceSet, LoadEntry, SweepConfig

DATA = "${data}"
_VARIABLE = re.compile(r"\$\{([^}]*)\}")
Number = TypeVar("Number", int, float)


class CellName(msgspec.Struct, frozen=True, order=True):
    """Position of a cell on each axis, in the words of the configuration."""

    acceptance: str
    drafter: str
    hardware: str
    engine: str
    load: str
    seed: int

    @property
    def text(self) -> str:
        """Name of the cell: shown, and its key in results."""
        parts = (self.acceptance, self.drafter, self.hardware, self.engine, self.load)
        return " / ".join((*parts, f"seed {self.seed}"))


class Cell(msgspec.Struct, frozen=True):
    """A scenario and its name."""

    name: CellName
    scenario: Scenario


def resolve(text: str, folder: Path) -> str:
    """An absolute path if a text of the configuration names a file, otherwise the text as it is.

    Options may follow a load's file: ``FILE@rate=2``. Relative paths start from the folder.

    Raises DataError if it needs the data folder and there is none.
    """
    if DATA in text:
        text = text.replace(DATA, str(data_folder().resolve()))
    found = existing_path(text, folder)
    # Other texts are names, or errors that their reader reports.
    return text if found is None else str(found[0].resolve()) + found[1]


def plan_cells(config: SweepConfig, folder: Path) -> tuple[Cell, ...]:
    """All cells, in the order of the axes, seeds innermost.

    Raises DataError if ``${data}`` is used and there is no data folder.
    """
    return tuple(_cells(config, folder))


def _cells(config: SweepConfig, folder: Path) -> Iterator[Cell]:
    axes = product(
        config.acceptance_sets().items(),
        config.drafters,
        config.hardware,
        config.engines().items(),
        config.load_entries(),
    )
    for (name, acceptance), drafter, hardware, (variant, engine), load in axes:
        if not _wanted(name, acceptance, drafter, hardware, load):
            continue
        if acceptance.max_draft_tokens is not None:
            engine = msgspec.structs.replace(engine, max_draft_tokens=acceptance.max_draft_tokens)
        signal = acceptance.confidence
        for seed in config.seed_list():
            scenario = Scenario(
                load=resolve(load.load, folder),
                acceptance=tuple(resolve(file, folder) for file in acceptance.files),
                phases=tuple(
                    Phase(at=each.at, files=tuple(resolve(file, folder) for file in each.files))
                    for each in acceptance.phases
                ),
                drafter=drafter,
                hardware=resolve(hardware, folder),
                engine=engine,
                seed=seed,
                tokens=load.tokens or config.tokens,
                seconds=load.seconds or config.seconds or math.inf,
                confidence_auc=signal if isinstance(signal, float) else None,
                hide_confidence=signal == "hidden",
                warmup_steps=_first(load.warmup_steps, config.warmup_steps),
                warmup_tokens=_first(load.warmup_tokens, config.warmup_tokens),
                warmup_seconds=_first(load.warmup_seconds, config.warmup_seconds),
                ttft_limit_ms=config.ttft_limit_ms,
                tpot_limit_ms=config.tpot_limit_ms,
            )
            cell = CellName(name, drafter, hardware, variant, load.label, seed)
            yield Cell(cell, scenario)


def check_cells(config: SweepConfig, cells: tuple[Cell, ...], file: Path) -> None:
    """Open and build everything the sweep names once, so that mistakes show before it runs.

    Raises ConfigError, DataError or PolicyError.
    """
    if not cells:
        raise ConfigError(
            f"{file}: nothing to run: no acceptance set, drafter and load may go together"
        )
    for text in dict.fromkeys(text for _, _, text in policy_texts(config, cells, file.parent)):
        try:
            parse_policy(text).build(cells[0].scenario.seed)
        except PolicyError as error:
            raise PolicyError(f"{file}: `policies`: {error}") from error
    for name in dict.fromkeys(cell.scenario.hardware for cell in cells):
        hardware_profile(name)
    engines: set[tuple[object, ...]] = set()
    loads: set[str] = set()
    for cell in cells:
        scenario = cell.scenario
        find_drafter(scenario.drafter)
        key = (
            scenario.acceptance,
            scenario.phases,
            scenario.drafter,
            scenario.hardware,
            scenario.engine,
        )
        if key not in engines:
            engines.add(key)
            _check_engine(cell, file)
        if cell.name.load not in loads:
            loads.add(cell.name.load)
            if scenario.endless and scenario.tokens is None and math.isinf(scenario.seconds):
                raise ConfigError(
                    f"{file}: load {cell.name.load!r} never ends; give `tokens` or `seconds`"
                )
    for cell in cells:
        for _, _, text in policy_texts(config, (cell,), file.parent):
            parse_policy(text).require_runnable(cell.scenario.engine)


def policy_texts(
    config: SweepConfig, cells: tuple[Cell, ...], folder: Path
) -> Iterator[tuple[Cell, str, str]]:
    """Cell, label and text of every policy on every cell.

    In a text stand for the cell: ``${folder}`` of the configuration, and the names
    ``${acceptance}``, ``${drafter}`` and ``${hardware}`` on its axes. Raises ConfigError for a
    variable that is not there.
    """
    for cell in cells:
        for entry in config.policy_entries():
            yield cell, entry.label, _put_in(entry.policy, folder, cell.name)


def _put_in(policy: str, folder: Path, cell: CellName) -> str:
    names = {
        "folder": str(folder.resolve()),
        "acceptance": cell.acceptance,
        "drafter": cell.drafter,
        "hardware": cell.hardware,
    }

    def value(match: re.Match[str]) -> str:
        if match[1] in names:
            return names[match[1]]
        known = ", ".join(f"${{{name}}}" for name in names)
        raise ConfigError(f"policy {policy!r}: no variable {match[0]}; there are {known}")

    return _VARIABLE.sub(value, policy)


def _check_engine(cell: Cell, file: Path) -> None:
    """Build an engine, which finds settings that contradict drafter, acceptance or hardware."""
    # Loads may fail here as well, but they name themselves.
    scenario, name = cell.scenario, cell.name
    try:
        scenario.engine_for(parse_policy("off").build(scenario.seed))
    except ConfigError as error:
        place = " / ".join((name.acceptance, name.drafter, name.hardware, name.engine))
        raise ConfigError(f"{file}: {place}: {error}") from error


def gpus(hardware: str) -> int:
    """GPUs that share the model on this hardware."""
    return hardware_profile(hardware).tensor_parallel


def _wanted(
    name: str, acceptance: AcceptanceSet, drafter: str, hardware: str, load: LoadEntry
) -> bool:
    allowed = (
        (drafter, acceptance.drafters),
        (drafter, load.drafters),
        (name, load.acceptance),
        (hardware, load.hardware),
    )
    return all(names is None or item in names for item, names in allowed)


def _first(value: Number | None, other: Number) -> Number:
    return other if value is None else value
