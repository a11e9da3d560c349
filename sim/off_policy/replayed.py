"""A policy that plans every recorded step, held against what ran."""

from __future__ import annotations

import numpy as np

from adaptive_spec.controller.plan_validation import plan_fault
from adaptive_spec.controller.steps_in_flight import finished_step
from adaptive_spec.errors import PolicyError
from adaptive_spec.policy import Policy
from adaptive_spec.sim.off_policy.doubly_robust import StepTerms
from adaptive_spec.sim.off_policy.draws import DrawKind, context_before_draw
from adaptive_spec.sim.off_policy.logged_steps import LoggedStep
from adaptive_spec.sim.off_policy.step_model import StepModel, expected_tokens
from adaptive_spec.step import FloatArray, IntArray, SpecPlan


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
                self._policy.observe(finished_step(context, plan, step.outcome))
                if step.ended.size:
                    self._policy.forget(step.ended)
        except Exception as error:
            fault = f"{type(error).__name__}: {error}"
        if fault:
            raise PolicyError(f"policy {self.name!r} at step {context.step} of the trace: {fault}")
        if counts:
            self.terms.append(self._compared(step, plan, model, survival))

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
            same = np.full(len(same), same.all())
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
            matched=float(same.sum()),
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
