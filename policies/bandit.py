"""`bandit`: one K for all requests, learned for each doubling of the load.

A K is worth the tokens per second of its steps, the ratio of both sums; nothing is assumed of
acceptance or step times. Its logarithm has a Gaussian posterior. The K of the highest sample runs
for `HOLD` steps (Thompson sampling: arXiv 1209.3353); what was seen fades (arXiv 1707.09727).

Steps count if they verify the K that they draft; with prompts, only where hardly any is without.
Requests that have opted out never count. K = 0 keeps the drafter warm for the next K.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
import numpy as np

from adaptive_spec.errors import PolicyError
from adaptive_spec.policy import State
from adaptive_spec.policy_helpers import StatelessPolicy, load_bin, nearest_allowed
from adaptive_spec.step import FinishedStep, FloatArray, Mode, SpecPlan, StepContext

HOLD = 8
"""Steps for which a K runs."""
MIXED = 2 * HOLD
"""Steps with prompts in a row, after which these count, too."""
WIDTH, NEAR = 0.5, 0.1
"""Deviations of the prior of ln tokens per second of a K: alone, and for each doubling away."""
NOISE, ODD = 0.1, 4.0
"""First variance of a step's relative surprise, and deviations that are odd."""
NOISE_STEPS = 4.0 * HOLD
"""Steps over which that variance is averaged."""
LEAST, MOST = 1e-6, 1e4
"""Bounds of the seconds of a step, and of that variance."""
_NOTHING = np.array([[0.0], [0.0], [0.0], [NOISE]])


class BanditOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of `bandit`."""

    discount: Annotated[float, msgspec.Meta(ge=0.5, le=0.9999)] = 0.999
    """Factor on what a load has shown, per step of it: 0.999 remembers some 1,000 steps."""


class _Saved(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    values: tuple[int, ...]
    loads: Annotated[list[int], msgspec.Meta(max_length=64)]
    shown: list[list[list[float]]]


def _learn(shown: FloatArray, at: int, tokens: float, seconds: float, discount: float) -> None:
    """Add a step to [4, A]: faded steps, tokens per request, seconds, and the noise of a step."""
    (steps, brought, took, noise), weight = shown[:, at].tolist(), 1.0
    seconds = min(max(seconds, LEAST), MOST)
    if steps >= 1.0:
        square = (tokens * took / (max(brought, LEAST) * seconds) - 1.0) ** 2
        weight = 1.0 / (1.0 + square / (ODD**2 * noise))
        noise += (min(square, ODD**2 * noise) - noise) / min(steps + 3.0, NOISE_STEPS)
        shown[3, at] = min(max(noise, LEAST), MOST)
    shown[:3] *= discount
    shown[:3, at] += weight * np.array([1.0, tokens, seconds])


def _belief(shown: FloatArray, prior: FloatArray, width: float) -> tuple[FloatArray, FloatArray]:
    """Return means and variances [A] of ln tokens per second."""
    steps, brought, took, noise = np.maximum(shown, 1e-100)
    own, weight = np.log(brought / took), steps / noise
    level = float((weight * (own - prior)).sum() / weight.sum())
    precision = weight + width**-2
    return (weight * own + (prior + level) * width**-2) / precision, 1.0 / precision


class BanditPolicy(StatelessPolicy):
    """Runs the K that has brought the most tokens per second at this load."""

    name: ClassVar[str] = "bandit"
    summary: ClassVar[str] = "one K for all requests, tried out by load (Thompson sampling)"
    Options: ClassVar[type[msgspec.Struct]] = BanditOptions
    reads_entropy: ClassVar[bool] = False

    def __init__(self, options: BanditOptions, *, seed: int = 0) -> None:
        self._discount, self._random = options.discount, np.random.default_rng(seed)
        self._values: tuple[int, ...] = ()
        self._loads: dict[int, FloatArray] = {}
        self._load, self._left, self._mixed, self._trying = -1, 0, 0, False
        self._k: int | None = None

    def plan(self, context: StepContext) -> SpecPlan:
        """Verify the K that was drafted, and draft the K of this load."""
        batch, before, values = context.batch_size, self._k, context.capability.uniform_values
        if self._values != values:
            others, self._loads, self._values = self._loads, {}, values
            if others:
                raise PolicyError(f"bandit state: of another K than the engine's, {values}")
        if batch and (self._left <= 0 or load_bin(batch) != self._load):
            self._choose(load_bin(batch), nearest_allowed(context.engine_k, values))
        self._left -= 1
        k = nearest_allowed(context.engine_k, values) if self._k is None else self._k
        now = k if before is None or not context.capability.steers_depth else before
        verify = np.minimum(context.draft_available, now)
        return SpecPlan(
            step=context.step,
            verify=verify,
            draft_depth=k,
            mode=Mode.ON if k or verify.any() else Mode.OFF_WARM,
            reason=f"{'trying ' * self._trying}K = {k}",
            measures=self._trying,
            memo=k if before == k else None,
        )

    def _choose(self, load: int, first: int) -> None:
        """Draw the next K; a load begins with what the nearest says, the first with `first`."""
        self._load, self._left, prior, width = load, HOLD, np.zeros(len(self._values)), WIDTH
        if others := [each for each in self._loads if each != load]:
            near = min(others, key=lambda each: abs(each - load))
            width = min(NEAR * abs(near - load), WIDTH)
            prior = _belief(self._loads[near], prior, WIDTH)[0]
        shown = self._loads.get(load, _NOTHING.repeat(len(prior), 1))
        mean, variance = _belief(shown, prior, width)
        sample = mean + np.sqrt(variance) * self._random.standard_normal(len(mean))
        self._k = self._values[int(sample.argmax())] if self._loads else first
        self._trying = self._k != self._values[int(mean.argmax())]

    def observe(self, step: FinishedStep) -> None:
        """Learn what the K that ran has brought."""
        outcome, context, k = step.outcome, step.context, step.plan.memo
        self._mixed = self._mixed + 1 if outcome.prefill_tokens else 0
        depth = outcome.draft_depth if context.capability.steers_depth else None
        expected = depth in (None, step.plan.draft_depth)
        if not expected or (outcome.verified > step.plan.verify).any():  # as in shadow mode
            k = ran if depth in (None, ran := int(outcome.verified.max(initial=0))) else None
        tokens = outcome.emitted[slice(None) if context.opted_out is None else ~context.opted_out]
        timed = outcome.seconds > 0.0 and not 0 < self._mixed <= MIXED
        if timed and tokens.size and k in self._values:
            load, nothing = load_bin(outcome.batch_size), _NOTHING.repeat(len(self._values), 1)
            shown, at = self._loads.setdefault(load, nothing), self._values.index(k)
            _learn(shown, at, float(tokens.mean()), float(outcome.seconds), self._discount)

    def state(self) -> State:
        """Return what each load has shown."""
        shown = [each.tolist() for each in self._loads.values()]
        return {"values": [*self._values], "loads": [*self._loads], "shown": shown}

    def restore(self, state: State) -> None:
        """Adopt a saved state; its K must be the engine's, which the first plan tells, too."""
        try:
            saved = msgspec.convert(state or self.state(), _Saved)
            shown = np.array(saved.shown).reshape(len(saved.loads), 4, len(saved.values))
        except ValueError as error:  # msgspec's is one
            raise PolicyError(f"bandit state: {error}") from error
        if not ((shown >= 0.0) & (shown <= 1e9) & (shown[:, 3:] >= LEAST)).all():  # nan is not
            raise PolicyError("bandit state: not finite, or beyond what steps can show")
        if saved.loads and saved.values != (self._values or saved.values):
            raise PolicyError(f"bandit state: of K {saved.values}, the engine's are {self._values}")
        self._loads, self._values = dict(zip(saved.loads, shown, strict=True)), saved.values
