"""Policies for tests, loaded by dotted path as a third party's would be."""

import time
from typing import Any, ClassVar, Literal

import msgspec
import numpy as np

from adaptive_spec.policy_helpers import StatelessPolicy
from adaptive_spec.step import Level, Mode, SpecPlan, StepContext

HOSTILE_TEXT = "half \ud83d, \x1b[31m red"


class RandomOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Figures of a policy that knows no manners: of types and texts that encoders refuse."""

    figures: Literal["none", "hostile", "raising"] = "none"


class RandomPolicy(StatelessPolicy):
    """Draws depth per step, and K per request and step; also the source of drafts, of two."""

    name: ClassVar[str] = "random"
    summary: ClassVar[str] = "random K, for tests"
    Options: ClassVar[type[msgspec.Struct]] = RandomOptions

    def __init__(self, options: RandomOptions | None = None, *, seed: int = 0) -> None:
        self._figures = "none" if options is None else options.figures
        self._random = np.random.default_rng(seed)

    def explanation(self) -> dict[str, Any]:
        """Return what no encoder of an engine takes."""
        if self._figures == "none":
            return {}
        if self._figures == "raising":
            raise SystemExit("figures")
        circle: list[Any] = [np.float64(0.5), np.int64(3), {1}, object(), HOSTILE_TEXT, 2**80]
        circle.append(circle)
        return {"k": np.float64(1.5), HOSTILE_TEXT: circle, "next": {"ms": "x"}, "batch": b"x"}

    estimates = hazard_quality = break_even = explanation

    def plan(self, context: StepContext) -> SpecPlan:
        kmax = context.capability.max_draft_tokens
        most, from_lookup = context.draft_available, None
        if context.lookup_available is not None:
            from_lookup = self._random.random(context.batch_size) < 0.5
            most = np.where(from_lookup, context.lookup_available, most)
        verify = self._random.integers(0, most + 1)
        depth = int(self._random.integers(0, kmax + 1))
        if context.capability.level is Level.VERIFY:
            depth = kmax
        return SpecPlan(
            step=context.step,
            verify=verify.astype(np.int64),
            draft_depth=depth,
            mode=Mode.ON,
            reason=HOSTILE_TEXT if self._figures == "hostile" else "random",
            predicted_tokens=np.float64(7.0),
            predicted_seconds=np.float64(0.1),
            from_lookup=from_lookup,
        )


class FixedPolicy(RandomPolicy):
    """One depth and one K, which a test may change while the engine runs."""

    name: ClassVar[str] = "fixed"

    def __init__(self, k: int, depth: int | None = None) -> None:
        super().__init__()
        self.k = k
        self.depth = k if depth is None else depth

    def plan(self, context: StepContext) -> SpecPlan:
        return SpecPlan(
            step=context.step,
            verify=np.minimum(context.draft_available, self.k),
            draft_depth=self.depth,
            mode=Mode.ON if self.k else Mode.OFF_WARM,
            reason="fixed",
        )


class ColdForAWhile(FixedPolicy):
    """The same, but OFF_COLD in its steps from `cold_from` to before `cold_to`."""

    name: ClassVar[str] = "cold for a while"

    def __init__(self, k: int, cold_from: int, cold_to: int) -> None:
        super().__init__(k)
        self.cold_from, self.cold_to = cold_from, cold_to
        self.steps = 0

    def plan(self, context: StepContext) -> SpecPlan:
        self.steps += 1
        if not self.cold_from <= self.steps < self.cold_to:
            return super().plan(context)
        return SpecPlan(
            step=context.step,
            verify=np.zeros(context.batch_size, dtype=np.int64),
            draft_depth=0,
            mode=Mode.OFF_COLD,
            reason="cold",
        )


class WarmForAWhile(FixedPolicy):
    """One K, but 0 with a drafter that keeps up in its steps from `warm_from` to `warm_to`."""

    name: ClassVar[str] = "warm for a while"

    def __init__(self, k: int, warm_from: int, warm_to: int) -> None:
        super().__init__(k)
        self._full, self._warm = k, range(warm_from, warm_to)
        self._steps = 0

    def plan(self, context: StepContext) -> SpecPlan:
        self._steps += 1
        self.k = self.depth = 0 if self._steps in self._warm else self._full
        return super().plan(context)


class CopiesWithoutDrafter(FixedPolicy):
    """OFF_COLD in every step, with all drafts that were looked up."""

    name: ClassVar[str] = "copies without a drafter"

    def plan(self, context: StepContext) -> SpecPlan:
        copied = context.lookup_available
        none = np.zeros(context.batch_size, dtype=np.int64)
        return SpecPlan(
            step=context.step,
            verify=none if copied is None else copied,
            draft_depth=0,
            mode=Mode.OFF_COLD,
            reason="copies",
            from_lookup=None if copied is None else copied > 0,
        )


class AlternatingPolicy(RandomPolicy):
    """Verifies all drafts in one step and none in the next."""

    name: ClassVar[str] = "alternating"

    def plan(self, context: StepContext) -> SpecPlan:
        none = bool(context.step % 2)  # what such a step drafts, the next one verifies
        fixed = context.capability.level is Level.VERIFY
        return SpecPlan(
            step=context.step,
            verify=context.draft_available * (not none),
            draft_depth=context.capability.max_draft_tokens if none or fixed else 0,
            mode=Mode.ON,
            reason="alternating",
        )


class RaisingPolicy(RandomPolicy):
    """Raises in every method."""

    name: ClassVar[str] = "raising"

    def plan(self, context: StepContext) -> SpecPlan:
        raise RuntimeError("planned failure")

    def observe(self, step: Any) -> None:
        raise RuntimeError("planned failure")

    def forget(self, slots: Any) -> None:
        raise RuntimeError("planned failure")


class NonsensePolicy(RandomPolicy):
    """Answers with something that can't run, another thing each step."""

    name: ClassVar[str] = "nonsense"

    def plan(self, context: StepContext) -> Any:
        batch = context.batch_size
        good = dict(
            step=context.step,
            verify=np.zeros(batch, dtype=np.int64),
            draft_depth=1,
            mode=Mode.ON,
            reason="nonsense",
        )
        kind = context.step % 6
        if kind == 0:
            return None
        if kind == 1:
            good["verify"] = np.full(batch, np.nan)
        elif kind == 2:
            good["verify"] = np.full(batch, 99, dtype=np.int64)
        elif kind == 3:
            good["verify"] = np.zeros(batch + 1, dtype=np.int64)
        elif kind == 4:
            good["draft_depth"] = -1
        else:
            good["draft_depth"] = float("nan")
        return SpecPlan(**good)


class SleepingPolicy(RandomPolicy):
    """Takes longer than a decision may."""

    name: ClassVar[str] = "sleeping"

    def plan(self, context: StepContext) -> SpecPlan:
        time.sleep(0.3)
        return super().plan(context)


class UniformPolicy(RandomPolicy):
    """One K for the batch out of the ladder, another one every step."""

    name: ClassVar[str] = "uniform"

    def plan(self, context: StepContext) -> SpecPlan:
        k, depth = self._random.choice(context.capability.uniform_values, 2).tolist()
        return SpecPlan(
            step=context.step,
            verify=np.minimum(context.draft_available, k),
            draft_depth=depth,
            mode=Mode.ON,
            reason="uniform",
        )
