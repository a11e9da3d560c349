"""The configuration of a sweep: one YAML or JSON tree of policies and axes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from adaptive_spec.bounded_read import decode_document, read_small_file
from adaptive_spec.errors import ConfigError
from adaptive_spec.sim.engine.options import EngineOptions
from adaptive_spec.sim.scenario import Phase, check_ascending

Count = Annotated[int, msgspec.Meta(ge=1)]
Positive = Annotated[float, msgspec.Meta(gt=0)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]
NonNegative = Annotated[int, msgspec.Meta(ge=0)]
Text = Annotated[str, msgspec.Meta(min_length=1)]


class PolicyEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A policy under a name of its own.

    Attributes:
        policy: NAME or NAME:key=value,...
        name: in results; the policy's own text unless given.
    """

    policy: Text
    name: Text | None = None

    @property
    def label(self) -> str:
        """Name in results."""
        return self.name or self.policy


class AcceptanceSet(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Acceptance data under one name.

    Attributes:
        files: files or ``model:NAME``, pooled.
        drafters: the drafters it is run with; None: all of the sweep.
        max_draft_tokens: Kmax with this set, where it knows fewer draft positions than others.
        confidence: `recorded` if there is any, `hidden`, or the AUC of a synthetic signal.
        phases: what replaces the files, and when.
    """

    files: Annotated[tuple[Text, ...], msgspec.Meta(min_length=1)]
    drafters: tuple[Text, ...] | None = None
    max_draft_tokens: Count | None = None
    confidence: Literal["recorded", "hidden"] | Annotated[float, msgspec.Meta(ge=0.5, lt=1)] = (
        "recorded"
    )
    phases: tuple[Phase, ...] = ()

    def __post_init__(self) -> None:
        check_ascending(self.phases)


class LoadEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A load, with what differs for it.

    Attributes:
        load: as ``replay --load`` takes it.
        name: in results; the load's own text unless given.
        tokens, seconds, warmup_steps, warmup_tokens, warmup_seconds: instead of the sweep's.
        acceptance, drafters, hardware: names it is run with; None: all of the sweep. A rate
            that saturates one machine leaves another idle.
    """

    load: Text
    name: Text | None = None
    tokens: Count | None = None
    seconds: Positive | None = None
    warmup_steps: NonNegative | None = None
    warmup_tokens: NonNegative | None = None
    warmup_seconds: Seconds | None = None
    acceptance: tuple[Text, ...] | None = None
    drafters: tuple[Text, ...] | None = None
    hardware: tuple[Text, ...] | None = None

    @property
    def label(self) -> str:
        """Name in results."""
        return self.name or self.load


class SweepConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Policies, and the axes whose cross product makes the cells.

    Attributes:
        policies: texts, NAME or NAME:key=value,..., or objects that give one a name. Variables in
            them are described in `cells.policy_texts`.
        acceptance: named sets of acceptance data.
        drafters: names.
        hardware: names or files.
        loads: texts, or objects with what differs for one.
        seeds: a list, or how many (0, 1, ...); the time of a sweep is in proportion.
        engine: settings of the simulated engine.
        engine_variants: named settings that differ from `engine`; empty: one, named `default`.
        tokens: stop a run after this many emitted tokens.
        seconds: stop after this many simulated seconds.
        warmup_steps, warmup_tokens, warmup_seconds: left out of the figures; all must be over.
        ttft_limit_ms, tpot_limit_ms: what a request must keep to count for goodput.
        oracles: run the fixed K of each cell.
        foresight: and perfect foresight, which takes as long as ten of them.
    """

    policies: Annotated[tuple[Text | PolicyEntry, ...], msgspec.Meta(min_length=1)]
    acceptance: Annotated[
        dict[Text, Text | tuple[Text, ...] | AcceptanceSet], msgspec.Meta(min_length=1)
    ]
    drafters: Annotated[tuple[Text, ...], msgspec.Meta(min_length=1)]
    hardware: Annotated[tuple[Text, ...], msgspec.Meta(min_length=1)]
    loads: Annotated[tuple[Text | LoadEntry, ...], msgspec.Meta(min_length=1)]
    seeds: Count | Annotated[tuple[NonNegative, ...], msgspec.Meta(min_length=1)] = 3
    engine: dict[str, Any] = {}
    engine_variants: dict[Text, dict[str, Any]] = {}
    tokens: Count | None = None
    seconds: Positive | None = None
    warmup_steps: NonNegative = 0
    warmup_tokens: NonNegative = 0
    warmup_seconds: Seconds = 0.0
    ttft_limit_ms: Positive | None = None
    tpot_limit_ms: Positive | None = None
    oracles: bool = True
    foresight: bool = True

    def policy_entries(self) -> tuple[PolicyEntry, ...]:
        """Entries in order."""
        return tuple(PolicyEntry(policy=x) if isinstance(x, str) else x for x in self.policies)

    def acceptance_sets(self) -> dict[str, AcceptanceSet]:
        """Acceptance sets by name."""
        return {name: _acceptance_set(value) for name, value in self.acceptance.items()}

    def load_entries(self) -> tuple[LoadEntry, ...]:
        """Entries in order."""
        return tuple(LoadEntry(load=x) if isinstance(x, str) else x for x in self.loads)

    def seed_list(self) -> tuple[int, ...]:
        """The seeds."""
        return tuple(range(self.seeds)) if isinstance(self.seeds, int) else self.seeds

    def engines(self) -> dict[str, EngineOptions]:
        """Engine settings by variant. Raises msgspec.ValidationError."""
        variants = self.engine_variants or {"default": {}}
        return {
            name: _engine(self.engine | changed, f"$.engine_variants.{name}")
            for name, changed in variants.items()
        }


def load_sweep_config(file: Path) -> SweepConfig:
    """Read a sweep's configuration.

    Raises ConfigError, one line that names file and key, if it can't be read or is not valid.
    """
    try:
        value = decode_document(file, read_small_file(file))
    except OSError as error:
        raise ConfigError(f"sweep configuration {str(file)!r}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{file}: not valid {file.suffix or 'YAML'}: {error}") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{file}: expected keys such as policies, loads, acceptance")
    policies = value.get("policies")
    if isinstance(policies, list):  # YAML reads a bare `off` as false
        value["policies"] = ["off" if entry is False else entry for entry in policies]
    try:
        config = msgspec.convert(value, SweepConfig)
        config.engines()
    except msgspec.ValidationError as error:
        raise ConfigError(f"{file}: {error}; {_known_keys(str(error))}") from error
    _check_names(config, file)
    return config


def _acceptance_set(value: str | tuple[str, ...] | AcceptanceSet) -> AcceptanceSet:
    if isinstance(value, AcceptanceSet):
        return value
    return AcceptanceSet(files=(value,) if isinstance(value, str) else value)


def _engine(settings: dict[str, Any], place: str) -> EngineOptions:
    try:
        return msgspec.convert(settings, EngineOptions)
    except msgspec.ValidationError as error:
        message, at, key = str(error).partition(" - at `$")
        place = place if at else f"{place}`"
        raise msgspec.ValidationError(f"{message} - at `{place}{key}") from error


def _known_keys(message: str) -> str:
    """The keys of the object that a msgspec message speaks of."""
    struct: type[msgspec.Struct] = SweepConfig
    for key, nested in (
        ("$.policies", PolicyEntry),
        ("$.loads", LoadEntry),
        ("$.acceptance", AcceptanceSet),
        ("$.engine", EngineOptions),
    ):
        if key in message:
            struct = nested
    return "keys are " + ", ".join(field.name for field in msgspec.structs.fields(struct))


def _check_names(config: SweepConfig, file: Path) -> None:
    """Every name stands once, and every name that is referred to exists."""
    known: dict[str, tuple[object, ...]] = {
        "acceptance": tuple(config.acceptance),
        "drafters": config.drafters,
        "hardware": config.hardware,
    }
    entries = config.load_entries()
    for key, names in (
        ("policies", tuple(entry.label for entry in config.policy_entries())),
        ("drafters", config.drafters),
        ("hardware", config.hardware),
        ("loads", tuple(entry.label for entry in entries)),
        ("seeds", config.seed_list()),
    ):
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise ConfigError(f"{file}: `{key}`: {twice[0]!r} stands there twice; drop one")
    axes = ("acceptance", "drafters", "hardware")
    references = [(f"loads: {e.label}", axis, getattr(e, axis)) for e in entries for axis in axes]
    references += [
        (f"acceptance: {name}", "drafters", chosen.drafters)
        for name, chosen in config.acceptance_sets().items()
    ]
    for place, axis, names in references:
        for name in names or ():
            if name not in known[axis]:
                raise ConfigError(
                    f"{file}: `{place}`: {name!r} is not among `{axis}`, "
                    f"which are {', '.join(map(str, known[axis]))}"
                )
