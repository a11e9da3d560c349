"""Worlds: what a server would have done with other policies, how sure that is, and what if.

The trace is cut into two halves, by requests and by blocks of steps, each with step costs of its
own. A table that is tuned on one half is judged on the other, so that no set-up is judged by what
it was tuned on. In each further world requests and blocks of steps of a half are drawn anew with
replacement (bootstrap) and step costs are fitted again: the spread over these worlds covers both
the acceptance and the step times that the trace is short of. All set-ups of a world meet the same
requests, so differences between set-ups are paired.

A world is a machine and how often each recorded request comes. So worlds share what is computed
from the requests: replays with a fixed K (`fixed_k`), and one run of each set-up that learns
(`adaptive`), which holds for all worlds of the same `Traffic`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from adaptive_spec.policy_helpers import nearest_allowed
from adaptive_spec.sim.acceptance.data import AcceptanceData
from adaptive_spec.sim.advice import adaptive
from adaptive_spec.sim.advice.adaptive import Stretch
from adaptive_spec.sim.advice.fixed_k import FixedK, Replay, prompt_tokens, replay
from adaptive_spec.sim.advice.observed import Observed
from adaptive_spec.sim.advice.setups import NO_SPECULATION, SetUp, static
from adaptive_spec.sim.drafters.base import Drafter
from adaptive_spec.sim.drafters.registry import drafter as find_drafter
from adaptive_spec.sim.drafters.trees import steered_tree
from adaptive_spec.sim.engine.options import EngineOptions, capability_of
from adaptive_spec.sim.engine.step_time import StepTime
from adaptive_spec.sim.hardware.base import Hardware
from adaptive_spec.sim.hardware.from_trace import TimedSteps, TraceFit, fit_profile
from adaptive_spec.step import Capability, FloatArray, IntArray, Level

_BLOCK_STEPS = 32
"""Neighbouring steps share requests and disturbances of the machine."""
_MOST_STEPS = 4_000
"""Timed steps that a fit reads; more make it slower, hardly better."""
FEWEST_TOKENS = 1_500
HALVES = ("first", "second")
"""Names of the two halves."""
KEPT = 0.75
"""Share of accepted drafts that stay accepted, draft by draft, where acceptance is to fall."""
_NO_LIMIT = 1 << 30
_NORMAL_OVER_MEDIAN = 1.4826


@dataclass(frozen=True)
class Outcome:
    """Result of a set-up at a load.

    Attributes:
        tokens_per_second: throughput.
        tpot_seconds: [requests] time per output token of each request that ended.
        requests_per_second: requests that ended.
    """

    tokens_per_second: float
    tpot_seconds: FloatArray
    requests_per_second: float


@dataclass
class Traffic:
    """The recorded requests, and what is known of them whatever the machine.

    Attributes:
        data: acceptance of all of them.
        drafter: the one that ran.
        hardware, options: of all recorded steps.
        seed: of all draws.
        loads: clients that set-ups that learn are simulated at, ascending.
        tokens: fewest tokens of each of these.
        progress: called after each simulated load.
    """

    data: AcceptanceData
    drafter: Drafter
    hardware: Hardware
    options: EngineOptions
    seed: int
    loads: Sequence[int] = ()
    tokens: int = FEWEST_TOKENS
    progress: Callable[[], None] = lambda: None
    _shaped: dict[str, AcceptanceData] = field(default_factory=dict)
    _replays: dict[tuple[str, int], Replay] = field(default_factory=dict)
    _stretches: dict[str, dict[int, tuple[Stretch, int]]] = field(default_factory=dict)

    @property
    def capability(self) -> Capability:
        """Control options of the engine with this drafter."""
        return capability_of(self.options, self.drafter, self.hardware)

    def shaped(self, drafter: Drafter) -> AcceptanceData:
        """Return the data as a drafter's structure turns them."""
        if drafter.name not in self._shaped:
            random = np.random.default_rng(self.seed)
            self._shaped[drafter.name] = drafter.shape(self.data, random)
        return self._shaped[drafter.name]

    def fixed(self, set_up: SetUp, k: int, hardware: Hardware) -> FixedK:
        """Return a set-up of one K for all requests on a machine."""
        drafter, options, capability = self.drafter, self.options, self.capability
        if set_up.name == NO_SPECULATION:
            drafter = find_drafter("none")
            capability = capability_of(options, drafter, hardware)
        k = nearest_allowed(k, capability.uniform_values)
        cold = k == 0 and not set_up.keeps_drafter_warm and capability.cold_off
        depth = k
        if not capability.steers_depth and not cold and (k or capability.off_pass):
            depth = options.max_draft_tokens
        if (drafter.name, k) not in self._replays:
            self._replays[drafter.name, k] = replay(self.shaped(drafter), k)
        return FixedK(
            replay=self._replays[drafter.name, k],
            prompts=prompt_tokens(self.data),
            tokens=self.data.lengths,
            time=StepTime(hardware, drafter, options.ragged_penalty),
            drafter=drafter,
            options=options,
            depth=depth,
            cold=cold,
        )

    def stretch(self, set_up: SetUp, clients: int) -> tuple[Stretch, int]:
        """Return what a set-up that learns did at a load, and the best fixed K there."""
        key = f"{set_up.policy} {set_up.options}"
        if key not in self._stretches:
            found = adaptive.stretches(
                set_up,
                self.shaped(self.drafter),
                self.drafter,
                self.hardware,
                self.options,
                self.loads,
                seed=self.seed,
                tokens=self.tokens,
                progress=self.progress,
            )
            self._stretches[key] = {
                clients: (stretch, self._best_k(clients)) for clients, stretch in found.items()
            }
        return self._stretches[key][clients]

    def _best_k(self, clients: int) -> int:
        every = np.ones(self.data.records, dtype=np.int64)
        speeds = [
            self.fixed(static(k), k, self.hardware).run(clients, every)[0]
            for k in range(1, self.options.max_draft_tokens + 1)
        ]
        return 1 + int(np.argmax(speeds))


@dataclass(frozen=True)
class World:
    """How often each request comes, and step costs, of one resampling."""

    traffic: Traffic
    weights: IntArray
    hardware: Hardware
    fit: TraceFit

    def run(self, set_up: SetUp, clients: int) -> Outcome:
        """Serve a closed loop of so many clients."""
        traffic, weights = self.traffic, self.weights
        k = set_up.fixed_k(clients)
        if k is not None:
            speed, tpot = traffic.fixed(set_up, k, self.hardware).run(clients, weights)
        else:
            stretch, k = traffic.stretch(set_up, clients)
            fixed = traffic.fixed(static(k), k, self.hardware)
            ratio, tpot, weights = stretch.priced(fixed, weights)
            speed = ratio * fixed.run(clients, self.weights)[0]
        tokens = float(self.weights @ traffic.data.lengths) / float(self.weights.sum())
        return Outcome(speed, np.repeat(tpot, weights), speed / tokens)


def recorded_world(
    observed: Observed,
    steps: TimedSteps,
    *,
    drafter: str,
    seed: int,
    loads: Sequence[int] = (),
    tokens: int = FEWEST_TOKENS,
    progress: Callable[[], None] = lambda: None,
) -> World:
    """Return the world of all recorded requests and steps; other arguments as in `Traffic`."""
    hardware, fit = _fitted(steps, _evenly(np.arange(len(steps.seconds))))
    capability = observed.capability
    options = EngineOptions(
        max_draft_tokens=observed.kmax,
        level=capability.level if capability else Level.FULL,
        ladder=capability.ladder if capability else (),
        ragged_penalty=capability.ragged_penalty if capability else 0.0,
        late_confidence=observed.late_confidence,
        kv_tokens=observed.pool_tokens or steps.pool_tokens or _NO_LIMIT,
        timing_noise=_NORMAL_OVER_MEDIAN * fit.median_error,
    )
    data = observed.acceptance
    found = find_drafter(drafter)
    if capability is not None and capability.tree_nodes:
        found = steered_tree(capability)
    traffic = Traffic(data, found, hardware, options, seed, loads, tokens, progress)
    return World(traffic, np.ones(data.records, dtype=np.int64), hardware, fit)


def halves(whole: World, steps: TimedSteps, count: int) -> dict[str, World]:
    """Return both halves by name, and `count` resampled ones of each as `half/number`."""
    records = whole.traffic.data.records
    random = np.random.default_rng(whole.traffic.seed)
    order = random.permutation(records)
    block = np.arange(len(steps.seconds)) // _BLOCK_STEPS
    made: dict[str, World] = {}

    def world(requests: IntArray, rows: IntArray) -> World:
        hardware, fit = _fitted(steps, rows)
        weights = np.bincount(requests, minlength=records)
        return replace(whole, weights=weights, hardware=hardware, fit=fit)

    for number, name in enumerate(HALVES):
        # A trace of one request has no halves: both are that request.
        own = order[number::2] if len(order) > 1 else order
        rows = np.flatnonzero(block % 2 == number) if block.max() > 0 else np.arange(len(block))
        made[name] = world(own, _evenly(rows))
        for draw in range(count):
            drawn = random.choice(own, len(own))
            starts = random.integers(0, len(rows), -(-min(len(rows), _MOST_STEPS) // _BLOCK_STEPS))
            places = (starts[:, None] + np.arange(_BLOCK_STEPS)).ravel() % len(rows)
            made[f"{name}/{draw}"] = world(drawn, rows[places])
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


def changes(whole: World, loads: Sequence[int]) -> list[Change]:
    """Return what may change: load x 2, fewer accepted drafts, and another mix of requests.

    Args:
        whole: the recorded world.
        loads: that it was recorded at.
    """
    traffic = whole.traffic
    data = traffic.data
    thinned = _thinned(data, traffic.seed)
    less = replace(traffic, data=thinned, loads=loads, _shaped={}, _replays={}, _stretches={})
    first, fewer = (float((each.accepted > 0).mean()) for each in (data, thinned))
    found = [
        Change("load x 2", lambda world: world, load=2),
        Change(
            f"first drafts accepted {first:.0%} -> {fewer:.0%}",
            lambda world: replace(world, traffic=less),
        ),
    ]
    names = [name for name in dict.fromkeys(data.labels) if name]
    sums = np.add.reduceat(data.accepted.astype(np.float64), data.offsets[:-1])
    labels = np.array(data.labels)
    if len(names) > 1:
        rates = {
            name: sums[labels == name].sum() / data.lengths[labels == name].sum() for name in names
        }
        least = min(names, key=lambda name: rates[name])
        more, what = labels == least, f"labelled {least}"
    elif data.records > 1:
        means = sums / data.lengths
        more, what = means <= np.median(means), "that are hard to draft for"
    else:
        return found
    return [
        *found,
        Change(
            f"twice the requests {what}",
            lambda world: replace(world, weights=world.weights * (1 + more)),
        ),
    ]


def _thinned(data: AcceptanceData, seed: int) -> AcceptanceData:
    """Return the data with each accepted draft kept with probability `KEPT`, in order."""
    failed = np.random.default_rng(seed).geometric(1.0 - KEPT, len(data.accepted)) - 1
    accepted = np.minimum(data.accepted, failed).astype(np.uint8)
    return replace(data, accepted=accepted, confidence=None, lookup=None, tree_sizes=None)


def _fitted(steps: TimedSteps, rows: IntArray) -> tuple[Hardware, TraceFit]:
    """Fit a machine to these rows of the timed steps."""
    columns: dict[str, Any] = {
        column.name: value[rows]
        for column in fields(steps)
        if isinstance(value := getattr(steps, column.name), np.ndarray)
    }
    profile, fit = fit_profile(replace(steps, **columns), name="trace", source="", drafter="*")
    return Hardware(profile), fit


def _evenly(rows: IntArray) -> IntArray:
    """Return at most `_MOST_STEPS` of the rows, spread evenly."""
    wanted = min(len(rows), _MOST_STEPS)
    kept: IntArray = rows[np.arange(wanted) * len(rows) // wanted]
    return kept
