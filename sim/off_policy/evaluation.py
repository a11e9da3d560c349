"""Evaluation of policies on a trace with propensities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np

from adaptive_spec.controller.plan_validation import plan_fault
from adaptive_spec.errors import DataError, PolicyError
from adaptive_spec.policy import Policy
from adaptive_spec.sim.hardware.from_trace import one_server
from adaptive_spec.sim.off_policy.doubly_robust import Estimator, PolicyValue, StepTerms
from adaptive_spec.sim.off_policy.intervals import Estimate, block_of_step, ratio
from adaptive_spec.sim.off_policy.logged_steps import (
    DrawKind,
    LoggedStep,
    LoggedTrace,
    context_before_draw,
    kind_of_draw,
    learn_step,
)
from adaptive_spec.sim.off_policy.step_model import StepModel, expected_tokens
from adaptive_spec.sim.policy_choice import PolicyChoice
from adaptive_spec.sim.step_trace import Source
from adaptive_spec.step import FloatArray, IntArray, SpecPlan

_FEWEST_STEPS = 60


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """All policies on one trace.

    Attributes:
        steps: recorded steps in which a request decodes.
        used: those that were randomised, measured, and after the warm-up.
        draw: what was randomised.
        blocks: that the intervals are made of.
        logged: tokens per second of what ran, on the steps used.
        policies: one per policy, in the order asked for.
    """

    steps: int
    used: int
    draw: DrawKind
    blocks: int
    logged: Estimate
    policies: list[PolicyValue]


def evaluate(
    trace: Source,
    choices: Sequence[PolicyChoice],
    *,
    warmup_steps: int = 50,
    confidence: float = 0.95,
    seed: int = 0,
) -> Evaluation:
    """Estimate tokens per second of policies from a trace of another one.

    Args:
        trace: folder of a step trace.
        choices: the policies.
        warmup_steps: first steps, from which models and policies learn only.
        confidence: of the intervals.
        seed: of the policies.

    Raises DataError if the trace has no propensities or too few randomised steps, PolicyError if
    a policy cannot be built or fails.
    """
    logged = LoggedTrace(one_server(trace))
    _require_propensities(logged)
    kind = kind_of_draw(logged.steps())
    replayed = [Replayed(choice.text, choice.build(seed), kind) for choice in choices]
    ran: list[tuple[float, float]] = []
    present = 0
    model: StepModel | None = None
    for at, step in enumerate(logged.steps()):
        model = model or StepModel(step.context.capability)
        counts = at >= warmup_steps and model.ready and _is_usable(step)
        survival = model.survival(step.context.slots)
        for policy in replayed:
            policy.step(step, model, survival, counts=counts)
        if counts:
            ran.append((float(step.outcome.emitted.sum()), step.outcome.seconds))
        present += step.context.batch_size
        model.add_step(step.outcome, step.ended)
    if len(ran) < _FEWEST_STEPS:
        more = f"{_FEWEST_STEPS * logged.length // len(ran) - logged.length:,} more" if ran else ""
        longer = f"record about {more} steps, or" if ran else "record"
        raise DataError(
            f"{logged.directory}: {len(ran)} of {logged.length} steps can be used (randomised, "
            f"timed, after {warmup_steps} of warm-up); at least {_FEWEST_STEPS} are needed: "
            f"{longer} in mode `shadow` with `shadow_share`"
        )
    assert model is not None  # there are steps
    tokens, seconds = np.array(ran, dtype=np.float64).T
    recorded = ratio(tokens, seconds).interval
    block = block_of_step(len(ran), present / logged.requests * len(ran) / logged.length)
    estimator = Estimator(kind, model.time, block, confidence)
    return Evaluation(
        steps=logged.length,
        used=len(ran),
        draw=kind,
        blocks=int(block[-1]) + 1,
        logged=recorded(block, confidence),
        policies=[policy.value(estimator) for policy in replayed],
    )


def _require_propensities(logged: LoggedTrace) -> None:
    if any(step.propensity is not None for step in logged.steps()):
        return
    raise DataError(
        f"{logged.directory}: no propensities in {logged.length} steps: the policy that ran did "
        "not randomise K; record with one that does, such as static with uniform_fraction"
    )


def _is_usable(step: LoggedStep) -> bool:
    if step.propensity is None or not (0.0 < step.outcome.seconds < 60.0):
        return False
    return not bool(np.isnan(step.propensity).any())


class Replayed:
    """One policy on a trace.

    It sees the recorded contexts and learns from the recorded outcomes, which are of other K than
    its own: what it would have learned from its own steps is not in the trace.
    """

    def __init__(self, name: str, policy: Policy, kind: DrawKind) -> None:
        self.name = name
        self.terms: list[StepTerms] = []
        self.shifts: list[FloatArray] = []
        """[F] by step: features of step time, the policy's less those of what ran."""
        self.deeper = 0
        """Steps at whose end it wanted to draft deeper than was drafted."""
        self._policy = policy
        self._kind = kind

    def step(
        self, step: LoggedStep, model: StepModel, survival: FloatArray, *, counts: bool
    ) -> None:
        """Plan a step; take it into account if it counts; learn from it."""
        context = context_before_draw(step.context, self._kind)
        try:
            plan = self._policy.plan(context)
            fault = plan_fault(plan, context)
            if not fault:
                learn_step(self._policy, plan, replace(step, context=context))
        except Exception as error:
            fault = f"{type(error).__name__}: {error}"
        if fault:
            raise PolicyError(f"policy {self.name!r} at step {context.step} of the trace: {fault}")
        if counts:
            self.terms.append(self._compared(step, plan, model, survival))

    def value(self, estimator: Estimator) -> PolicyValue:
        """Return the policy's value over the steps that counted."""
        deeper = self.deeper / len(self.terms)
        return estimator.value(self.name, self.terms, np.array(self.shifts), deeper)

    def _compared(
        self, step: LoggedStep, plan: SpecPlan, model: StepModel, survival: FloatArray
    ) -> StepTerms:
        ran = step.outcome
        depth = plan.draft_depth if step.context.capability.steers_depth else ran.draft_depth
        self.deeper += int(depth > ran.draft_depth)
        same = ran.verified == plan.verify
        weight = self._weights(step, same)
        drafts = int(ran.verified.sum())
        features = model.time.features(ran, int(plan.verify.sum()), depth)
        features_ran = model.time.features(ran, drafts, ran.draft_depth)
        if self._kind is DrawKind.BATCH:
            # The weight accounts for K; the depth drafted to is the next step's draw.
            self.shifts.append(model.time.features(ran, drafts, depth) - features_ran)
        else:
            self.shifts.append(features - features_ran)
        emitted = ran.emitted.astype(np.float64)
        errors = emitted - expected_tokens(survival, ran.verified)
        return StepTerms(
            requests=float(len(emitted)),
            tokens=float(emitted.sum()),
            seconds=ran.seconds,
            prefill_tokens=float(ran.prefill_tokens),
            weights=float(weight.sum()),
            squares=float((weight**2).sum()),
            model_tokens=float(expected_tokens(survival, plan.verify).sum()),
            model_seconds=model.time.predict(features),
            weighted_errors=float(weight @ errors),
            second_error=ran.seconds - model.time.predict(features_ran),
        )

    def _weights(self, step: LoggedStep, same: IntArray | np.ndarray) -> FloatArray:
        """[B] rho."""
        assert step.propensity is not None
        if self._kind is DrawKind.REQUEST:
            return np.where(same, 1.0 / step.propensity, 0.0)
        # One draw: requests with less room have the probabilities of several K added.
        weight = 1.0 / float(step.propensity.min()) if same.all() else 0.0
        return np.full(len(same), weight)
