"""Admission by the drafter's confidence, while drafts are made or before they are verified.

The planner sets two prices from finished rounds: what a verified draft and what a draft pass have
to bring, in tokens (goodput of the plan times seconds). Then

* position j of request i is admitted iff w_i s_ij reaches the price of a verified draft, with s_ij
  the survival given the confidences up to j; it only ever falls along j, and prices never do, so
  the first position that fails ends the request's draft;
* where the engine asks after each pass, another pass runs iff what all requests together may win
  by it, above the price of their drafts, reaches the price of the pass.

Admission of (i, j) uses the request's confidences at 1..j and prices that are older than the
round; whether a pass runs is decided before its tokens are drawn, from positions that were
admitted. So the output distribution stays exact however drafts are sampled.
"""

from __future__ import annotations

import numpy as np

from adaptive_spec.policies.acceptance.confidence import log_odds
from adaptive_spec.policies.acceptance.model import AcceptanceModel, survival_of
from adaptive_spec.policies.planning.admission_kernels import value_of
from adaptive_spec.policies.planning.judge_kernel import judge
from adaptive_spec.policies.planning.step_forecast import StepForecast
from adaptive_spec.step import BoolArray, DraftPass, DraftVerdict, FloatArray, IntArray

_DEPTH_RATE = 0.02
"""Weight of a step in the mean number of passes."""


class LiveAdmission:
    """Keeps the prices, and the survival of the drafts that are being made."""

    def __init__(self, acceptance: AcceptanceModel) -> None:
        self._acceptance = acceptance
        self.late = False
        """The engine tells the drafter's confidence only once the drafts have been verified."""
        kmax = acceptance.max_draft_tokens
        self._draft_prices: FloatArray = np.zeros(kmax)
        self._pass_price = 0.0
        self.mean_depth = 1.0
        """Mean number of passes, where the engine asks after each."""
        self._mean_verified = 1.0
        self._slots: IntArray = np.zeros(0, dtype=np.int64)
        self._task: IntArray | None = None
        self._weights: FloatArray | None = None
        self._by_history: FloatArray = np.zeros((kmax, 0))
        self._hazards = acceptance.of_passes(np.zeros(0, dtype=np.int64))
        self._survival: FloatArray = np.zeros(0)
        self._shown: FloatArray = np.zeros((kmax, 0))
        self._drafted_for: IntArray = self._slots
        self._extending: BoolArray = np.zeros(0, dtype=np.bool_)

    @property
    def useful(self) -> bool:
        """Confidence tells something, and in time."""
        return self._acceptance.informative and not self.late

    def set_prices(self, forecast: StepForecast, hazard: FloatArray) -> None:
        """Set the prices for the drafts of the round that begins, from finished rounds.

        `hazard` [Kmax, B] by history is that of drafts whose confidence is not known yet.
        """
        self._by_history = hazard
        context = forecast.context
        # The drafts of this round are verified in the next step, which may verify far more or fewer
        # than this one: prices taken here would have long and short steps take turns.
        self._draft_prices = forecast.verify_prices(round(self._mean_verified * context.batch_size))
        self._pass_price = forecast.pass_price()
        self._slots, self._weights = context.slots, forecast.weights
        self._task = context.task

    def drafted(self, depth: int, verified: IntArray) -> None:
        """Count the draft passes of a step in which the engine asked after each, and K [B]."""
        self.mean_depth += _DEPTH_RATE * (depth - self.mean_depth)
        if verified.size:
            self._mean_verified += _DEPTH_RATE * (float(verified.mean()) - self._mean_verified)

    def admit(
        self,
        forecast: StepForecast,
        hazard: FloatArray,
        signal: FloatArray,
        *,
        drafted_by_it: bool,
    ) -> tuple[IntArray, float]:
        """[B] drafts at hand to verify, and the tokens the step is expected to emit with them.

        Args:
            forecast: of this step.
            hazard: [Kmax, B] by history.
            signal: [Kmax, B] confidences of the drafts at hand.
            drafted_by_it: admission was decided while drafting; all that is at hand is verified.
        """
        context = forecast.context
        survival = survival_of(
            self._acceptance.hazard_given(signal, hazard, context.slots, context.task)
        )
        verify = context.draft_available
        if not drafted_by_it:
            worth = survival if forecast.weights is None else survival * forecast.weights
            prices = forecast.verify_prices()
            verify = np.minimum(verify, (worth >= prices[:, None]).sum(axis=0))
        return verify, context.batch_size + value_of(survival, verify)

    def after_pass(self, draft: DraftPass, extend: BoolArray | None) -> DraftVerdict:
        """What is kept of this pass, and who is drafted for in the next.

        Args:
            draft: the pass.
            extend: [B] requests that explore: they keep one draft more than is worth it.
        """
        position = draft.position
        if position == 0 or len(draft.slots) != self._shown.shape[1]:
            self._begin(draft, extend)
        shown = log_odds(draft.confidence[:, position])
        self._shown[position] = np.where(draft.drafting, shown, np.nan)
        if not self.useful:
            return DraftVerdict(draft.drafting, draft.drafting)
        return DraftVerdict(
            *judge(
                position,
                self._hazards.hazard(position, shown),
                self._by_history,
                self._draft_prices,
                self._pass_price,
                draft.drafting,
                self._survival,
                self._extending,
            )
        )

    def shown(self, slots: IntArray, signal: FloatArray) -> FloatArray:
        """z [Kmax, B] of all that was drafted for these requests [B], where it was watched.

        Args:
            slots: the requests of this step.
            signal: [Kmax, B] of the drafts that were kept; stands for requests not watched.
        """
        shown, self._shown = self._shown, np.zeros((len(self._by_history), 0))
        drafted = self._drafted_for
        if not shown.size:
            return signal
        shown = shown - self._hazards.mean[:, None]
        if len(drafted) == len(slots) and bool((drafted == slots).all()):
            return shown
        order = np.argsort(drafted)
        place = np.searchsorted(drafted, slots, sorter=order)
        rows = order[np.minimum(place, len(order) - 1)]
        return np.where(drafted[rows] == slots, shown[:, rows], signal)

    def _begin(self, draft: DraftPass, extend: BoolArray | None) -> None:
        batch = len(draft.slots)
        same = len(self._slots) == batch and bool((self._slots == draft.slots).all())
        if not same:  # requests came or went since the plan: what was known of them is left out
            self._slots, self._task, self._weights = draft.slots, None, None
            self._by_history = self._acceptance.hazard(draft.slots)
        self._hazards = self._acceptance.of_passes(draft.slots, self._task)
        self._survival = np.ones(batch) if self._weights is None else self._weights.copy()
        self._shown = np.full((len(self._by_history), batch), np.nan)
        self._drafted_for = draft.slots
        if extend is not None and len(extend) == batch:
            self._extending = extend.copy()
        else:
            self._extending = np.zeros(batch, dtype=np.bool_)
