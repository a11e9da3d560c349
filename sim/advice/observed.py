"""Figures of recorded steps: load, K used, acceptance by position and kind, step times.

`Sums` of several servers add up, so that those of a fleet need no rows.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from adaptive_spec.audit.confidence_sequence import Sequence
from adaptive_spec.sim.acceptance.data import AcceptanceData
from adaptive_spec.sim.advice.measured import MeasuredGain
from adaptive_spec.sim.step_trace import RecordedStep, TaskNames
from adaptive_spec.step import Capability

_LEAST_SHARE = 0.01
"""Loads with a smaller share of the time are left out."""
_STALL = 50.0
"""Longest step that counts as busy time, in medians of its load."""
_WIDTH = 256
"""More than any K."""
_TIMES_PER_E = 1000.0
"""Step times are counted by their logarithm, as finely as this."""


class LoadFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Steps of one band of batch sizes.

    Attributes:
        clients: commonest batch size of the band; 0 for all loads together.
        share: fraction of the measured time.
        steps: number of steps.
        tokens_per_second: emitted tokens over measured seconds.
        step_ms: median duration of a step that held no prompt tokens; None if all did.
        mean_k: verified drafts per request and step.
        acceptance: accepted over verified drafts; None if none were verified.
    """

    clients: int
    share: float
    steps: int
    tokens_per_second: float
    step_ms: float | None
    mean_k: float
    acceptance: float | None


class KindFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Requests of one task label, or all of them.

    Attributes:
        name: label, as far as a trace keeps it.
        requests: number of requests.
        by_position: probability that draft j is accepted once all before it were, by position;
            None where it was never verified.
    """

    name: str
    requests: int
    by_position: list[float | None]

    @property
    def accepted(self) -> list[float]:
        """Accepted drafts per request and step at K = 1, 2, ..., up to the deepest tried."""
        known = itertools.takewhile(lambda rate: rate is not None, self.by_position)
        reached = itertools.accumulate((rate or 0.0 for rate in known), operator.mul)
        return list(itertools.accumulate(reached))


@dataclass(frozen=True)
class Observed:
    """All that advice takes from the traces.

    Attributes:
        loads: by ascending load.
        kinds: all requests first, then task labels.
        overall: all loads together.
        k_share: fraction of request-steps by K.
        ran: how often each K ran, by batch size.
        engine_k: how often the engine would have run each K, by batch size; empty in traces of
            older versions.
        modes: fraction of steps by mode.
        acceptance: acceptance at every output position, one record per request.
        kmax: the largest K that the engine allows.
        capability: control options of the engine; None in traces of older versions.
        late_confidence: the drafts' confidence came with the outcome of their step.
        mean_context: tokens of context per decoding request.
        pool_tokens: size of the KV pool; None if the engine did not say.
        seconds: measured time of all steps, without stalls.
        measured: differences from the engine's own K, by audit blocks.
    """

    loads: list[LoadFacts]
    kinds: list[KindFacts]
    overall: LoadFacts
    k_share: dict[int, float]
    ran: dict[int, Counter[int]]
    engine_k: dict[int, Counter[int]]
    modes: dict[str, float]
    acceptance: AcceptanceData
    kmax: int
    capability: Capability | None
    late_confidence: bool
    mean_context: float
    pool_tokens: int | None
    seconds: float
    measured: Sequence


class Band(msgspec.Struct, kw_only=True):
    """Sums over steps of alike batch size.

    Attributes:
        times, plain: steps by `_TIMES_PER_E` ln of their seconds, and those without prompts.
        by_size: steps by batch size.
        emitted, verified, accepted: tokens.
        rows: steps of requests.
    """

    times: dict[int, int] = {}
    plain: dict[int, int] = {}
    by_size: dict[int, int] = {}
    emitted: int = 0
    verified: int = 0
    accepted: int = 0
    rows: int = 0

    def add(self, step: RecordedStep) -> None:
        """Add a step that was measured."""
        assert step.seconds
        time = round(_TIMES_PER_E * math.log(step.seconds))
        for counts in (self.times,) if step.prefill_tokens else (self.times, self.plain):
            _count(counts, time)
        _count(self.by_size, step.batch_size)
        self.emitted += sum(step.emitted)
        self.verified += sum(step.k)
        self.accepted += sum(step.accepted)
        self.rows += len(step.ids)

    @property
    def steps(self) -> int:
        """Number of steps."""
        return sum(self.times.values())

    @property
    def seconds(self) -> float:
        """Time of the steps; one in which the machine stood still counts as a long one."""
        longest = _STALL * _median(self.times)
        each = np.exp(np.array(list(self.times)) / _TIMES_PER_E)
        return float(np.minimum(each, longest) @ np.array(list(self.times.values())))

    def facts(self, total: float, *, clients: int | None = None) -> LoadFacts:
        """Return the figures.

        Args:
            total: measured time of all loads (seconds).
            clients: None: the commonest batch size.
        """
        seconds = self.seconds
        commonest = max(self.by_size, key=lambda size: self.by_size[size])
        return LoadFacts(
            clients=commonest if clients is None else clients,
            share=seconds / total,
            steps=self.steps,
            tokens_per_second=self.emitted / seconds,
            step_ms=1e3 * _median(self.plain) if self.plain else None,
            mean_k=self.verified / max(self.rows, 1),
            acceptance=self.accepted / self.verified if self.verified else None,
        )


def _median(times: Mapping[int, int]) -> float:
    """Return the median of counted times (seconds)."""
    order = sorted(times)
    reached = np.cumsum([times[time] for time in order])
    middle = int(np.searchsorted(reached, 0.5 * reached[-1]))
    return math.exp(order[middle] / _TIMES_PER_E)


class Positions(msgspec.Struct, kw_only=True):
    """Outcomes of steps of requests.

    Attributes:
        outcomes: how often, by `_WIDTH` K + accepted.
        requests: that they are of.
    """

    outcomes: dict[int, int] = {}
    requests: int = 0

    def facts(self, name: str, kmax: int) -> KindFacts:
        """Return the figures."""
        rates: list[float | None] = []
        for position in range(kmax):
            tried = kept = 0
            for outcome, count in self.outcomes.items():
                k, accepted = divmod(outcome, _WIDTH)
                tried += count * (position < min(accepted + 1, k))
                kept += count * (position < accepted)
            rates.append(kept / tried if tried else None)
        return KindFacts(name=name, requests=self.requests, by_position=rates)


class Sums(msgspec.Struct, kw_only=True):
    """Everything of a trace that adds up over steps, and over servers.

    Attributes:
        bands: by bits of the batch size.
        whole: all of them.
        every, kinds: by draft position, of all requests and by task label.
        k, modes: steps of requests by K, steps by mode.
        ran, engine_k: as in `Observed`.
        contexts: tokens of context, over steps.
        late: a confidence came with the outcome of its step.
        pool_tokens: size of the KV pool; None if no engine said.
        capability: of the engine; None in traces of older versions.
        model: that the engine names; "": none.
        measured: sums of the audit's sequence.
    """

    bands: dict[int, Band] = {}
    whole: Band = msgspec.field(default_factory=Band)
    every: Positions = msgspec.field(default_factory=Positions)
    kinds: dict[str, Positions] = {}
    k: dict[int, int] = {}
    modes: dict[str, int] = {}
    ran: dict[int, dict[int, int]] = {}
    engine_k: dict[int, dict[int, int]] = {}
    contexts: int = 0
    late: bool = False
    pool_tokens: int | None = None
    capability: Capability | None = None
    model: str = ""
    measured: list[float] = msgspec.field(default_factory=lambda: [0.0] * 6)

    def __add__(self, other: Sums) -> Sums:
        """Return the sums of both, of servers with the same Kmax."""
        counts = (
            msgspec.structs.replace(each, capability=None, pool_tokens=None)
            for each in (self, other)
        )
        added = msgspec.convert(_added(*map(msgspec.to_builtins, counts)), Sums)
        pools = [each.pool_tokens for each in (self, other) if each.pool_tokens is not None]
        return msgspec.structs.replace(
            added,
            capability=self.capability or other.capability,
            pool_tokens=min(pools, default=None),
        )

    @property
    def kmax(self) -> int:
        """Largest K that the engine allows, or that has run in traces of older versions."""
        return self.capability.max_draft_tokens if self.capability else max(*self.k, 1)

    def observed(self, acceptance: AcceptanceData) -> Observed:
        """Return the figures, of measured steps."""
        busy = sum(band.seconds for band in self.bands.values())
        kept = [
            band for _, band in sorted(self.bands.items()) if band.seconds >= _LEAST_SHARE * busy
        ]
        total = sum(band.seconds for band in kept)
        steps_of_requests, steps = sum(self.k.values()), sum(self.modes.values())
        return Observed(
            loads=[band.facts(total) for band in kept],
            kinds=[
                self.every.facts("all", self.kmax),
                *(found.facts(label, self.kmax) for label, found in sorted(self.kinds.items())),
            ],
            overall=msgspec.structs.replace(
                self.whole.facts(1.0, clients=0),
                share=1.0,
                tokens_per_second=self.whole.emitted / busy,
            ),
            k_share={k: count / steps_of_requests for k, count in sorted(self.k.items())},
            ran={size: Counter(counts) for size, counts in self.ran.items()},
            engine_k={size: Counter(counts) for size, counts in self.engine_k.items()},
            modes={mode: count / steps for mode, count in Counter(self.modes).most_common()},
            acceptance=acceptance,
            kmax=self.kmax,
            capability=self.capability,
            late_confidence=self.late,
            mean_context=self.contexts / max(steps_of_requests, 1),
            pool_tokens=self.pool_tokens,
            seconds=busy,
            measured=Sequence(self.measured),
        )


def _added(one: Any, other: Any) -> Any:
    """Add plain values: numbers, lists of them, and objects by key; of others, what is known."""
    if isinstance(one, bool):
        return one or other
    if isinstance(one, dict) and isinstance(other, dict):
        both = {key: _added(one[key], other[key]) for key in one.keys() & other.keys()}
        return {key: both.get(key, one.get(key, other.get(key))) for key in {**one, **other}}
    if isinstance(one, list):
        return [_added(*pair) for pair in zip(one, other, strict=True)]
    if isinstance(one, int | float) and isinstance(other, int | float):
        return one + other
    return one or other


class Observer:
    """Adds the steps of a trace up."""

    def __init__(self) -> None:
        self._sums = Sums()
        self._names = TaskNames()
        self._measured = MeasuredGain()
        self._seen: set[tuple[str, int]] = set()

    def add(self, step: RecordedStep) -> None:
        """Add a step."""
        sums = self._sums
        sums.capability = step.capability or sums.capability
        sums.model = step.model or sums.model
        sums.late = sums.late or step.late_confidence is not None
        sums.pool_tokens = step.kv_total_tokens or sums.pool_tokens
        sums.contexts += step.context_tokens
        _count(sums.modes, step.mode.value)
        for k, rows in Counter(step.k).items():
            _count(sums.k, k, rows)
            _count(sums.ran.setdefault(step.batch_size, {}), k, rows)
        if step.engine_k is not None:
            _count(sums.engine_k.setdefault(step.batch_size, {}), step.engine_k)
        self._names.read(step)
        self._measured.add(step)
        for row, number in enumerate(step.requests):
            outcome = _WIDTH * step.k[row] + step.accepted[row]
            self._add("", sums.every, number, outcome)
            if label := self._names.of(step, row):
                self._add(label, sums.kinds.setdefault(label, Positions()), number, outcome)
        if step.seconds and step.batch_size:
            sums.bands.setdefault(step.batch_size.bit_length(), Band()).add(step)
            sums.whole.add(step)

    def _add(self, label: str, positions: Positions, number: int, outcome: int) -> None:
        _count(positions.outcomes, outcome)
        if (label, number) not in self._seen:
            self._seen.add((label, number))
            positions.requests += 1

    def sums(self) -> Sums:
        """Return the sums of all steps."""
        return msgspec.structs.replace(self._sums, measured=list(self._measured.sequence.sums))


def _count(counts: dict[Any, int], key: Any, number: int = 1) -> None:
    counts[key] = counts.get(key, 0) + number
