"""What recorded steps show: load, K used, acceptance by position and kind, step times."""

from __future__ import annotations

import itertools
import operator
from array import array
from collections import Counter, defaultdict
from dataclasses import dataclass, field

import msgspec
import numpy as np

from adaptive_spec.errors import DataError
from adaptive_spec.sim.acceptance.data import AcceptanceData
from adaptive_spec.sim.acceptance.pool import pool
from adaptive_spec.sim.acceptance.recorded import read_served_requests
from adaptive_spec.sim.advice.measured import MeasuredGain
from adaptive_spec.sim.step_trace import RecordedStep, Source, TaskNames, find_trace
from adaptive_spec.step import Capability

_LEAST_SHARE = 0.01
"""Loads with a smaller share of the time are left out."""
_STALL = 50.0
"""Longest step that counts as busy time, in medians of its load."""


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
        measured: by audit blocks.
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
    measured: MeasuredGain


@dataclass
class _Band:
    """Sums over steps of alike batch size."""

    times: array[float] = field(default_factory=lambda: array("d"))
    by_size: Counter[int] = field(default_factory=Counter)
    emitted: int = 0
    verified: int = 0
    accepted: int = 0
    rows: int = 0
    steps: int = 0
    plain: array[float] = field(default_factory=lambda: array("d"))

    def add(self, step: RecordedStep) -> None:
        assert step.seconds is not None
        self.times.append(step.seconds)
        self.by_size[step.batch_size] += 1
        self.emitted += sum(step.emitted)
        self.verified += sum(step.k)
        self.accepted += sum(step.accepted)
        self.rows += len(step.ids)
        self.steps += 1
        if not step.prefill_tokens:
            self.plain.append(step.seconds)

    @property
    def seconds(self) -> float:
        """Time of the steps; one in which the machine stood still counts as a long one."""
        times = np.frombuffer(self.times)
        return float(np.minimum(times, _STALL * np.median(times)).sum())

    def facts(self, total: float, *, clients: int | None = None) -> LoadFacts:
        seconds = self.seconds
        return LoadFacts(
            clients=self.by_size.most_common(1)[0][0] if clients is None else clients,
            share=seconds / total,
            steps=self.steps,
            tokens_per_second=self.emitted / seconds,
            step_ms=1e3 * float(np.median(self.plain)) if self.plain else None,
            mean_k=self.verified / max(self.rows, 1),
            acceptance=self.accepted / self.verified if self.verified else None,
        )


@dataclass
class _Positions:
    """Trials and successes of each draft position, and the requests they came from."""

    tried: Counter[int] = field(default_factory=Counter)
    kept: Counter[int] = field(default_factory=Counter)
    requests: set[int] = field(default_factory=set)

    def facts(self, name: str, kmax: int) -> KindFacts:
        rates = [self.kept[j] / self.tried[j] if self.tried[j] else None for j in range(kmax)]
        return KindFacts(name=name, requests=len(self.requests), by_position=rates)


def observe(source: Source, *, seed: int = 0) -> Observed:
    """Read the traces of one server's set-up.

    Raises DataError naming file and step, or what the traces lack.
    """
    trace = find_trace(source)
    bands: dict[int, _Band] = defaultdict(_Band)
    kinds: dict[str, _Positions] = defaultdict(_Positions)
    names = TaskNames()
    every, whole, measured = _Positions(), _Band(), MeasuredGain()
    k_counts: Counter[int] = Counter()
    modes: Counter[str] = Counter()
    ran: dict[int, Counter[int]] = defaultdict(Counter)
    engine_k: dict[int, Counter[int]] = defaultdict(Counter)
    capability, late, pool_tokens, contexts = None, False, None, 0
    for step in trace.steps():
        capability = step.capability or capability
        late = late or step.late_confidence is not None
        pool_tokens = step.kv_total_tokens or pool_tokens
        modes[step.mode.value] += 1
        k_counts.update(step.k)
        ran[step.batch_size].update(step.k)
        if step.engine_k is not None:
            engine_k[step.batch_size][step.engine_k] += 1
        contexts += step.context_tokens
        names.read(step)
        measured.add(step)
        for row, number in enumerate(step.requests):
            label = names.of(step, row)
            for positions in (every, kinds[label]) if label else (every,):
                positions.requests.add(number)
                accepted = step.accepted[row]
                positions.tried.update(range(min(accepted + 1, step.k[row])))
                positions.kept.update(range(accepted))
        if step.seconds and step.batch_size:
            bands[step.batch_size.bit_length()].add(step)
            whole.add(step)
    if not whole.steps:
        raise DataError(f"{trace.name}: no measured decode steps")
    kmax = capability.max_draft_tokens if capability else max(max(k_counts), 1)
    busy = sum(band.seconds for band in bands.values())
    kept = [band for _, band in sorted(bands.items()) if band.seconds >= _LEAST_SHARE * busy]
    total = sum(band.seconds for band in kept)
    shown = sorted(kinds.items())
    return Observed(
        loads=[band.facts(total) for band in kept],
        kinds=[every.facts("all", kmax), *(found.facts(name, kmax) for name, found in shown)],
        overall=msgspec.structs.replace(
            whole.facts(1.0, clients=0), share=1.0, tokens_per_second=whole.emitted / busy
        ),
        k_share={k: count / k_counts.total() for k, count in sorted(k_counts.items())},
        ran=dict(ran),
        engine_k=dict(engine_k),
        modes={mode: count / modes.total() for mode, count in modes.most_common()},
        acceptance=pool([read_served_requests(trace, depth=kmax, seed=seed)], seed=seed),
        kmax=kmax,
        capability=capability,
        late_confidence=late,
        mean_context=contexts / max(k_counts.total(), 1),
        pool_tokens=pool_tokens,
        seconds=busy,
        measured=measured,
    )
