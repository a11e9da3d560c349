"""A request is not a stranger: its slow effect begins as those with its task label have ended.

A request that has ended shows its slow effect as o, with variance r. Of the last `LAST` with a
label, each counts as far as it agrees with their median,

    a_i = min(1, (REACH^2 + 2 r_i) / (o_i - median)^2)^2;

m is their mean, s their variance beyond r, A = 2 mean(a) - 1 or 0. With probability A a new request
is as these, and else a stranger, N(0, V):

    mean = A m,    variance = A s + (1 - A) (V + A m^2) + the variance of m,    at most V.

Any client can send any label. A minority unlike the others moves m little, and lowers A.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from adaptive_spec.per_request import floats, integers
from adaptive_spec.step import FloatArray, IntArray

LAST = 32
"""Requests of a label that are remembered."""
FEWEST = LAST // 8
"""Requests of a label below which nothing is said."""
REACH = 1.0
"""Distance from the median that counts fully (logits)."""
MOST_LABELS = 4 * LAST
"""Labels that are remembered; beyond them the one that was used longest ago is forgotten."""
LARGEST = 4.0 * REACH
"""Largest |o| (logits)."""
MOST_NOISE = LARGEST
"""Variance r (logits^2) beyond which a request has shown nothing."""


class Label:
    """The last requests of a label: o and r of each."""

    def __init__(self) -> None:
        self.shown: deque[tuple[float, float]] = deque(maxlen=LAST)
        self.changed, self._prior = True, (0.0, 1.0)

    def prior(self, variance: float) -> tuple[float, float]:
        """Return the mean of a new request's effect, and its variance as a share of V."""
        if len(self.shown) < FEWEST:
            return 0.0, 1.0
        if self.changed:
            self.changed = False
            o, r = np.array(self.shown).T
            reach = REACH**2 + 2.0 * r
            agree = (reach / np.maximum((o - np.median(o)) ** 2, reach)) ** 2
            weight = agree / (r + variance)
            total, a = float(weight.sum()), max(2.0 * float(agree.mean()) - 1.0, 0.0)
            m = float((weight * o).sum()) / total
            s = max(float((weight * ((o - m) ** 2 - r)).sum()) / total, 0.1 * variance)
            spread = a * s + (1.0 - a) * (variance + a * m * m) + 1.0 / total
            self._prior = a * m, min(spread / variance, 1.0)
        return self._prior


class Labels:
    """Keep what each label has shown, and how its requests at hand began.

    Args:
        kept: share of a slow effect that a step leaves.
    """

    def __init__(self, kept: float) -> None:
        self._kept, self._steps = kept, 0
        self._labels: dict[int, Label] = {}
        self._task, self._began, self._prior = integers(-1), integers(0), floats(0.0, 2)

    @property
    def used(self) -> bool:
        """Return whether any request had a label."""
        return self._steps > 0

    def begun(
        self, slots: IntArray, task: IntArray, variance: float
    ) -> tuple[IntArray, FloatArray] | None:
        """Return the slots [N] of requests in their first step, and their prior [N, 2].

        That is the mean of the effect and its variance as a share of V; None without any.

        Args:
            slots: [B]
            task: [B] numbers of labels, -1 without one.
            variance: V.
        """
        self._steps += 1
        new = self._task[slots] != task
        if not new.any():
            return None
        slots, task = slots[new], task[new]
        known = (self._labels.get(each) for each in task.tolist())
        prior = np.array([(0.0, 1.0) if each is None else each.prior(variance) for each in known])
        self._task[slots], self._began[slots], self._prior[slots] = task, self._steps, prior
        return slots, prior

    def ended(self, slots: IntArray, effect: FloatArray, left: FloatArray, variance: float) -> None:
        """Learn from requests that have ended: slow effects, and share of V that is left, [N]."""
        if not (labelled := self._task[slots] >= 0).any():
            return
        slots, effect, left = slots[labelled], effect[labelled], left[labelled]
        kept = self._kept ** (self._steps - self._began[slots])
        mean, share = self._prior[slots].T
        # Take out the prior as it would be by now, had the request shown nothing.
        alone, left = 1.0 - kept * kept * (1.0 - share), np.maximum(left, 1e-3)
        shown = np.maximum(1.0 / left - 1.0 / alone, 1e-9) / variance
        o = np.clip((effect / left - kept * mean / alone) / (variance * shown), -LARGEST, LARGEST)
        task = self._task[slots].tolist()
        for number, each, r in zip(task, o.tolist(), (1.0 / shown).tolist(), strict=True):
            label = self._labels.pop(number, None) or Label()
            self._labels[number], label.changed = label, True  # the last used is the last
            if r < MOST_NOISE:
                label.shown.append((each, r))
            elif label.shown:  # else a label that gets no drafts would never be tried again
                label.shown.popleft()
            if len(self._labels) > MOST_LABELS:
                del self._labels[next(iter(self._labels))]
        self._task.reset(slots)
