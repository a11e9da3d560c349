from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_spec.sim.acceptance.confidence import with_confidence
from adaptive_spec.sim.acceptance.data import mean_accepted, steps_of
from adaptive_spec.sim.acceptance.hazard import HazardModel, constant_model, generate
from adaptive_spec.sim.acceptance.imputation import (
    MANY,
    UNKNOWN,
    RecordedSteps,
    impute,
    observed_hazards,
)
from adaptive_spec.sim.acceptance.per_position import read_per_position

from .conftest import GSM8K, INSTRUCTCODER
from .fake_records import data_of, recorded_at, recorded_with


def steps(*by_request, k=3, confidence=None):
    """Requests as lists of accepted drafts, or of (K, accepted)."""
    pairs = [
        pair if isinstance(pair, tuple) else (k, pair) for request in by_request for pair in request
    ]
    accepted = np.array([pair[1] for pair in pairs])
    return RecordedSteps(
        verified=np.array([pair[0] for pair in pairs]),
        accepted=accepted,
        emitted=accepted + 1,
        offsets=np.concatenate([[0], np.cumsum([len(request) for request in by_request])]),
        confidence=None if confidence is None else np.array(confidence, dtype=np.float32),
    )


def imputed(recorded, depth=8, seed=0):
    return impute(recorded, depth, np.random.default_rng(seed))


def as_data(made, depth=8):
    records = [
        made.accepted[a:b].tolist()
        for a, b in zip(made.offsets[:-1], made.offsets[1:], strict=True)
    ]
    return data_of(*records, depth=depth)


def test_inside_a_step_a_fresh_one_accepts_what_was_left():
    assert imputed(steps([2, 0, 1])).accepted.tolist() == [2, 1, 0, 0, 1, 0]


def test_a_fully_accepted_step_joins_the_next_or_ends_by_a_draw():
    recorded = steps([3, 1, 3, 1])
    seen = {tuple(imputed(recorded, seed=seed).accepted[:4].tolist()) for seed in range(40)}
    # The bonus token would have been drafted, and then the next step's run follows; or not.
    assert seen == {(3, 2, 1, 0), (5, 4, 3, 2)}


def test_a_run_does_not_go_on_into_another_request():
    made = imputed(steps([3], [3]), depth=20)
    assert made.accepted[:4].max() <= 4
    assert made.offsets.tolist() == [0, 4, 8]


def test_a_stop_inside_a_step_leaves_only_emitted_tokens():
    cut = RecordedSteps(
        verified=np.array([3]),
        accepted=np.array([3]),
        emitted=np.array([2]),
        offsets=np.array([0, 1]),
    )
    assert imputed(cut).offsets.tolist() == [0, 2]


def test_steps_without_speculation_take_the_first_positions_hazard():
    recorded = steps([(2, 1), (0, 0), (2, 2), (2, 0)] * 400, k=2)
    made = imputed(recorded)
    after_off = made.accepted[2::7]  # tokens: 2, 1, 3, 1; the K = 0 step is the third
    share = (after_off > 0).mean()
    assert share == pytest.approx(2 / 3, abs=0.07)


def copies(positions=60_000):
    """Runs that a look-up copies, between text in which it finds nothing, or what is wrong."""
    random = np.random.default_rng(5)
    accepted, proposed = [], []
    while len(accepted) < positions:
        run = int(random.geometric(0.35)) - 1 if random.random() < 0.5 else 0
        finds = run > 0 or random.random() < 0.3
        accepted += [run - place for place in range(run + 1)]
        proposed += [8] * run + [8 * finds]
    ends = np.minimum(np.array(accepted), np.arange(len(accepted))[::-1])
    data = data_of(np.minimum(ends, 8).tolist())
    return replace(data, proposed=np.array(proposed, dtype=np.uint8))


@pytest.mark.parametrize("asked_for", [3, 8])
def test_what_a_look_up_does_not_find_is_not_drafted(asked_for):
    truth = copies()
    ks, rows, place = (asked_for, asked_for, 0, 1), [], 0
    while place < len(truth.accepted):
        wanted = ks[len(rows) % 4]
        found = int(truth.proposed[place])
        verified = min(wanted, found)
        accepted = min(int(truth.accepted[place]), verified)
        emitted = min(accepted + 1, len(truth.accepted) - place)
        rows.append((verified, accepted, emitted, found if wanted else UNKNOWN))
        place += accepted + 1
    verified, accepted, emitted, found = np.array(rows).T
    found = np.where(found == 8, MANY, found)
    recorded = RecordedSteps(verified, accepted, emitted, np.array([0, len(rows)]), None, found)
    made = imputed(recorded)
    data = replace(as_data(made), proposed=made.proposed)
    for k in (1, asked_for):
        limit = np.minimum(k, truth.proposed)
        wanted = np.minimum(truth.accepted, limit).mean()
        assert np.minimum(data.accepted, np.minimum(k, data.proposed)).mean() == pytest.approx(
            wanted, rel=0.05
        )
    assert (data.proposed > 0).mean() == pytest.approx((truth.proposed > 0).mean(), rel=0.03)


def test_a_recording_without_drafts_is_refused():
    with pytest.raises(ValueError, match="no step verified a draft"):
        imputed(steps([0, 0], k=0))


def test_hazards_of_rarely_seen_positions_come_from_shallower_ones():
    recorded = steps([(2, 2), (2, 1)] * 100 + [(4, 4)])
    hazards, seen = observed_hazards(recorded)
    assert seen.tolist() == [201, 201, 1, 1, 0]
    assert hazards[0] == 1
    assert hazards[1] == pytest.approx(101 / 201)
    assert hazards[2] == hazards[3] == hazards[4] == hazards[1]


requests = st.lists(
    st.lists(
        st.integers(0, 6).flatmap(lambda k: st.tuples(st.just(k), st.integers(0, k))),
        min_size=1,
        max_size=12,
    ),
    min_size=1,
    max_size=6,
).filter(lambda found: any(k for request in found for k, _ in request))


@settings(max_examples=40)
@given(requests, st.integers(0, 1000))
def test_a_replay_at_the_recorded_k_repeats_the_recording(found, seed):
    recorded = steps(*found)
    made = imputed(recorded, depth=40, seed=seed)
    starts = np.concatenate([[0], np.cumsum(recorded.emitted)[:-1]])
    assert np.minimum(made.accepted[starts], recorded.verified).tolist() == (
        recorded.accepted.tolist()
    )
    assert made.offsets[-1] == recorded.emitted.sum()


@settings(max_examples=40)
@given(requests, st.integers(0, 1000))
def test_a_fresh_step_inside_never_accepts_less_than_what_was_left(found, seed):
    recorded = steps(*found)
    made = imputed(recorded, depth=40, seed=seed)
    position = 0
    for accepted in recorded.accepted.tolist():
        for inside in range(accepted + 1):
            assert made.accepted[position + inside] >= accepted - inside
        position += accepted + 1


@settings(max_examples=40)
@given(requests, st.integers(0, 1000))
def test_nothing_is_accepted_past_the_end_of_a_request(found, seed):
    made = imputed(steps(*found), depth=40, seed=seed)
    left = np.repeat(made.offsets[1:], np.diff(made.offsets)) - np.arange(len(made.accepted))
    assert (made.accepted <= left).all()


def test_same_seed_same_imputation():
    recorded = recorded_at(generate(constant_model(0.7), depth=8, seed=1, records=20), 4)
    one, two, other = (imputed(recorded, seed=seed).accepted for seed in (3, 3, 4))
    assert one.tolist() == two.tolist()
    assert one.tolist() != other.tolist()


def test_independent_acceptance_keeps_its_law_at_every_k():
    recorded = recorded_at(generate(constant_model(0.6), depth=12, seed=2, records=400), 4)
    made = as_data(imputed(recorded))
    for k in range(1, 9):
        expected = sum(0.6**draft for draft in range(1, k + 1))
        assert mean_accepted(made, k) == pytest.approx(expected, rel=0.015)


def test_hazards_that_fall_with_depth_are_found_again_at_a_small_k():
    # As of Medusa's heads on MT-Bench: .83, .58, .37, .12.
    heads = HazardModel(
        name="heads", position_logits=tuple(np.log(h / (1 - h)) for h in (0.83, 0.58, 0.37, 0.12))
    )
    real = generate(heads, depth=4, seed=5, records=200)
    made = as_data(imputed(recorded_at(real, 4), depth=4), depth=4)
    for k in (1, 2, 3, 4):
        assert mean_accepted(made, k) == pytest.approx(mean_accepted(real, k), rel=0.02)


def test_confidence_follows_its_token_and_is_else_unknown():
    recorded = steps([2, 3, 0], confidence=[[0.1, 0.2, 0.3], [0.4, 0.5, 0.6], [0.7, 0.8, 0.9]])
    for seed in range(20):
        made = imputed(recorded, depth=5, seed=seed)
        if made.accepted[3] == 3:
            break
    assert made.confidence is not None
    nan = np.nan
    expected = [
        [0.1, 0.2, 0.3, nan, nan],
        [0.2, 0.3, nan, nan, nan],
        [0.3, nan, nan, nan, nan],  # the rejected token is drafted again, and rejected again
        [0.4, 0.5, 0.6, nan, nan],  # all accepted: the bonus token was not drafted
    ]
    np.testing.assert_allclose(made.confidence[:4], expected, rtol=1e-6)
    np.testing.assert_allclose(made.confidence[7], [0.7, 0.8, 0.9, nan, nan], rtol=1e-6)


def test_confidence_goes_on_in_the_next_step_where_the_run_does():
    recorded = steps([3, 1], confidence=[[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]])
    for seed in range(40):
        made = imputed(recorded, depth=7, seed=seed)
        if made.accepted[0] == 5:
            break
    np.testing.assert_allclose(
        made.confidence[0], [0.1, 0.2, 0.3, np.nan, 0.4, 0.5, 0.6], rtol=1e-6
    )


@pytest.mark.parametrize(
    ("file", "name", "bound"),
    [
        (GSM8K, "ngram", {1: 0.012, 2: 0.012, 3: 0.012, 8: 0.012}),
        (INSTRUCTCODER, "ngram", {1: 0.012, 2: 0.013, 3: 0.012, 8: 0.012}),
        (GSM8K, "eagle", {1: 0.055, 2: 0.03, 3: 0.025, 8: 0.015}),
        (INSTRUCTCODER, "eagle", {1: 0.055, 2: 0.03, 3: 0.025, 8: 0.015}),
    ],
)
def test_real_counterfactual_lists_are_recovered_from_a_recording_at_k_5(data, file, name, bound):
    real = read_per_position(data / file, name)
    made = imputed(recorded_at(real, 5), depth=10)
    recovered = replace(real, accepted=made.accepted, offsets=made.offsets, depth=10)
    for k, error in bound.items():
        assert mean_accepted(recovered, k) == pytest.approx(mean_accepted(real, k), rel=error)
    assert steps_of(recovered, 5)[1].sum() == pytest.approx(steps_of(real, 5)[1].sum(), rel=0.005)


@pytest.mark.parametrize("file", [GSM8K, INSTRUCTCODER])
def test_mixed_k_show_that_later_drafts_are_worse_at_the_same_place(data, file):
    """Blocks of 200 steps with another K in a run with K = 3, as mode `shadow` makes them."""
    real = read_per_position(data / file, "eagle")
    drawn = np.random.default_rng(3).choice([1, 2, 4, 5, 7], 100_000)
    recorded = recorded_with(real, lambda place, row: drawn[row // 200] if row // 200 % 4 else 3)
    made = imputed(recorded, depth=10)
    recovered = replace(real, accepted=made.accepted, offsets=made.offsets, depth=10)
    for k in (1, 2, 3, 5, 8):
        assert mean_accepted(recovered, k) == pytest.approx(mean_accepted(real, k), rel=0.02)


def test_drafts_left_out_for_their_confidence_are_accepted_less_often():
    plain = generate(constant_model(0.7), depth=6, seed=3, records=300)
    real = with_confidence(plain, auc=0.85, seed=1)
    assert real.confidence is not None
    # Drafting ends at the first draft that looks doubtful.
    doubtful = np.append(real.confidence < 0.6, np.ones((len(real.accepted), 1), bool), axis=1)
    recorded = recorded_with(real, lambda place, _: int(doubtful[place].argmax()))
    made = as_data(imputed(recorded, depth=6), depth=6)
    for k in (1, 2, 4, 6):
        assert mean_accepted(made, k) == pytest.approx(mean_accepted(real, k), rel=0.03)
