"""Worlds: what a server would have done with other policies, how sure that is, and what if.

The trace is cut into two halves, by requests and by blocks of steps, each with step costs of its
own. A table that is tuned on one half is judged on the other, so that no set-up is judged by what
it was tuned on. In each further world requests and blocks of steps of a half are drawn anew with
replacement (bootstrap) and step costs are fitted again: the spread over these worlds covers both
the acceptance and the step times that the trace is short of. All set-ups of a world meet the same
requests, so differences between set-ups are paired.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import msgspec
import numpy as np

from adaptive_spec.policy import build_policy
from adaptive_spec.sim.acceptance.data import AcceptanceData
from adaptive_spec.sim.acceptance.pool import take
from adaptive_spec.sim.advice.observed import Observed
from adaptive_spec.sim.advice.setups import NO_SPECULATION, SetUp
from adaptive_spec.sim.drafters.registry import drafter as find_drafter
from adaptive_spec.sim.engine.loop import Engine
from adaptive_spec.sim.engine.options import EngineOptions
from adaptive_spec.sim.hardware.base import Hardware
from adaptive_spec.sim.hardware.from_trace import TimedSteps, TraceFit, fit_profile
from adaptive_spec.sim.load.base import ClosedLoad
from adaptive_spec.sim.load.request import requests_of
from adaptive_spec.step import FloatArray, IntArray, Level

_BLOCK_STEPS = 32
"""Neighbouring steps share requests and disturbances of the machine."""
_MOST_STEPS = 4_000
"""Timed steps that a fit reads; more make it slower, hardly better."""
_WARM_UP_STEPS = 300
FEWEST_TOKENS = 4_000
HALVES = ("first", "second")
"""Names of the two halves."""
KEPT = 0.75
"""Share of accepted drafts that stay accepted, draft by draft, where acceptance is to fall."""
_TOKENS_PER_CLIENT = 200
_NO_LIMIT = 1 << 30
_NORMAL_OVER_MEDIAN = 1.4826


@dataclass(frozen=True)
class Outcome:
    """What a set-up did at a load.

    Attributes:
        tokens_per_second: throughput.
        tpot_seconds: [requests] time per output token of each request that ended.
        requests_per_second: requests that ended.
    """

    tokens_per_second: float
    tpot_seconds: FloatArray
    requests_per_second: float


@dataclass(frozen=True)
class World:
    """Requests, step costs and engine of one resampling."""

    acceptance: AcceptanceData
    hardware: Hardware
    fit: TraceFit
    drafter: str
    options: EngineOptions
    seed: int
    fewest_tokens: int

    def run(self, set_up: SetUp, clients: int) -> Outcome:
        """Serve a closed loop of so many clients."""
        none = set_up.name == NO_SPECULATION
        engine = Engine(
            ClosedLoad(requests_of(self.acceptance, seed=self.seed), clients, endless=True),
            self.acceptance,
            find_drafter("none" if none else self.drafter),
            self.hardware,
            build_policy(set_up.policy, set_up.options, seed=self.seed, baselines=True),
            msgspec.structs.replace(self.options, max_running=max(clients, 1)),
            seed=self.seed,
        )
        result = engine.run(
            max_tokens=max(self.fewest_tokens, _TOKENS_PER_CLIENT * clients),
            warmup_steps=_WARM_UP_STEPS,
        )
        return Outcome(
            tokens_per_second=result.throughput_tok_s,
            tpot_seconds=engine.measurements.tpot_seconds,
            requests_per_second=result.requests / result.seconds,
        )


def recorded_world(
    observed: Observed, steps: TimedSteps, *, drafter: str, seed: int, tokens: int
) -> World:
    """Return the world of all recorded requests and steps."""
    return _Maker(observed, steps, drafter, seed, tokens).world(
        np.arange(observed.acceptance.records), _evenly(np.arange(len(steps.seconds)))
    )


def halves(
    observed: Observed,
    steps: TimedSteps,
    *,
    drafter: str,
    count: int,
    seed: int,
    tokens: int,
) -> dict[str, World]:
    """Return both halves by name, and `count` resampled ones of each as `half/number`."""
    make = _Maker(observed, steps, drafter, seed, tokens)
    random = np.random.default_rng(seed)
    order = random.permutation(observed.acceptance.records)
    block = np.arange(len(steps.seconds)) // _BLOCK_STEPS
    made: dict[str, World] = {}
    for number, name in enumerate(HALVES):
        # A trace of one request has no halves: both are that request.
        records = order[number::2] if len(order) > 1 else order
        rows = np.flatnonzero(block % 2 == number) if block.max() > 0 else np.arange(len(block))
        made[name] = make.world(records, _evenly(rows))
        for draw in range(count):
            drawn = random.choice(records, len(records))
            starts = random.integers(0, len(rows), -(-min(len(rows), _MOST_STEPS) // _BLOCK_STEPS))
            places = (starts[:, None] + np.arange(_BLOCK_STEPS)).ravel() % len(rows)
            made[f"{name}/{draw}"] = make.world(drawn, rows[places], 1 + draw)
    return made


@dataclass(frozen=True)
class Change:
    """A world that differs from the recorded one.

    Attributes:
        name: what changes, for people.
        of: return the world after the change.
        load: factor of the load.
    """

    name: str
    of: Callable[[World], World]
    load: int = 1


def changes(observed: Observed) -> list[Change]:
    """Return what may change: load x 2, fewer accepted drafts, and another mix of requests."""
    data = observed.acceptance
    first = float((data.accepted > 0).mean())
    fewer = float((_thinned(data, 0).accepted > 0).mean())
    found = [
        Change("load x 2", lambda world: world, load=2),
        Change(f"first drafts accepted {first:.0%} -> {fewer:.0%}", _with_fewer_accepted),
    ]
    names = [name for name in dict.fromkeys(data.labels) if name]
    if len(names) > 1:
        least = min(names, key=lambda name: take(data, _labelled(data, name)).accepted.mean())
        mixed = f"twice the requests labelled {least}"
        found.append(
            Change(mixed, lambda world: _doubled(world, _labelled(world.acceptance, least)))
        )
    elif data.records > 1:
        found.append(Change("twice the requests that are hard to draft for", _doubled_hard))
    return found


def _thinned(data: AcceptanceData, seed: int) -> AcceptanceData:
    """Return the data with each accepted draft kept with probability `KEPT`, in order."""
    failed = np.random.default_rng(seed).geometric(1.0 - KEPT, len(data.accepted)) - 1
    accepted = np.minimum(data.accepted, failed).astype(np.uint8)
    return replace(data, accepted=accepted, confidence=None, lookup=None, tree_sizes=None)


def _with_fewer_accepted(world: World) -> World:
    return replace(world, acceptance=_thinned(world.acceptance, world.seed))


def _doubled_hard(world: World) -> World:
    data = world.acceptance
    means = np.add.reduceat(data.accepted.astype(np.float64), data.offsets[:-1]) / data.lengths
    return _doubled(world, np.flatnonzero(means <= np.median(means)))


def _labelled(data: AcceptanceData, label: str) -> IntArray:
    return np.flatnonzero(np.array([name == label for name in data.labels]))


def _doubled(world: World, records: IntArray) -> World:
    """Return a world in which these requests come twice as often."""
    data = world.acceptance
    both = np.concatenate((np.arange(data.records), records))
    mixed = np.random.default_rng(world.seed).permutation(both)
    return replace(world, acceptance=take(data, mixed))


class _Maker:
    """Makes worlds of requests and steps."""

    def __init__(
        self, observed: Observed, steps: TimedSteps, drafter: str, seed: int, tokens: int
    ) -> None:
        capability = observed.capability
        self._data = observed.acceptance
        self._steps = steps
        self._drafter, self._seed, self._tokens = drafter, seed, tokens
        self._options = EngineOptions(
            max_draft_tokens=observed.kmax,
            level=capability.level if capability else Level.FULL,
            ladder=capability.ladder if capability else (),
            ragged_penalty=capability.ragged_penalty if capability else 0.0,
            late_confidence=observed.late_confidence,
            kv_tokens=observed.pool_tokens or steps.pool_tokens or _NO_LIMIT,
        )

    def world(self, records: IntArray, rows: IntArray, number: int = 0) -> World:
        """Return the world of these requests and of these rows of the timed steps.

        `number` is added to the seed.
        """
        columns: dict[str, Any] = {
            column.name: value[rows]
            for column in fields(self._steps)
            if isinstance(value := getattr(self._steps, column.name), np.ndarray)
        }
        steps = replace(self._steps, **columns)
        profile, fit = fit_profile(steps, name="trace", source="", drafter="*")
        noise = _NORMAL_OVER_MEDIAN * fit.median_error
        return World(
            acceptance=take(self._data, records),
            hardware=Hardware(profile),
            fit=fit,
            drafter=self._drafter,
            options=msgspec.structs.replace(self._options, timing_noise=noise),
            seed=self._seed + number,
            fewest_tokens=self._tokens,
        )


def _evenly(rows: IntArray) -> IntArray:
    """Return at most `_MOST_STEPS` of the rows, spread evenly."""
    wanted = min(len(rows), _MOST_STEPS)
    kept: IntArray = rows[np.arange(wanted) * len(rows) // wanted]
    return kept
