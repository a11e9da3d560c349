"""Acceptance model: hazards by what is known before the drafts are made, and by their confidence.

Two logistic models (`adaptive_spec.policies.acceptance.hazard_model`) learn from the same outcomes:

* history: b_j + v_t + u_i + a_ij;
* drafts: b'_j + v'_t + u'_i + a'_ij + w_j z_ij, with z_ij how sure the drafter is of this draft
  (`policies.acceptance.confidence`). It is used for drafts whose z is known, once enough of
  them have been observed.

Each model fits its own request effect: that of history also says how sure the drafter usually is of
a request.

Once drafts are left out by their confidence, the verified ones are the better ones, and history
would learn from these alone. So it learns from drafts that were made and left out, too, with the
hazard of the other model in place of an outcome (a regression imputation: Little and Rubin,
"Statistical analysis with missing data"): the next draft after the last verified one, if all of
these were accepted, and later ones by the chance that they would have been reached.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from adaptive_spec.errors import PolicyError
from adaptive_spec.policies.acceptance.confidence import ConfidenceEffect
from adaptive_spec.policies.acceptance.hazard_model import HazardModel
from adaptive_spec.policies.acceptance.hazard_quality import HazardQuality
from adaptive_spec.policies.acceptance.lookup_model import LookupModel
from adaptive_spec.policies.kernels import INTS, kernel
from adaptive_spec.step import FloatArray, IntArray


def _passed_over_loop(
    signal: FloatArray,
    verified: IntArray,
    accepted: IntArray,
    hazard: FloatArray,
    of_history: FloatArray,
) -> tuple[FloatArray, FloatArray, bool]:
    kmax, batch = signal.shape
    missed = np.zeros((kmax, batch), np.float64)
    uncertain = np.zeros((kmax, batch), np.float64)
    anything = False
    for i in range(batch):
        reached = 1.0 if accepted[i] >= verified[i] else 0.0
        for j in range(verified[i], kmax):
            if signal[j, i] == signal[j, i] and reached > 0.0:
                h = of_history[j, i]
                missed[j, i] = reached * (hazard[j, i] - h)
                uncertain[j, i] = reached * h * (1.0 - h)
                anything = True
            reached *= hazard[j, i]
    return missed, uncertain, anything


@kernel(
    f"Tuple((float64[:, ::1], float64[:, ::1], boolean))(float64[:, :], {INTS}, {INTS},"
    " float64[:, :], float64[:, :])",
    _passed_over_loop,
)
def passed_over(
    signal: FloatArray,
    verified: IntArray,
    accepted: IntArray,
    hazard: FloatArray,
    of_history: FloatArray,
) -> tuple[FloatArray, FloatArray, bool]:
    """Return what history may learn from drafts that were made and not verified.

    They count by the chance that they would have been reached: 1 for the next after the last
    verified one if all of these were accepted, and less by each hazard further on.

    Args:
        signal: [Kmax, B] what the drafts had shown; nan where none was made.
        verified: [B] K_i.
        accepted: [B]
        hazard: [Kmax, B] by what they had shown.
        of_history: [Kmax, B] without it.

    Returns [Kmax, B] by how much the first says more than the second, by weight; the second's
    h (1 - h), by weight; and whether anything counts.
    """
    beyond = np.arange(len(signal))[:, None] >= verified
    reached = np.ones_like(hazard)
    np.cumprod(np.where(beyond, hazard, 1.0)[:-1], axis=0, out=reached[1:])
    weight = np.where(beyond & (accepted >= verified) & ~np.isnan(signal), reached, 0.0)
    return (
        weight * (hazard - of_history),
        weight * of_history * (1.0 - of_history),
        bool(weight.any()),
    )


_WIDE_EVIDENCE = 20.0
"""Fisher information that a position keeps after a change was noticed."""


class AcceptanceModel:
    """Posterior of the hazards, by position and by request slot.

    Args:
        max_draft_tokens: Kmax.
        prior_hazard: hazard assumed at every position before anything is seen.
    """

    def __init__(self, max_draft_tokens: int, *, prior_hazard: float = 0.67) -> None:
        self.max_draft_tokens = max_draft_tokens
        self._prior_hazard = prior_hazard
        self.history, self.drafts = self._new_models()
        self.confidence = ConfidenceEffect(max_draft_tokens)
        self.lookup = LookupModel(max_draft_tokens)
        """Hazards of the drafts that were looked up."""
        self.quality = HazardQuality(max_draft_tokens)
        """How well the hazards of the observed drafts were predicted."""
        self._shown = False

    @property
    def informative(self) -> bool:
        """The drafts' confidence is used."""
        return self.confidence.informative

    @property
    def observations(self) -> IntArray:
        """[Kmax] times each position has been observed."""
        return self.history.observations

    def hazard(self, slots: IntArray, task: IntArray | None = None) -> FloatArray:
        """Return hazards [Kmax, B] by history.

        Args:
            slots: [B] rows of the requests.
            task: [B] number of the task label, -1 without; None: nobody has one.
        """
        return self.history.hazard(slots, task)

    def hazard_given(
        self,
        signal: FloatArray,
        by_history: FloatArray,
        slots: IntArray,
        task: IntArray | None = None,
    ) -> FloatArray:
        """Return hazards [Kmax, B] given the drafts' signal z [Kmax, B].

        They are those by history [Kmax, B] where z is nan, and while confidence is not used.
        """
        if not self.informative:
            return by_history.copy()
        return self._by_drafts(signal, by_history, slots, task)

    def learn_outcomes(
        self,
        slots: IntArray,
        verified: IntArray,
        accepted: IntArray,
        task: IntArray | None = None,
        signal: FloatArray | None = None,
    ) -> None:
        """Take up one step's outcomes [B] and the signal [Kmax, B] that its drafts came with."""
        if slots.size == 0:
            return
        by_history = self.history.hazard(slots, task)
        self.quality.see("history", by_history, verified, accepted)
        if signal is not None:
            self._learn_from_signal(slots, verified, accepted, task, signal, by_history)
        self.history.learn_outcomes(by_history, slots, verified, accepted, task)

    def forget(self, slots: IntArray) -> None:
        """Clear the rows of ended requests."""
        self.history.forget(slots)
        self.drafts.forget(slots)
        self.lookup.forget(slots)

    def widen(self, *, centre: bool = False) -> None:
        """Trust the past less: something may have changed. Exploration starts afresh."""
        self.history.widen(_WIDE_EVIDENCE, centre=centre)
        self.drafts.widen(_WIDE_EVIDENCE, centre=centre)
        self.lookup.widen(_WIDE_EVIDENCE, centre=centre)

    def state(self) -> dict[str, Any]:
        """Return what holds beyond single requests, JSON-compatible; history's at the top."""
        return {
            **self.history.state(),
            "drafts": self.drafts.state() if self._shown else None,
            "lookup": self.lookup.state(),
            "confidence": self.confidence.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a saved state. Raises PolicyError, and changes nothing, if it does not fit."""
        history, drafts = self._new_models()
        confidence = ConfidenceEffect(self.max_draft_tokens)
        lookup = LookupModel(self.max_draft_tokens)
        history.restore(state)
        try:
            of_drafts, of_confidence = state.get("drafts"), state["confidence"]
        except (AttributeError, KeyError, TypeError) as error:
            raise PolicyError(f"acceptance state does not fit: {error!r}") from error
        drafts.restore(state if of_drafts is None else of_drafts)
        confidence.restore(of_confidence)
        if state.get("lookup") is not None:  # a state of version 0.1 has none
            lookup.restore(state["lookup"])
        self.history, self.drafts, self.confidence = history, drafts, confidence
        self.lookup = lookup
        self._shown = of_drafts is not None

    def _new_models(self) -> tuple[HazardModel, HazardModel]:
        kmax, prior = self.max_draft_tokens, self._prior_hazard
        return HazardModel(kmax, prior, clients_label=True), HazardModel(
            kmax, prior, clients_label=True
        )

    def _by_drafts(
        self,
        signal: FloatArray,
        by_history: FloatArray,
        slots: IntArray,
        task: IntArray | None,
    ) -> FloatArray:
        return self.drafts.hazard(slots, task, self.confidence.logit(signal), by_history)

    def _learn_from_signal(
        self,
        slots: IntArray,
        verified: IntArray,
        accepted: IntArray,
        task: IntArray | None,
        signal: FloatArray,
        by_history: FloatArray,
    ) -> None:
        if not self._shown:
            self._shown = True
            self.drafts.start_from(self.history)
        hazard = self._by_drafts(signal, by_history, slots, task)
        self.quality.see("confidence", hazard, verified, accepted)
        self.confidence.learn_weights(signal, hazard, verified, accepted)
        self.drafts.learn_outcomes(hazard, slots, verified, accepted, task)
        if self.informative:
            missed, uncertain, anything = passed_over(
                signal, verified, accepted, hazard, by_history
            )
            if anything:
                self.history.impute(missed, uncertain, slots, task)
