"""Predictions of a step's tokens and seconds, learned from the steps before it only.

So an error of the prediction for a step does not depend on that step's own noise, and correcting
it by weighted errors (doubly robust) needs no second half of the data.

    T = V(N) + a B + c sum(context) + p prefill + D (d + e B) + [any draft] (f + g B)

with V piecewise linear in the verified tokens N and its slopes held alike where little was
measured. The form is that of the policy's belief, which forgets, caps its evidence and leans on
priors so as to act well on little; that would bias an estimate from much.
"""

from __future__ import annotations

import numpy as np

from adaptive_spec.policies.two_beliefs.acceptance import Acceptance
from adaptive_spec.step import Capability, FloatArray, IntArray, StepOutcome

_KNOTS: FloatArray = 2.0 ** np.arange(14, dtype=np.float64)
_WIDTHS: FloatArray = np.diff(_KNOTS, append=2.0 * _KNOTS[-1])
_SMOOTHNESS = 0.3
_RIDGE = 1e-4
"""Both in units of one step's squared relative error."""
_PREFILL = 1 + len(_KNOTS) + 2
"""Place of the prompt tokens among the features."""
_TRUSTED_AFTER = 30
_CLIPPED_BEYOND = 5.0


class StepTimeRegression:
    """Least squares on relative errors; steps far off the fit count as five typical errors off."""

    def __init__(self, capability: Capability) -> None:
        self._buckets = np.array(capability.token_buckets, dtype=np.float64)
        self._off_pass = capability.off_pass
        size = 1 + len(_KNOTS) + 7
        self._gram: FloatArray = np.zeros((size, size))
        self._moment: FloatArray = np.zeros(size)
        self._units: FloatArray = np.ones(size)
        # A ridge on slopes, not on rises: segments never reached must not flatten the others.
        self._units[1 : 1 + len(_KNOTS)] = 1.0 / _WIDTHS
        self._unevenness = _unevenness(size)
        self._typical_error = 0.0
        self._coefficients: FloatArray | None = None
        self.steps = 0

    @property
    def ready(self) -> bool:
        """There is something to predict from."""
        return self.steps >= _TRUSTED_AFTER

    def features(self, ran: StepOutcome, drafts: int, depth: int) -> FloatArray:
        """[F] of a step that ran, had it verified so many drafts and drafted so deep."""
        tokens = float(ran.batch_tokens - int(ran.verified.sum()) + drafts)
        any_draft = float(tokens > ran.batch_size)
        place = int(np.searchsorted(self._buckets, tokens))
        if place < len(self._buckets):
            tokens = float(self._buckets[place])
        passes = max(depth, int(self._off_pass))
        rise = np.clip((tokens - _KNOTS) / _WIDTHS, 0.0, 1.0)
        rise[-1] = max((tokens - _KNOTS[-1]) / _WIDTHS[-1], 0.0)
        rest = (
            *(ran.batch_size, ran.context_tokens, ran.prefill_tokens),
            *(passes, passes * ran.batch_size),
            *(any_draft, any_draft * ran.batch_size),
        )
        return np.concatenate([[1.0], rise, rest])

    def predict(self, features: FloatArray) -> float:
        """Seconds of a step with these features, by the steps so far."""
        return float(features @ self.coefficients())

    def add_step(self, ran: StepOutcome) -> None:
        """Take up a step, if its time was measured."""
        seconds = ran.seconds
        if not (0.0 < seconds < 60.0) or ran.batch_size == 0:
            return
        features = self.features(ran, int(ran.verified.sum()), ran.draft_depth)
        if self.ready:
            predicted = self.predict(features)
            bound = _CLIPPED_BEYOND * self._typical_error
            error = min(max(seconds - predicted, -bound), bound)
            self._typical_error += 0.02 * (abs(error) - self._typical_error)
            seconds = max(predicted + error, 0.1 * seconds)
        else:
            self._typical_error = max(self._typical_error, 0.1 * seconds)
        self.steps += 1
        self._gram += features[:, None] * features / seconds**2
        self._moment += features / seconds
        self._units[1 + len(_KNOTS) :] = np.maximum(
            self._units[1 + len(_KNOTS) :], features[1 + len(_KNOTS) :]
        )
        self._coefficients = None

    def coefficients(self) -> FloatArray:
        """[F] fitted to the steps so far."""
        if self._coefficients is None:
            solved = np.linalg.solve(self._penalised(), self._moment)
            self._coefficients = np.asarray(solved, dtype=np.float64)
        return self._coefficients

    def prompt_seconds(self, prefill_tokens: FloatArray) -> FloatArray:
        """Return the seconds that prompt tokens add to steps, by the steps so far."""
        seconds: FloatArray = max(float(self.coefficients()[_PREFILL]), 0.0) * prefill_tokens
        return seconds

    def covariance(self) -> FloatArray:
        """[F, F] of the coefficients, from the mean squared relative error."""
        fitted = self.coefficients()
        squares = self.steps - 2.0 * fitted @ self._moment + fitted @ self._gram @ fitted
        free = max(self.steps - len(fitted), 1)
        inverse = np.linalg.inv(self._penalised())
        return np.asarray(max(float(squares), 0.0) / free * inverse, dtype=np.float64)

    def _penalised(self) -> FloatArray:
        usual = float(self._gram[0, 0]) / max(self.steps, 1)
        ridge = np.diag(_RIDGE * self._units**2)
        penalised: FloatArray = self._gram + usual * (ridge + _SMOOTHNESS * self._unevenness)
        return penalised


def _unevenness(size: int) -> FloatArray:
    """Quadratic form of how much slopes of neighbouring segments differ."""
    form = np.zeros((size, size))
    for k in range(len(_KNOTS) - 1):
        width = float(np.sqrt(_WIDTHS[k] * _WIDTHS[k + 1]))
        row = np.zeros(size)
        row[1 + k], row[2 + k] = width / _WIDTHS[k], -width / _WIDTHS[k + 1]
        form += row[:, None] * row
    return form


class StepModel:
    """Acceptance by request and position, and step times: the models beside each other."""

    def __init__(self, capability: Capability) -> None:
        self._acceptance = Acceptance(capability.max_draft_tokens)
        self.time = StepTimeRegression(capability)

    @property
    def ready(self) -> bool:
        """Step times can be predicted."""
        return self.time.ready

    def survival(self, slots: IntArray) -> FloatArray:
        """[Kmax, B] predicted probability that all drafts up to a position are accepted."""
        return self._acceptance.survival(self._acceptance.logits(slots))

    def add_step(self, ran: StepOutcome, ended: IntArray) -> None:
        """Take up a step, and forget the requests that ended with it."""
        if ran.slots.size:
            self._acceptance.learn(ran.slots, ran.verified, ran.accepted, None)
        self.time.add_step(ran)
        if ended.size:
            self._acceptance.forget(ended)


def expected_tokens(survival: FloatArray, verify: IntArray) -> FloatArray:
    """[B] tokens each request emits with K_i verified, from survival [Kmax, B]."""
    admitted = np.arange(len(survival))[:, None] < verify
    tokens: FloatArray = 1.0 + np.sum(survival, axis=0, where=admitted)
    return tokens
