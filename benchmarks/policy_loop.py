"""A plain loop around a policy, in worlds whose best K is known exactly; no simulator.

B requests have drafts that are accepted with a known hazard, and end at random. A step of N
verified tokens at depth D takes

    fixed + token * max(N - free, 0) + draft * max(D, 1)    seconds, measured with 3 % of noise,

one step in a hundred three times as long. Scores are expected tokens per second over those of the
best fixed K in the same world; K that differ between requests gain nothing here, so a score is at
most 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from adaptive_spec.controller.steps_in_flight import finished_step
from adaptive_spec.per_request import RequestSlots
from adaptive_spec.policy import Policy
from adaptive_spec.step import Capability, Level, Mode, StepContext, StepOutcome

KMAX = 6
NOISE = 0.03


class World(NamedTuple):
    """Seconds of a step, and the probability that a draft is accepted."""

    fixed: float
    token: float
    draft: float
    free: int = 0
    hazard: float = 0.8

    def seconds(self, tokens: int, depth: int) -> float:
        """Duration of a step of so many verified tokens that drafts so deep."""
        return self.fixed + self.token * max(tokens - self.free, 0) + self.draft * max(depth, 1)

    def tokens(self, k: int) -> float:
        """Expected tokens of a request with K drafts."""
        return 1.0 + float(sum(self.hazard**j for j in range(1, k + 1)))

    def best(self, batch: int) -> tuple[float, int]:
        """Tokens per second of the best fixed K, and that K."""
        return max(
            (batch * self.tokens(k) / self.seconds(batch * (1 + k), k), k) for k in range(KMAX + 1)
        )


class Trace(NamedTuple):
    """By step: expected tokens, true seconds, and the tokens that the best K makes in those."""

    tokens: np.ndarray
    seconds: np.ndarray
    best: np.ndarray
    k: np.ndarray

    def score(self, begin: int, end: int) -> float:
        """Tokens over those of the best K, in these steps."""
        return float(self.tokens[begin:end].sum() / self.best[begin:end].sum())

    def worst(self, end: int, width: int = 100) -> float:
        """The lowest score of so many steps in a row."""
        return min(self.score(begin, begin + width) for begin in range(0, end - width + 1, 10))


def run(
    policy: Policy,
    world_at: Callable[[int], World],
    batch_at: Callable[[int], int],
    steps: int,
    seed: int,
    capability: Capability | None = None,
) -> Trace:
    """Drive a policy through a world."""
    random = np.random.default_rng(seed)
    capability = capability or Capability(level=Level.FULL, max_draft_tokens=KMAX)
    slots = RequestSlots()
    names: list[str] = []
    age: list[int] = []
    born, depth, now = 0, KMAX, 1000.0
    rows = np.zeros((4, steps))
    for step in range(steps):
        world, batch = world_at(step), batch_at(step)
        ends = random.random(len(names)) < 1.0 / 150.0
        ends[batch:] = True
        for name in [name for name, gone in zip(names, ends, strict=True) if gone]:
            policy.forget(np.array([slots.release(name)], dtype=np.int64))
        age = [a for a, gone in zip(age, ends, strict=True) if not gone]
        names = [name for name, gone in zip(names, ends, strict=True) if not gone]
        while len(names) < batch:
            names.append(f"r{born}")
            age.append(int(random.integers(50, 300)))
            born += 1
        possible = np.full(batch, KMAX, dtype=np.int64)
        context = StepContext(
            step=step,
            capability=capability,
            request_ids=names,
            slots=np.array([slots.assign(name) for name in names], dtype=np.int64),
            context_tokens=np.array(age, dtype=np.int64),
            draft_available=np.minimum(possible, depth if step else 0),
            draft_possible=possible,
            engine_k=KMAX,
            tpot_target=np.full(batch, np.inf),
            task=np.full(batch, -1, dtype=np.int64),
            temperature=np.zeros(batch),
            now=now,
        )
        plan = policy.plan(context)
        depth = plan.draft_depth
        if not capability.steers_depth and plan.mode is not Mode.OFF_WARM:
            depth = KMAX
        hits = random.random((batch, KMAX)) < world.hazard
        accepted = np.minimum(hits.cumprod(axis=1).sum(axis=1), plan.verify)
        tokens = batch + int(plan.verify.sum())
        truth = world.seconds(tokens, depth)
        measured = truth * float(np.exp(NOISE * random.standard_normal()))
        measured *= 3.0 if random.random() < 0.01 else 1.0
        now += truth
        outcome = StepOutcome(
            step=step,
            slots=context.slots,
            verified=plan.verify,
            accepted=accepted,
            emitted=accepted + 1,
            batch_size=batch,
            batch_tokens=tokens,
            context_tokens=int(context.context_tokens.sum()),
            prefill_tokens=0,
            draft_depth=depth,
            ragged=bool(np.ptp(plan.verify) > 0),
            seconds=measured,
            now=now,
        )
        policy.observe(finished_step(context, plan, outcome))
        gained = np.array([world.tokens(k) for k in range(KMAX + 1)])
        best = world.best(batch)[0] * truth
        rows[:, step] = gained[plan.verify].sum(), truth, best, plan.verify.mean()
        age = [a + int(n) for a, n in zip(age, outcome.emitted, strict=True)]
    return Trace(*rows)
