"""Resampled worlds: what a server would have done with other policies, and how sure that is.

The first world holds the recorded requests and steps themselves. In each further world requests
and blocks of steps are drawn anew with replacement (bootstrap), and step costs are fitted again, so
that the spread over worlds covers both the acceptance and the step times that the trace is short
of. All policies of a world meet the same requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

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
from adaptive_spec.sim.load.records import requests_of
from adaptive_spec.step import FloatArray, Level

_BLOCK_STEPS = 32
"""Neighbouring steps share requests and disturbances of the machine."""
_MOST_STEPS = 4_000
"""Timed steps that a fit reads; more make it slower, hardly better."""
_WARM_UP_STEPS = 300
FEWEST_TOKENS = 4_000
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


def worlds(
    observed: Observed, steps: TimedSteps, *, drafter: str, count: int, seed: int, tokens: int
) -> Iterator[World]:
    """Yield the recorded world, then `count` resampled ones."""
    capability = observed.capability
    options = EngineOptions(
        max_draft_tokens=observed.kmax,
        level=capability.level if capability else Level.FULL,
        ladder=capability.ladder if capability else (),
        ragged_penalty=capability.ragged_penalty if capability else 0.0,
        stops_drafting=capability.stops_drafting if capability else False,
        late_confidence=observed.late_confidence,
        kv_tokens=observed.pool_tokens or steps.pool_tokens or _NO_LIMIT,
    )
    random = np.random.default_rng(seed)
    data = observed.acceptance
    for number in range(count + 1):
        drawn = data if not number else take(data, random.integers(0, data.records, data.records))
        profile, fit = fit_profile(
            _drawn(steps, None if not number else random), name="trace", source="", drafter="*"
        )
        noise = _NORMAL_OVER_MEDIAN * fit.median_error
        yield World(
            acceptance=drawn,
            hardware=Hardware(profile),
            fit=fit,
            drafter=drafter,
            options=msgspec.structs.replace(options, timing_noise=noise),
            seed=seed + number,
            fewest_tokens=tokens,
        )


def _drawn(steps: TimedSteps, random: np.random.Generator | None) -> TimedSteps:
    """Return at most `_MOST_STEPS` steps: spread evenly, or whole blocks drawn at random."""
    total = len(steps.seconds)
    wanted = min(total, _MOST_STEPS)
    if random is None:
        rows = np.arange(wanted) * total // wanted
    else:
        starts = random.integers(0, max(total - _BLOCK_STEPS, 1), -(-wanted // _BLOCK_STEPS))
        rows = np.minimum((starts[:, None] + np.arange(_BLOCK_STEPS)).ravel()[:wanted], total - 1)
    columns = {
        column.name: value[rows]
        for column in fields(steps)
        if isinstance(value := getattr(steps, column.name), np.ndarray)
    }
    return replace(steps, **columns)
