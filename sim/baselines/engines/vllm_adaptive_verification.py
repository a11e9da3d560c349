"""Baseline: vLLM's adaptive verification (`enable_adaptive_verification`).

Rule: acceptance a_ij = sigmoid(w x_ij + b_j) from the log-odds x of the drafter's maximum
probability, fitted online (`vllm_acceptance_estimator`); survival S_ij = a_i1 ... a_ij. The rule
verifies the B* available drafts with the largest live survival, where

    B* = argmax over m of (B + sum of the m largest old survivals) / (draft(B) + verify(T + m)),

T is the number of tokens of the step that are no drafts; old survivals come from the drafts of the
round before, 1 for new requests; costs come from tables made before serving (`vllm_cost_tables`).

Source: vllm/v1/worker/gpu/spec_decode/adaptive_verification.py and acceptance_estimator.py of vLLM
0.32. Granularity: L1. vLLM needs a confidence signal; without one, the engine's own K runs here.
vLLM refuses an engine with one K per batch; here it gets the best K by the old survivals.

With the option `profile`, cost tables are made as in vLLM; without, step times are learned online,
unlike the original. Of the requests in prefill only the tokens are known here: requests whose
prompt ends in the step are not counted in B.

Faults kept: the full draft is always made, and its cost only shifts the ratio; context is priced
once, at 8,192 tokens; a new request is expected to accept all drafts; never off.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec
import numpy as np

from adaptive_spec.policy import Provenance
from adaptive_spec.sim.baselines.engines.vllm_acceptance_estimator import (
    VllmAcceptanceEstimator,
)
from adaptive_spec.sim.baselines.engines.vllm_cost_tables import CostCurve, profiled_curves
from adaptive_spec.sim.baselines.parts.drafts import log_odds
from adaptive_spec.sim.baselines.parts.verification_budget import (
    BudgetedVerification,
    BudgetOptions,
)
from adaptive_spec.step import Capability, FinishedStep, FloatArray, Level, StepContext


class VllmAdaptiveVerificationPolicy(BudgetedVerification):
    """Policy of logistic acceptance, a budget from the round before, and live ranking within it."""

    name: ClassVar[str] = "vllm_adaptive_verification"
    summary: ClassVar[str] = "verifies the drafts that pay, by confidence fitted online, vLLM"
    Options: ClassVar[type[msgspec.Struct]] = BudgetOptions
    provenance: ClassVar[Provenance] = Provenance(
        source="vLLM 0.32, v1/worker/gpu/spec_decode/adaptive_verification.py and "
        "acceptance_estimator.py",
        granularity=Level.VERIFY,
        faults="always drafts in full; context priced once, at 8,192 tokens; new requests are "
        "expected to accept all; never off",
    )
    lag = 1

    def __init__(self, options: BudgetOptions, *, seed: int = 0) -> None:
        del seed
        super().__init__(options.profile)
        self._tables: tuple[CostCurve, CostCurve] | None = None

    def begin(self, capability: Capability) -> None:
        """Build estimator and cost tables."""
        super().begin(capability)
        self._estimator = VllmAcceptanceEstimator(capability.max_draft_tokens)
        if self._profile is not None:
            self._tables = profiled_curves(self._profile, capability)

    def calibrated(self, context: StepContext, confidence: FloatArray) -> FloatArray:
        """Return the estimator's acceptance."""
        return self._estimator.predict(log_odds(confidence))

    def learn(self, step: FinishedStep) -> None:
        """Learn from the step's predictions and outcomes."""
        confidence, outcome = step.context.confidence, step.outcome
        if step.plan.notes and confidence is not None:
            (predicted,) = step.plan.notes
            self._estimator.learn(
                log_odds(confidence), predicted, outcome.verified, outcome.accepted
            )

    def seconds(self, context: StepContext) -> FloatArray:
        """Return step times from the tables, or learned ones."""
        if self._tables is None:
            return super().seconds(context)
        draft, verify = self._tables
        batch = context.batch_size
        drafts = np.arange(batch * context.capability.max_draft_tokens + 1)
        seconds = verify.at(batch + context.prefill_tokens + drafts)
        seconds += draft.at(np.array([batch]))[0]
        return np.maximum(seconds, 1e-9, out=seconds)
