"""Task labels whose first drafts are accepted less often than before."""

import logging
from types import SimpleNamespace

import numpy as np
import pytest

from adaptive_spec.operation.label_drift import LabelDrift

BATCH, ROUNDS = 32, 16


class Traffic:
    """Requests of two labels in turn, each with an acceptance of its own."""

    def __init__(self) -> None:
        self.drift = LabelDrift({0: "chat", 1: "code"}, logging.getLogger("tests.drift"))
        self.random = np.random.default_rng(0)
        self.served = 0

    def serve(
        self, requests: int, chat: float, code: float, labels: tuple[int, ...] = (0, 1)
    ) -> None:
        slots, task = np.arange(BATCH), np.resize(labels, BATCH)
        mean = np.where(task == 0, chat, code)
        for _ in range(requests // BATCH):
            rate = self.random.beta(8 * mean, 8 * (1 - mean))
            accepted = (self.random.random((ROUNDS, BATCH)) < rate).astype(np.int64)
            steps = [
                SimpleNamespace(
                    context=SimpleNamespace(task=task),
                    outcome=SimpleNamespace(slots=slots, verified=np.full(BATCH, 3), accepted=each),
                )
                for each in accepted
            ]
            self.drift.ending(slots)
            self.drift.finished(steps)
            self.served += BATCH


def test_ordinary_requests_are_no_drift_and_a_label_that_falls_is_named_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    traffic = Traffic()
    traffic.serve(40_000, chat=0.5, code=0.8)
    assert traffic.drift.events() == {}
    with caplog.at_level(logging.WARNING, logger="tests.drift"):
        traffic.serve(6_000, chat=0.5, code=0.6)
    assert traffic.drift.events() == {"label_acceptance_drifted": 1}
    assert list(traffic.drift.latest) == ["code"]
    before, now = traffic.drift.latest["code"]
    assert before == pytest.approx(0.8, abs=0.02)
    assert now < 0.68
    [line] = caplog.messages
    assert "'code'" in line


def test_a_change_of_the_mix_of_labels_is_no_drift() -> None:
    traffic = Traffic()
    traffic.serve(10_000, chat=0.4, code=0.8)
    traffic.serve(4_000, chat=0.4, code=0.8, labels=(0,))
    assert traffic.drift.events() == {}


def test_labels_that_clients_make_up_are_forgotten() -> None:
    traffic = Traffic()
    for number in range(300):
        traffic.serve(BATCH, chat=0.4, code=0.8, labels=(10 + number,))
    assert len(traffic.drift._sums) == 64
