"""New requests begin as those of their label have ended, and no minority of a label decides it."""

import numpy as np
import pytest

from adaptive_spec.policies.acceptance import Acceptance
from adaptive_spec.policies.labels import LAST, MOST_LABELS, Label, Labels


def served(
    belief: Acceptance,
    truth: np.ndarray,
    task: np.ndarray,
    *,
    steps: int = 400,
    length: int = 20,
    k: int = 3,
    seed: int = 0,
) -> None:
    """Requests of these hazards and labels [B], each replaced by one like it after `length`."""
    random, slots = np.random.default_rng(seed), np.arange(len(truth))
    verified = np.full(len(truth), k)
    for step in range(steps):
        belief.begin(slots, task)
        hits = (random.random((len(truth), k)) < truth[:, None]).cumprod(axis=1).sum(axis=1)
        belief.learn(slots, verified, hits, None)
        belief.forget(slots[(step + 7 * slots) % length == 0])


def first_hazard(belief: Acceptance, task: int) -> float:
    """Hazard of the first draft of a new request with this label."""
    slot = np.array([200])
    belief.begin(slot, np.array([task]))
    hazard = float(belief.predict(slot)[0][0, 0])
    belief.forget(slot)
    return hazard


def test_a_label_tells_new_requests_apart_and_one_without_is_as_ever() -> None:
    belief = Acceptance(3)
    served(belief, np.repeat([0.9, 0.3], 8), np.repeat([0, 1], 8))
    good, bad, none, other = (first_hazard(belief, task) for task in (0, 1, -1, 7))
    assert good > 0.82
    assert bad < 0.42
    assert none == other == pytest.approx(float(belief.predict(np.array([99]))[0][0, 0]))


@pytest.mark.parametrize("share", [0.1, 0.2, 0.37, 0.45])
def test_a_minority_does_no_harm_to_those_with_its_label(share: float) -> None:
    """A new request is believed to be at least as good as if there were no labels."""
    wrong = np.arange(11) < round(11 * share)
    truth, label = np.where(wrong, 0.0, 0.8), np.zeros(11, dtype=np.int64)
    labelled, unlabelled = Acceptance(3), Acceptance(3)
    served(labelled, truth, label, steps=600)
    served(unlabelled, truth, label - 1, steps=600)
    assert first_hazard(labelled, 0) >= first_hazard(unlabelled, -1)
    assert first_hazard(labelled, 0) > 0.8 - 0.85 * share


def test_whom_a_majority_has_slandered_is_known_by_its_own_drafts_soon() -> None:
    wrong = np.arange(11) < 7
    truth, label = np.where(wrong, 0.0, 0.8), np.zeros(11, dtype=np.int64)
    belief, slot = Acceptance(3), np.array([200])
    served(belief, truth, label, steps=600)
    assert first_hazard(belief, 0) < 0.5
    belief.begin(slot, np.array([0]))
    for accepted in (1, 3, 2, 3, 3):
        belief.learn(slot, np.array([3]), np.array([accepted]), None)
    assert float(belief.predict(slot)[0][0, 0]) > 0.6


@pytest.mark.parametrize("share", [0.8, 1.0])
def test_a_label_of_which_most_are_wrong_is_known_for_it(share: float) -> None:
    """Beside another label: alone, the positions tell of it."""
    task = np.repeat([0, 1], 10)
    truth = np.where(task == 1, 0.8, np.where(np.arange(20) < round(10 * share), 0.02, 0.8))
    belief = Acceptance(3)
    served(belief, truth, task)
    assert first_hazard(belief, 0) < first_hazard(belief, -1) - 0.15


def test_the_prior_is_bounded_whatever_was_shown() -> None:
    random = np.random.default_rng(0)
    for _ in range(200):
        label, variance = Label(), float(np.exp(random.uniform(-4, 1)))
        count = int(random.integers(1, 60))
        o = np.clip(random.standard_cauchy(count) * 2.0, -4.0, 4.0)
        label.shown.extend(zip(o.tolist(), random.uniform(0.05, 4.0, count).tolist(), strict=True))
        mean, share = label.prior(variance)
        assert abs(mean) <= 4.0
        assert 0.0 < share <= 1.0


def test_requests_that_disagree_say_little() -> None:
    label = Label()
    label.shown.extend([(3.0, 0.2), (-3.0, 0.2)] * 10)
    mean, share = label.prior(1.0)
    assert abs(mean) < 0.5
    assert share == 1.0


def test_what_a_request_shows_does_not_count_its_prior_twice() -> None:
    """Requests of a known label that verify nothing confirm nothing."""
    labels = Labels(0.99)
    known = labels._labels[3] = Label()
    known.shown.extend([(2.0, 0.3)] * 10)
    slots, task = np.array([0, 5]), np.array([3, 3])
    found = labels.begun(slots, task, 1.0)
    assert found is not None
    (mean, share), _ = found[1]
    assert labels.begun(slots, task, 1.0) is None, "they began in the step before"
    decayed, wider = mean * 0.99, 1.0 - 0.99**2 * (1.0 - share)
    labels.ended(slots[:1], np.array([decayed]), np.array([wider]), 1.0)
    assert len(known.shown) == 9
    # An effect at twice the information of its prior shows as much as the prior did.
    seen = 0.5 * wider
    labels.ended(slots[1:], np.array([0.5 * (decayed + 1.0)]), np.array([seen]), 1.0)
    assert known.shown[-1] == pytest.approx((1.0, wider))


def test_a_label_that_gets_no_drafts_is_tried_again() -> None:
    belief = Acceptance(3)
    served(belief, np.repeat([0.9, 0.1], 8), np.repeat([0, 1], 8))
    assert first_hazard(belief, 1) < 0.3
    # Nothing is verified for it any more, and its new requests may be better.
    served(belief, np.full(8, 0.9), np.ones(8, dtype=np.int64), k=0, steps=4 * LAST)
    assert first_hazard(belief, 1) == first_hazard(belief, -1)


def test_labels_without_end_are_forgotten_the_oldest_first() -> None:
    labels, slot = Labels(0.99), np.array([0])
    for number in range(500):
        labels.begun(slot, np.array([number]), 1.0)
        labels.ended(slot, np.array([1.0]), np.array([0.3]), 1.0)
    assert list(labels._labels) == list(range(500 - MOST_LABELS, 500))
