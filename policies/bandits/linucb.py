"""`linucb`: upper confidence bounds on hazards that are linear in a request's features.

The bound on hazard j of request i is theta_j . x_i + c sqrt(x_i' A_j^-1 x_i) (Li, Chu, Langford,
Schapire, arXiv 1003.0146). theta_j is fitted to the observations of position j from any K
(contextual combinatorial cascading bandits: Li, Wang, Zhang, Chen, ICML 2016). The planner computes
survival from the bounds and finds the K_i and the depth with the most tokens per second.
"""

from __future__ import annotations

import zlib
from typing import Annotated, ClassVar

import msgspec
import numpy as np

from adaptive_spec.per_request import floats, highest_of
from adaptive_spec.policies.acceptance.hazard_model import survival_of
from adaptive_spec.policies.bandits.acceptance import BanditAcceptance, Discount, NonNegative
from adaptive_spec.policies.planned import Drafts, PlannedPolicy
from adaptive_spec.policies.step_time.model import CostModel
from adaptive_spec.step import (
    BoolArray,
    Capability,
    FinishedStep,
    FloatArray,
    IntArray,
    StepContext,
    StepOutcome,
)


class RidgeRegressions:
    """M regressions with d coefficients.

    A <- gamma A + (1 - gamma) lambda I + X'X,  b <- gamma b + X'y,  theta = A^-1 b, for each of M
    regressions (arms or positions); lambda I is not discounted (discounted linear bandits: Russac,
    Vernade, Cappé, arXiv 1909.09146).

    Args:
        count: M.
        dimensions: d.
        ridge: lambda.
        discount: gamma, discount of a regression's evidence whenever it learns.
        guess: [d] prior coefficients.
    """

    def __init__(
        self, count: int, dimensions: int, *, ridge: float, discount: float, guess: FloatArray
    ) -> None:
        self._prior: FloatArray = ridge * np.eye(dimensions, dtype=np.float64)
        self._prior_moment = self._prior @ guess
        self._discount = discount
        self.gram: FloatArray = np.tile(self._prior, (count, 1, 1))
        self.moment: FloatArray = np.tile(self._prior_moment, (count, 1))
        self.solve()

    def solve(self) -> None:
        """Solve for coefficients [M, d] and inverses [M, d, d] from the sums."""
        self.inverse: FloatArray = np.asarray(np.linalg.inv(self.gram), dtype=np.float64)
        self.coefficients: FloatArray = (self.inverse @ self.moment[:, :, None])[:, :, 0]

    def add_observations(self, features: FloatArray, target: FloatArray, seen: BoolArray) -> None:
        """Learn from one step.

        Args:
            features: [B, d].
            target: [M, B].
            seen: [M, B] whether the target is known.
        """
        learns = seen.any(axis=1)
        if not learns.any():
            return
        weighted = seen[:, :, None] * features
        fresh = weighted.transpose(0, 2, 1) @ features
        moment = np.where(seen, target, 0.0) @ features
        fade = np.where(learns, self._discount, 1.0)
        self.gram = fade[:, None, None] * self.gram + fresh
        self.gram += (1.0 - fade)[:, None, None] * self._prior
        self.moment = fade[:, None] * self.moment + moment
        self.moment += (1.0 - fade)[:, None] * self._prior_moment
        self.solve()

    def mean(self, features: FloatArray) -> FloatArray:
        """Return [M, B] predictions at features [B, d]."""
        predicted: FloatArray = self.coefficients @ features.T
        return predicted

    def deviation(self, features: FloatArray) -> FloatArray:
        """Return [M, B] deviations sqrt(x' A^-1 x)."""
        spread = np.sum((features @ self.inverse) * features, axis=2)
        deviation: FloatArray = np.sqrt(np.maximum(spread, 0.0))
        return deviation


TASK_BINS = 4
NAMES = (
    "one",
    "load",
    "context",
    "acceptance",
    "confidence",
    "entropy",
    "temperature",
    "kv_free",
    *(f"task_{number}" for number in range(TASK_BINS)),
)
DIMENSIONS = len(NAMES)
_ACCEPTANCE, _CONFIDENCE, _ENTROPY = 3, 4, 5

_PRIOR_HAZARD, _PRIOR_WEIGHT = 0.67, 2.0
_HISTORY_DISCOUNT = 0.97


class RequestFeatures:
    """Features of requests, with history by slot. All within about -2..2.

    Confidence and entropy are those of the request's drafts in the step *before*: a draft, or a
    value computed from it, must not influence its own verification.
    """

    def __init__(self) -> None:
        self._succeeded, self._seen = floats(0.0), floats(0.0)
        self._signal = floats(0.0, 2)
        """Confidence and entropy of the last step's drafts, centred; 0 if unknown."""

    def of_requests(self, context: StepContext) -> FloatArray:
        """Return [B, d] one row per request."""
        slots = context.slots
        rows = np.empty((context.batch_size, DIMENSIONS))
        rows[:, 0] = 1.0
        rows[:, 1] = np.log2(max(context.batch_size, 1)) / 8.0
        rows[:, 2] = np.log2(context.context_tokens + 1.0) / 16.0
        known = self._succeeded[slots] + _PRIOR_WEIGHT * _PRIOR_HAZARD
        rows[:, 3] = 2.0 * (known / (self._seen[slots] + _PRIOR_WEIGHT) - _PRIOR_HAZARD)
        rows[:, 4:6] = self._signal[slots]
        rows[:, 6] = np.minimum(context.temperature, 2.0)
        rows[:, 7] = context.kv_free_tokens / max(context.kv_total_tokens, 1)
        rows[:, 8], rows[:, 9:] = 1.0, 0.0
        if highest_of(context.task) >= 0:
            rows[:, 8:] = _task_bin(context.task)[:, None] == np.arange(TASK_BINS)
        self._remember_signal(context)
        return rows

    def add_outcomes(self, outcome: StepOutcome) -> None:
        """Learn from the accepted drafts of each request."""
        slots = outcome.slots
        seen = np.minimum(outcome.accepted + 1, outcome.verified)
        fade = np.where(seen > 0, _HISTORY_DISCOUNT, 1.0)
        self._succeeded[slots] = self._succeeded[slots] * fade + outcome.accepted
        self._seen[slots] = self._seen[slots] * fade + seen

    def forget(self, slots: IntArray) -> None:
        """Reset the history of these slots."""
        for array in (self._succeeded, self._seen, self._signal):
            array.reset(slots)

    def _remember_signal(self, context: StepContext) -> None:
        """Keep this step's signals for the next step: these drafts are not verified yet."""
        if context.confidence is None and context.entropy is None:
            return
        signal = self._signal[context.slots]
        if context.confidence is not None:
            top = np.clip(context.confidence, 1e-3, 1.0 - 1e-3)
            signal[:, 0] = _mean(np.log(top / (1.0 - top))) / 4.0
        if context.entropy is not None:
            signal[:, 1] = _mean(np.minimum(context.entropy, 6.0)) / 3.0
        self._signal[context.slots] = signal


def _mean(values: FloatArray) -> FloatArray:
    """Return [B] means over positions, without nan; 0 where all are unknown."""
    known = ~np.isnan(values)
    mean: FloatArray = np.sum(values, axis=1, where=known) / np.maximum(known.sum(axis=1), 1)
    return mean


def _task_bin(task: IntArray) -> IntArray:
    """Return [B] bin 0 without a label, 1..TASK_BINS - 1 by a hash of the label's number."""
    labels, place = np.unique(task, return_inverse=True)
    bins = [
        0 if label < 0 else 1 + zlib.crc32(str(label).encode()) % (TASK_BINS - 1)
        for label in labels.tolist()
    ]
    return np.array(bins, dtype=np.int64)[place]


_FLOOR, _CEILING = 0.01, 0.995
_PRIOR_HAZARD = 0.67


class LinUcbOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of `linucb`."""

    profile: str | None = None
    """File with an initial cost profile."""
    exploration: NonNegative = 0.2
    """c, the width of the confidence bounds."""
    discount: Discount = 0.999
    """Discount of the evidence per observed step."""
    ridge: Annotated[float, msgspec.Meta(ge=1e-6, le=1e6)] = 1.0
    """Strength of the prior, in observations."""


class LinearAcceptance(BanditAcceptance):
    """Upper bounds on hazards by position, linear in a request's features."""

    def __init__(self, options: LinUcbOptions) -> None:
        self._options = options

    def start(self, capability: Capability) -> None:
        """Begin on an engine, knowing nothing."""
        self._kmax = capability.max_draft_tokens
        self._features = RequestFeatures()
        guess = np.zeros(DIMENSIONS)
        guess[0] = _PRIOR_HAZARD
        self._ridges = RidgeRegressions(
            self._kmax,
            DIMENSIONS,
            ridge=self._options.ridge,
            discount=self._options.discount,
            guess=guess,
        )

    def predict_drafts(self, context: StepContext, step_times: CostModel) -> Drafts:
        """Return the survival of the drafts by the upper bounds of their hazards."""
        rows = self._features.of_requests(context)
        width = self._options.exploration * self._ridges.deviation(rows)
        bound = np.clip(self._ridges.mean(rows) + width, _FLOOR, _CEILING)
        return Drafts(context=context, survival=survival_of(bound), notes=(rows,))

    def learn_acceptance(self, step: FinishedStep, step_times: CostModel) -> bool:
        """Learn from a finished step and the features of its plan, if it was planned."""
        outcome = step.outcome
        for rows in step.plan.notes:
            positions = np.arange(self._kmax)[:, None]
            seen = positions < np.minimum(outcome.accepted + 1, outcome.verified)
            self._ridges.add_observations(
                rows, (positions < outcome.accepted).astype(np.float64), seen
            )
        self._features.add_outcomes(outcome)
        return False

    def forget(self, slots: IntArray) -> None:
        """Reset the features of these slots."""
        self._features.forget(slots)


class LinUcbPolicy(PlannedPolicy):
    """LinUCB, per request."""

    name: ClassVar[str] = "linucb"
    summary: ClassVar[str] = "bandit: LinUCB on request features; K per request"
    Options: ClassVar[type[msgspec.Struct]] = LinUcbOptions

    def __init__(self, options: LinUcbOptions, *, seed: int = 0) -> None:
        super().__init__(LinearAcceptance(options), options.profile, tpot_allowance=0.0, seed=seed)
