"""A random world around a controller: an engine, its load and its faults, all drawn from a seed.

Contexts are legal, as an adapter makes them. Outcomes are not always: they are lost, late, repeated
or impossible. The world changes in spells: acceptance, the cost of a step, the load and the clock.
"""

from __future__ import annotations

import logging
import sys
from collections import deque
from types import FrameType
from typing import Any, NamedTuple

import msgspec
import numpy as np

from adaptive_spec import Capability, Config, Controller, Level, Mode, SpecPlan
from adaptive_spec.config import FailOpen
from adaptive_spec.controller.plan_validation import plan_fault
from adaptive_spec.operation.run_time_switch import SwitchRequest
from adaptive_spec.policy import Policy
from adaptive_spec.step import FloatArray, IntArray, StepContext, StepOutcome
from tests import steps
from tests.core.operation.test_plain import strange_parts

_LOADS = (0, 1, 1, 2, 3, 4, 7, 8, 16, 24, 64)
_SPELL_STEPS = 150
_HOSTILE = 0.03
_SAYS_EVERY = 25
"""Steps after which everything that the controller tells is looked through."""
_MOST_CALLS = 6000
"""Function calls of a plan or of learning from a step, whatever the batch and the past."""
_QUIET = logging.getLogger("chaos")
_QUIET.addHandler(logging.NullHandler())
_QUIET.propagate = False


class Costs(NamedTuple):
    """Seconds of a step."""

    fixed: float
    token: float
    draft_pass: float

    def seconds(self, tokens: float, depth: float) -> float:
        return self.fixed + self.token * tokens + self.draft_pass * depth


class Faults(NamedTuple):
    """What goes wrong."""

    outcomes: bool = True
    clock: bool = True
    costs: bool = True
    pressure: bool = True
    """Prompts, limits of requests, and a KV pool that runs short."""


EVERYTHING = Faults()
NOTHING = Faults(outcomes=False, clock=False, costs=False, pressure=False)


def draw_capability(random: np.random.Generator) -> Capability:
    """An engine that may exist."""
    level = Level(int(random.integers(3)))
    kmax = int(random.integers(1, 9))
    ladder: tuple[int, ...] = ()
    if level is Level.UNIFORM and random.random() < 0.5:
        rungs = random.choice(kmax + 1, size=int(random.integers(1, kmax + 2)), replace=False)
        ladder = tuple(sorted({*rungs.tolist(), kmax}))
    follows = level is not Level.VERIFY and bool(random.random() < 0.7)
    return Capability(
        level=level,
        max_draft_tokens=kmax,
        ladder=ladder,
        token_buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256) if random.random() < 0.4 else (),
        depth_follows=follows,
        off_pass=bool(random.random() < 0.6),
        cold_off=bool(random.random() < 0.6),
        ragged_penalty=0.05 if random.random() < 0.3 else 0.0,
    )


class World:
    """One seed's engine, driven step by step.

    Raises AssertionError where a plan cannot run, where a legal context fails open, or where
    deciding takes too many operations; whatever the controller raises passes.
    """

    def __init__(
        self,
        policy: Policy,
        seed: int,
        faults: Faults = EVERYTHING,
        capability: Capability | None = None,
    ) -> None:
        self.random = np.random.default_rng(seed)
        self.capability = capability or draw_capability(self.random)
        self.faults = faults
        # The machine that tests run on may be busy: no time limit of decisions.
        config = Config(policy=policy.name, fail_open=FailOpen(max_decision_ms=1e9))
        self.controller = Controller(policy, self.capability, config, logger=_QUIET)
        self.names: list[str] = []
        self.born = self.step = self.impossible = 0
        self.depth = self.capability.max_draft_tokens
        self.now = 100.0
        self.shows_confidence = bool(self.random.random() < 0.5)
        sources = self.capability.level is Level.FULL and self.capability.off_pass
        self.looks_up = sources and bool(self.random.random() < 0.5)
        self.delay = int(self.random.integers(3))
        self.tokens = self.seconds = 0.0
        self.due: deque[tuple[int, StepOutcome]] = deque()
        self.costs = Costs(7e-3, 2e-5, 5e-4)
        self.load, self.hazard, self.burst, self.opts_out = 4, 0.7, 0.0, False
        self.lifetime = 100

    def run(self, steps: int) -> World:
        """Run steps whose world changes every now and then."""
        for _ in range(steps):
            if self.step % _SPELL_STEPS == 0:
                self.change()
            self.one_step()
        return self

    def change(self) -> None:
        """Another spell."""
        random = self.random
        self.hazard = float(random.choice([0.0, 0.05, 0.3, 0.6, 0.8, 0.95, 1.0]))
        self.burst = float(random.choice([0.0, 0.0, 0.05, 0.2]))
        self.load = int(random.choice(_LOADS))
        self.lifetime = int(random.choice([5, 50, 400]))
        self.opts_out = bool(random.random() < 0.3) and self.faults.pressure
        self.controller.counters.name_task(int(random.integers(3)), "label \ud800 \u001b[31m")
        if self.faults.costs:
            fixed, token, draft = np.exp(random.uniform(-np.log(30), np.log(30), 3)).tolist()
            self.costs = Costs(7e-3 * fixed, 2e-5 * token, 5e-4 * draft)
        if self.faults.clock and random.random() < 0.3:
            self.now += float(random.choice([-1e6, -5.0, 3.0, 1e5]))
        if random.random() < 0.1:
            mode = str(random.choice(["off", "shadow", "on"]))
            self.controller.switch(SwitchRequest(mode=mode))

    def one_step(self) -> SpecPlan:
        """Plan, verify, and learn from whatever outcome arrives."""
        self._come_and_go()
        context = self._context()
        plan = self._counted(self.controller.plan, context)
        fault = plan_fault(plan, context)
        assert not fault, f"step {self.step}: {fault}"
        acts = self.controller.mode == "on"
        assert not acts or plan.mode is not Mode.ENGINE, (
            f"step {self.step}: {dict(self.controller.counters.failures)}"
        )
        self._settle(self._verify(context, plan))
        if self.step % _SAYS_EVERY == 0:
            self._check_figures()
        self.depth = plan.draft_depth if self.capability.steers_depth else self.depth
        self.step += 1
        return plan

    def _check_figures(self) -> None:
        """Whatever an endpoint, a file or a metric may show is plain, and no policy fails at it."""
        told = self.controller
        shown = [told.status(), told.history(), told.break_even()]
        assert strange_parts(shown) == []
        msgspec.json.encode(shown)
        assert not [name for name in shown[0]["output_failures"] if "figures" in name]

    def end(self) -> None:
        """End all requests."""
        self.controller.finish(self.names)
        self.names.clear()

    def _come_and_go(self) -> None:
        random = self.random
        ends = random.random(len(self.names)) < 1.0 / self.lifetime
        ended = [name for name, gone in zip(self.names, ends, strict=True) if gone]
        ended += self.names[self.load :]
        self.names = [name for name in self.names[: self.load] if name not in ended]
        if ended or random.random() < 0.01:
            # Some are unknown, some end twice.
            self.controller.finish([*ended, *ended[:1], "nobody"])
        while len(self.names) < self.load:
            self.names.append(f"request-{self.born}")
            self.born += 1

    def _context(self) -> StepContext:
        random, kmax = self.random, self.capability.max_draft_tokens
        batch = len(self.names)
        slots = np.array([self.controller.slots.assign(name) for name in self.names], np.int64)
        pressed = self.faults.pressure
        capped = random.random(batch) < 0.1 * pressed
        possible = np.where(capped, random.integers(0, kmax + 1, batch), kmax)
        opted_out = self.opts_out & (random.random(batch) < 0.3)
        possible = np.where(opted_out, 0, possible)
        found = np.minimum(possible, random.integers(0, kmax + 1, batch))
        confidence = self._confidence(batch) if self.shows_confidence else None
        drafted: IntArray = np.full(len(slots), self.depth, np.int64)
        if not self.capability.off_pass:  # such a drafter finds nothing for some
            drafted = np.where(random.random(batch) < 0.5, 0, drafted)
        rungs = self.capability.uniform_values
        now = self.now
        if self.faults.clock and random.random() < 0.01:
            now -= 1.0
        return steps.context(
            capability=self.capability,
            step=self.step,
            request_ids=list(self.names),
            slots=slots,
            context_tokens=random.integers(1, 5000, batch),
            draft_available=np.minimum(possible, drafted),
            draft_possible=possible,
            engine_k=int(rungs[self.step // 500 % len(rungs)]),
            tpot_target=np.where(random.random(batch) < 0.2, 0.01, np.inf),
            task=random.integers(-1, 3, batch),
            confidence=confidence,
            entropy=None if confidence is None else 1.0 - confidence,
            opted_out=opted_out if opted_out.any() else None,
            lookup_available=found if self.looks_up else None,
            lookup_match=np.where(found > 0, 3, 0) if self.looks_up else None,
            waiting=int(random.choice([0, 0, 50])),
            prefill_tokens=int(random.choice([0, 0, 0, 30, 8000])) * pressed,
            kv_free_tokens=int(random.choice([0, 10, 1 << 20, 1 << 20])) if pressed else 1 << 20,
            kv_total_tokens=1 << 20,
            now=now,
        )

    def _confidence(self, batch: int) -> FloatArray:
        shown = self.random.random((batch, self.capability.max_draft_tokens))
        shown[self.random.random(batch) < 0.1] = np.nan
        shown[self.random.random(batch) < 0.05] = self.random.choice([0.0, 1.0])
        return shown

    def _verify(self, context: StepContext, plan: SpecPlan) -> StepOutcome:
        random, batch = self.random, context.batch_size
        kmax = self.capability.max_draft_tokens
        hazard = np.where(random.random(batch) < self.burst, 0.98, self.hazard)
        run = (random.random((batch, kmax)) < hazard[:, None]).cumprod(axis=1).sum(axis=1)
        accepted = np.minimum(run, plan.verify)
        tokens = batch + int(plan.verify.sum())
        depth = plan.draft_depth if self.capability.steers_depth else kmax
        cold = plan.mode is Mode.OFF_COLD
        passes = 0 if cold else max(depth, int(self.capability.off_pass))
        seconds = self.costs.seconds(tokens, passes)
        self.now += seconds
        self.tokens += batch + float(accepted.sum())
        self.seconds += seconds
        return steps.outcome(
            context,
            plan.verify,
            accepted,
            draft_depth=0 if cold else depth,
            seconds=seconds * float(np.exp(0.05 * random.standard_normal())),
            now=self.now,
            lookup_agreed=np.minimum(run, kmax) if self.looks_up else None,
        )

    def _settle(self, outcome: StepOutcome) -> None:
        """Deliver outcomes that are due; some never, some again, some long after."""
        fate = self.random.random() if self.faults.outcomes else 1.0
        if fate < _HOSTILE:
            outcome = self._hostile(outcome)
        if fate < 0.9 * _HOSTILE or fate > 1.4 * _HOSTILE:  # else lost
            late = 40 if fate < 0.1 * _HOSTILE else self.delay
            self.due.append((self.step + late, outcome))
        while self.due and self.due[0][0] <= self.step:
            outcome = self.due.popleft()[1]
            self._counted(self.controller.observe, outcome)
            if fate < 1.6 * _HOSTILE:
                self.controller.observe(outcome)

    def _hostile(self, outcome: StepOutcome) -> StepOutcome:
        random, batch = self.random, len(outcome.slots)
        changes: list[dict[str, Any]] = [
            {"seconds": float(random.choice([np.nan, np.inf, -np.inf, -1.0, 0.0, 1e-300, 1e300]))},
            {"accepted": outcome.verified + 1},
            {"accepted": outcome.accepted - 5},
            {"verified": outcome.verified - 9},
            {"verified": outcome.verified + 1000},
            {"emitted": outcome.emitted - 100},
            {"slots": outcome.slots + 10**6},
            {"slots": -1 - outcome.slots},
            {"batch_size": 0},
            {"batch_tokens": -7},
            {"context_tokens": -(10**12)},
            {"prefill_tokens": -1},
            {"draft_depth": 99},
            {"draft_depth": -1},
            {"slots": outcome.slots[: batch // 2]},
        ]
        return msgspec.structs.replace(outcome, **changes[int(random.integers(len(changes)))])

    def _counted(self, call: Any, argument: Any) -> Any:
        """Call, and count the functions called inside, in some of the steps."""
        if self.step % 64:
            return call(argument)
        calls = 0

        def count(frame: FrameType, event: str, of: object) -> None:
            nonlocal calls
            calls += event in ("call", "c_call")

        sys.setprofile(count)
        try:
            answer = call(argument)
        finally:
            sys.setprofile(None)
        assert calls < _MOST_CALLS, f"step {self.step}: {calls} calls"
        return answer
