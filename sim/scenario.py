"""A scenario in words: everything about a run but the policy, as a value that can be stored."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
import numpy as np

from adaptive_spec.policy import Policy
from adaptive_spec.sim.acceptance.confidence import with_confidence
from adaptive_spec.sim.acceptance.data import AcceptanceData
from adaptive_spec.sim.acceptance.files import load_acceptance
from adaptive_spec.sim.drafters.registry import drafter as find_drafter
from adaptive_spec.sim.engine.loop import Engine
from adaptive_spec.sim.engine.measurements import Limits
from adaptive_spec.sim.engine.options import EngineOptions
from adaptive_spec.sim.hardware.registry import hardware as find_hardware
from adaptive_spec.sim.load.builder import parse_load
from adaptive_spec.sim.policy_choice import PolicyChoice
from adaptive_spec.sim.result import Result

_SHAPING = 1
"""Sets the drafter's draws apart from those that made the acceptance data of the same seed."""

_COPIED = "ngram"
"""List of per-position files that holds drafts copied from the text."""

Positive = Annotated[float, msgspec.Meta(gt=0)]


class Phase(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Other acceptance data from a moment on, for all requests; see `sim.accepted`.

    Attributes:
        at: simulated seconds.
        files: as of `Scenario.acceptance`.
    """

    at: Positive
    files: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]


def check_ascending(phases: tuple[Phase, ...]) -> None:
    """Raise ValueError unless each phase begins after the one before."""
    moments = [phase.at for phase in phases]
    if moments != sorted(set(moments)):
        raise ValueError("`phases` must ascend in time")


class Scenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Load, acceptance, drafter, hardware and engine settings.

    Attributes:
        load: as the command line takes it, such as ``closed:64``.
        acceptance: files or ``model:NAME``, pooled.
        phases: what replaces the acceptance data, and when; ascending.
        drafter: name.
        hardware: name or file.
        engine: the engine's settings.
        seed: of load, records and policy.
        tokens: stop after this many emitted tokens; None: when the load has ended.
        seconds: stop after this many simulated seconds.
        confidence_auc: add a synthetic confidence signal of this AUC; None: only what was recorded.
        hide_confidence: leave out a confidence signal that was recorded.
        warmup_steps, warmup_tokens, warmup_seconds: left out of the figures; all must be over.
        ttft_limit_ms, tpot_limit_ms: what a request must keep to count for goodput.
        trace_directory: where to write a step trace.
    """

    load: str
    acceptance: tuple[str, ...]
    phases: tuple[Phase, ...] = ()
    drafter: str
    hardware: str
    engine: EngineOptions = EngineOptions()
    seed: int = 0
    tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    seconds: Positive = math.inf
    confidence_auc: Annotated[float, msgspec.Meta(ge=0.5, lt=1.0)] | None = None
    hide_confidence: bool = False
    warmup_steps: Annotated[int, msgspec.Meta(ge=0)] = 0
    warmup_tokens: Annotated[int, msgspec.Meta(ge=0)] = 0
    warmup_seconds: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    ttft_limit_ms: Positive | None = None
    tpot_limit_ms: Positive | None = None
    trace_directory: str | None = None

    def __post_init__(self) -> None:
        check_ascending(self.phases)

    @property
    def closed(self) -> bool:
        """The load is a closed loop: throughput is the score."""
        return parse_load(self.load, self.acceptance_data(), seed=self.seed).closed

    @property
    def endless(self) -> bool:
        """The load never ends by itself."""
        return parse_load(self.load, self.acceptance_data(), seed=self.seed).endless

    def most_drafts(self) -> int:
        """The largest Kmax for which this drafter can make drafts."""
        return find_drafter(self.drafter).most_drafts(self.acceptance_data().depth)

    def acceptance_data(self) -> AcceptanceData:
        """The acceptance data, before the drafter shapes it. Raises DataError."""
        return _acceptance(self._wanted(self.acceptance))

    def acceptance_mismatch(self) -> str:
        """Return why the acceptance data are not this drafter's, or "".

        Drafts copied from the text are accepted elsewhere, and less often, than those of a model.
        """
        wanted = find_drafter(self.drafter).acceptance_list
        if wanted != _COPIED or self.acceptance_data().drafter_list == wanted:
            return ""
        return (
            f"the acceptance data ({self.acceptance_data().name}) are not known to come from "
            f"copied drafts, as those of {self.drafter} are: give lists {wanted!r} recorded with "
            "such a drafter, or expect too much"
        )

    def load_notes(self) -> list[str]:
        """Return what was done to the files of the load, in words."""
        notes: list[str] = []
        parse_load(self.load, self.acceptance_data(), seed=self.seed, notes=notes)
        return notes

    def _shaped_acceptance(self, files: tuple[str, ...]) -> AcceptanceData:
        return _shaped(self._wanted(files), self.drafter)

    def _wanted(self, files: tuple[str, ...]) -> _Wanted:
        return _Wanted(
            files=files,
            drafter_list=find_drafter(self.drafter).acceptance_list,
            seed=self.seed,
            kmax=self.engine.max_draft_tokens,
            auc=self.confidence_auc,
            hide=self.hide_confidence,
        )

    def engine_for(self, policy: Policy) -> Engine:
        """A simulated server with this policy. Raises DataError or ConfigError."""
        return Engine(
            parse_load(self.load, self.acceptance_data(), seed=self.seed),
            self._shaped_acceptance(self.acceptance),
            find_drafter(self.drafter),
            find_hardware(self.hardware),
            policy,
            self.engine,
            seed=self.seed,
            limits=Limits(_seconds(self.ttft_limit_ms), _seconds(self.tpot_limit_ms)),
            trace_directory=self.trace_directory,
            shaped=True,
            phases=[(each.at, self._shaped_acceptance(each.files)) for each in self.phases],
        )

    def run(self, policy: Policy, name: str) -> Result:
        """Simulate it with this policy."""
        return self.run_engine(self.engine_for(policy), name)

    def run_engine(self, engine: Engine, name: str) -> Result:
        """Run an engine made by `engine_for` as long as the scenario says."""
        result = engine.run(
            max_tokens=self.tokens,
            max_seconds=self.seconds,
            warmup_steps=self.warmup_steps,
            warmup_tokens=self.warmup_tokens,
            warmup_seconds=self.warmup_seconds,
            name=name,
        )
        return msgspec.structs.replace(result, seed=self.seed)


def simulate(scenario: Scenario, choice: PolicyChoice) -> Result:
    """Run one policy on a scenario.

    Raises DataError, ConfigError or PolicyError: what cannot be read, found or used.
    """
    return scenario.run(choice.build(scenario.seed), choice.text)


class _Wanted(NamedTuple):
    """Key of the acceptance data of a scenario."""

    files: tuple[str, ...]
    drafter_list: str
    seed: int
    kmax: int
    auc: float | None
    hide: bool


@lru_cache(maxsize=8)
def _acceptance(wanted: _Wanted) -> AcceptanceData:
    data = load_acceptance(
        [Path(path) for path in wanted.files],
        drafter_list=wanted.drafter_list,
        seed=wanted.seed,
        kmax=wanted.kmax,
    )
    if wanted.hide:
        data = replace(data, confidence=None)
    if wanted.auc is None:
        return data
    return with_confidence(data, auc=wanted.auc, seed=wanted.seed)


@lru_cache(maxsize=8)
def _shaped(wanted: _Wanted, drafter: str) -> AcceptanceData:
    """Shaping a tree takes a second; the runs of a scenario share it."""
    random = np.random.default_rng([wanted.seed, _SHAPING])
    return find_drafter(drafter).shape(_acceptance(wanted), random)


def traced(scenario: Scenario, folder: Path | None) -> Scenario:
    """The scenario, with a step trace into this folder."""
    directory = None if folder is None else str(folder)
    return msgspec.structs.replace(scenario, trace_directory=directory)


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1e3
