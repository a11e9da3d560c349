"""Recorded steps as a table: what was verified, what was accepted, and what was known before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from adaptive_spec.step import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Steps:
    """S steps of R requests, those of a request in order. What is unknown is nan.

    Attributes:
        request: [S] 0..R - 1.
        verified: [S] drafts verified, K.
        accepted: [S] 0..verified.
        temperature: [S] of the target.
        context: [S] tokens in the request's KV cache.
        load: [S] requests that decode in the step.
        task: [S] index into `labels`, -1 without one.
        labels: task labels.
        confidence: [S, P] maximum draft probability at each position.
        entropy: [S, P] nats.
    """

    request: IntArray
    verified: IntArray
    accepted: IntArray
    temperature: FloatArray
    context: FloatArray
    load: FloatArray
    task: IntArray
    labels: tuple[str, ...]
    confidence: FloatArray
    entropy: FloatArray

    @property
    def requests(self) -> int:
        """R."""
        return int(self.request.max(initial=-1)) + 1

    def of_requests(self, chosen: IntArray) -> Steps:
        """Return the steps of these requests, numbered anew in the order given."""
        number = np.full(self.requests, -1, dtype=np.int64)
        number[chosen] = np.arange(len(chosen))
        rows = number[self.request] >= 0
        return Steps(
            request=number[self.request[rows]],
            verified=self.verified[rows],
            accepted=self.accepted[rows],
            temperature=self.temperature[rows],
            context=self.context[rows],
            load=self.load[rows],
            task=self.task[rows],
            labels=self.labels,
            confidence=self.confidence[rows],
            entropy=self.entropy[rows],
        )


def joined(parts: Sequence[Steps]) -> Steps:
    """All steps of several tables; requests are numbered on."""
    width = max(part.confidence.shape[1] for part in parts)
    labels: list[str] = []
    requests, tasks = [], []
    first = 0
    for part in parts:
        requests.append(part.request + first)
        first += part.requests
        number = []
        for label in part.labels:
            if label not in labels:
                labels.append(label)
            number.append(labels.index(label))
        tasks.append(np.array([*number, -1], dtype=np.int64)[part.task])
    return Steps(
        request=np.concatenate(requests),
        verified=np.concatenate([part.verified for part in parts]),
        accepted=np.concatenate([part.accepted for part in parts]),
        temperature=np.concatenate([part.temperature for part in parts]),
        context=np.concatenate([part.context for part in parts]),
        load=np.concatenate([part.load for part in parts]),
        task=np.concatenate(tasks),
        labels=tuple(labels),
        confidence=np.concatenate([_widened(part.confidence, width) for part in parts]),
        entropy=np.concatenate([_widened(part.entropy, width) for part in parts]),
    )


def _widened(signal: FloatArray, width: int) -> FloatArray:
    missing = width - signal.shape[1]
    return np.pad(signal, ((0, 0), (0, missing)), constant_values=np.nan)
