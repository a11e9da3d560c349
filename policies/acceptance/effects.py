"""Effects u_i of requests and v_t of task labels on the hazard of a position, and their bounds.

**Requests.** How much more or less a request's drafts are accepted than others'.

The average of a request forgets within about four steps. Requests change that fast (a passage that
the drafter copies, then one that it cannot), and an average over many steps was worth nothing
besides. A request changes unobserved, too: in steps that verify nothing for it, u_i returns to the
mean of all requests. Without that, nobody would try a request again that was bad for some steps.

**Task labels.** Requests of a task may accept more drafts than those of another.

A label speaks from a request's first step on. Labels are numbered anew by each server, so their
effects are not saved. Numbers grow without end, as labels come and go; a new number takes the place
of one that is `MOST_TASKS` older.

**Outliers.** Requests whose drafts are unlike those of the others with the same task label.

Any client can send any label. A request whose acceptance is far from the median of the requests
with its label keeps its own effect u_i, and loses its share in what all of them have in common:
what the request has taught b_j and v_t is taken back as far as its weight falls. With d_i the
request's deviation in logits, shrunk to 0 while little is known, and m the label's median of the
d_i,

    weight = min(1, (REACH / |d_i - m|) ** 2).

So requests that are fewer than half of those running with a label cannot move the label's
hazards far, and all of them can: when every request of a label changes, the median does.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from adaptive_spec.errors import PolicyError
from adaptive_spec.per_request import floats
from adaptive_spec.step import FloatArray, IntArray

DISCOUNT = 0.75
"""Share of a request's evidence that a step leaves."""
_FIRST_VARIANCE = 0.3
"""Variance of u_i between requests before anything is seen, in logits."""
_VARIANCE_RANGE = (0.02, 3.0)
_FIRST_CURVATURE, _CURVATURE_LIMIT = 1.0, 100.0
"""Evidence behind the first variance, and its cap; sd(log) = evidence^-1/2."""
_TASK_VARIANCE = 0.5
"""Variance of v_t between labels, in logits."""
_EVIDENCE_LIMIT = 300.0
MOST_TASKS = 1024
"""Places for labels, far more than are in use at a time."""
REACH = 1.0
"""Deviation from the median that counts fully (logits), about two standard deviations."""
_REQUEST_VARIANCE = 0.5
"""Variance of a request's deviation before anything is seen (logits squared)."""
_LEAST = 3
"""Requests with a label, below which a median says nothing."""
_OUTLIER_MEMORY = 0.98
"""Share of what a request has shown that a step with drafts leaves."""


class RequestEffects:
    """u_i by request slot, the evidence behind it, and how much requests differ.

    Attributes:
        prior_variance: of u_i between requests, in logits.
    """

    def __init__(self) -> None:
        self.prior_variance = _FIRST_VARIANCE
        self._curvature = _FIRST_CURVATURE
        self.effect, self.evidence = floats(0.0), floats(0.0)
        """u_i by slot, and the Fisher information behind it."""

    def of(self, slots: IntArray) -> FloatArray:
        """u_i [B]."""
        return self.effect[slots]

    def information(self, slots: IntArray) -> FloatArray:
        """Fisher information [B] behind u_i."""
        return self.evidence[slots]

    def unknown(self, slots: IntArray) -> FloatArray:
        """Share [B] of the prior variance of u_i that is left."""
        share: FloatArray = 1.0 / (1.0 + self.prior_variance * self.evidence[slots])
        return share

    def impute(self, slots: IntArray, residual: FloatArray, information: FloatArray) -> None:
        """Take up sums [B] over a request's drafts whose outcome was only estimated."""
        total = self.evidence[slots] + information
        effect = self.effect[slots] + residual / (1.0 / self.prior_variance + total)
        self.effect[slots], self.evidence[slots] = effect, total

    def learn_variance(self, slope: float, curvature: float) -> None:
        """Move the prior variance to where the effects would have predicted a step's outcomes best.

        A Newton step on the error of one-step predictions (recursive prediction errors: Ljung and
        Söderström, "Theory and practice of recursive identification", chapter 3).

        Args:
            slope: of the outcomes' log-likelihood in the logarithm of the variance.
            curvature: of the same, expected; at least 0.
        """
        self._curvature = min(self._curvature, _CURVATURE_LIMIT) + curvature
        step = slope / (self._curvature + abs(slope))
        low, high = _VARIANCE_RANGE
        self.prior_variance = min(max(self.prior_variance * math.exp(step), low), high)

    def forget(self, slots: IntArray) -> None:
        """Clear the rows of ended requests."""
        self.effect.reset(slots)
        self.evidence.reset(slots)


class TaskEffects:
    """v_t by the number of the label.

    Attributes:
        number: [places] number of the label in each place; -1 in a free place.
        effect: [places] v_t.
    """

    def __init__(self) -> None:
        self.number: IntArray = np.zeros(0, dtype=np.int64)
        self.effect: FloatArray = np.zeros(0)
        self._evidence: FloatArray = np.zeros(0)

    def __len__(self) -> int:
        return len(self.effect)

    def of(self, task: IntArray) -> FloatArray:
        """v_t [B] of these labels [B]; 0 without a label."""
        if not len(self.effect):
            return np.zeros(len(task))
        place = np.minimum(task % MOST_TASKS, len(self.effect) - 1)
        known = (task >= 0) & (self.number[place] == task)
        return np.where(known, self.effect[place], 0.0)

    def learn(self, task: IntArray, residual: FloatArray, information: FloatArray) -> None:
        """Take up sums [B] of y - h and h (1 - h) over the drafts of each request."""
        highest = max(task.tolist(), default=-1)
        if highest < 0:
            return
        more = min(highest + 1, MOST_TASKS) - len(self.effect)
        if more > 0:
            self.effect = np.concatenate([self.effect, np.zeros(more)])
            self._evidence = np.concatenate([self._evidence, np.zeros(more)])
            self.number = np.concatenate([self.number, np.full(more, -1)])
        labelled, size = task >= 0, len(self.number)
        own = task[labelled]
        place = own % MOST_TASKS
        new = place[self.number[place] < own]
        self.effect[new] = self._evidence[new] = 0.0
        np.maximum.at(self.number, place, own)
        kept = self.number[place] == own
        gradient = np.bincount(place[kept], weights=residual[labelled][kept], minlength=size)
        seen = np.bincount(place[kept], weights=information[labelled][kept], minlength=size)
        self._evidence = np.minimum(self._evidence, _EVIDENCE_LIMIT) + seen
        self.effect += gradient / (self._evidence + 1.0 / _TASK_VARIANCE)

    def state(self) -> dict[str, list[float]]:
        """Return the effects, JSON-compatible; for labels that mean the same in every process."""
        return {"effect": self.effect.tolist(), "evidence": self._evidence.tolist()}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a saved state. Raises PolicyError, and changes nothing, if it does not fit."""
        try:
            effect, evidence = (np.array(state[key], dtype=float) for key in ("effect", "evidence"))
        except (KeyError, TypeError, ValueError) as error:
            raise PolicyError(f"acceptance state does not fit: {error!r}") from error
        fits = effect.ndim == 1 and effect.shape == evidence.shape and len(effect) <= MOST_TASKS
        if not fits or not np.isfinite(effect + evidence).all() or (evidence < 0.0).any():
            raise PolicyError("acceptance state does not fit: effects of labels")
        self.effect, self._evidence = effect, evidence
        self.number = np.arange(len(effect))

    def widen(self, evidence: float) -> None:
        """Trust the past less."""
        self._evidence = np.minimum(self._evidence, evidence)


class LabelOutliers:
    """Weights of requests by task label, and what each request has taught so far.

    Args:
        max_draft_tokens: Kmax.
    """

    def __init__(self, max_draft_tokens: int) -> None:
        self._surplus, self._information = floats(0.0), floats(0.0)
        self._weight = floats(1.0)
        self._taught = floats(0.0, max_draft_tokens)

    def correction(
        self,
        task: IntArray,
        slots: IntArray,
        surplus: FloatArray,
        information: FloatArray,
        lesson: FloatArray,
    ) -> FloatArray:
        """Return what to add to the sums of y - h of a step, [Kmax, B].

        Args:
            task: [B] number of the task label, -1 without.
            slots: [B] rows of the requests.
            surplus: [B] sum of y - h by position and label alone.
            information: [B] sum of h (1 - h), likewise.
            lesson: [Kmax, B] what the step has taught the effects of positions and labels.
        """
        kept = np.where(information > 0.0, _OUTLIER_MEMORY, 1.0)
        surplus = kept * self._surplus[slots] + surplus
        information = kept * self._information[slots] + information
        self._surplus[slots], self._information[slots] = surplus, information
        deviation = surplus / (information + 1.0 / _REQUEST_VARIANCE)
        distance = np.abs(deviation - _medians(task, deviation))
        weight = np.minimum(1.0, (REACH / np.maximum(distance, REACH)) ** 2)
        before, taught = self._weight[slots], self._taught[slots].T * kept
        self._weight[slots], self._taught[slots] = weight, (taught + lesson).T
        correction: FloatArray = (weight - before) * taught + (weight - 1.0) * lesson
        return correction

    def forget(self, slots: IntArray) -> None:
        """Clear the rows of ended requests."""
        for rows in (self._surplus, self._information, self._weight, self._taught):
            rows.reset(slots)


def _medians(task: IntArray, deviation: FloatArray) -> FloatArray:
    """[B] median of the deviations of each request's label; the request's own without enough."""
    found = deviation.copy()
    for label in set(task.tolist()) - {-1}:
        own = task == label
        if np.count_nonzero(own) >= _LEAST:
            found[own] = np.median(deviation[own])
    return found
