from __future__ import annotations

import json

import msgspec
import numpy as np
import pytest

from adaptive_spec.errors import DataError
from adaptive_spec.sim.acceptance.data import (
    AcceptanceData,
    hazards,
    mean_accepted,
    steps_of,
)
from adaptive_spec.sim.acceptance.hazard import (
    SHIPPED,
    HazardModel,
    RegimeChange,
    constant_model,
    generate,
    load_hazard_model,
    shipped_model,
    stationary,
)

from .fake_records import emitted_by_record, step_correlation

STICKY = HazardModel(
    name="sticky",
    position_logits=(0.0, -0.3),
    state_logits=(-2.0, 2.0),
    transitions=((0.95, 0.05), (0.05, 0.95)),
    request_deviation=0.5,
)


@pytest.mark.parametrize("hazard", [0.55, 0.75, 0.82])
@pytest.mark.parametrize("gamma", [1, 3, 5, 7])
def test_constant_hazards_emit_what_leviathans_formula_says(hazard, gamma):
    made = generate(constant_model(hazard), depth=8, seed=7, records=500)
    expected = (1 - hazard ** (gamma + 1)) / (1 - hazard)
    starts, accepted = steps_of(made, gamma)
    emitted = accepted + 1
    error = emitted.std() / np.sqrt(len(starts))
    assert abs(emitted.mean() - expected) < 4 * error
    assert error < 0.02


def test_constant_hazards_are_independent_from_step_to_step():
    found = step_correlation(generate(constant_model(0.8), depth=8, seed=1, records=500), 4)
    assert found.after_all == pytest.approx(0.8**4, abs=0.015)
    assert found.after_none == pytest.approx(0.8**4, abs=0.015)


@pytest.mark.parametrize(("hazard", "accepted"), [(0.0, 0), (1.0, 6)])
def test_hazards_of_nought_and_one_are_certain(hazard, accepted):
    assert set(generate(constant_model(hazard), depth=6, seed=0).accepted) == {accepted}


@pytest.mark.parametrize("hazard", [-0.1, 1.1, float("nan")])
def test_a_constant_hazard_outside_nought_to_one_is_refused(hazard):
    with pytest.raises(DataError, match=r"0\.\.1"):
        constant_model(hazard)


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_models_are_correlated_from_step_to_step(name):
    made = generate(shipped_model(name), depth=8, seed=0)
    found = step_correlation(made, 1)
    assert found.after_all > found.after_none + 0.01


@pytest.mark.parametrize("name", [*SHIPPED, "constant:0.4"])
def test_a_replay_of_a_model_emits_every_token_at_any_k(name):
    made = generate(shipped_model(name), depth=8, seed=0, records=60)
    for k in (0, 1, 8):
        assert emitted_by_record(made, k) == made.lengths.tolist()


def test_good_poor_and_dead_are_in_that_order():
    good, poor, dead = (
        mean_accepted(generate(shipped_model(name), depth=8, seed=0), 4)
        for name in ("good", "poor", "dead")
    )
    assert good > 2
    assert 0.3 < poor < 1
    assert dead < 0.05


def test_acceptance_falls_at_the_output_position_of_the_change():
    made = generate(shipped_model("regime-change"), depth=8, seed=0)
    by_position = (made.accepted > 0).reshape(400, 512).mean(axis=0)
    assert by_position[:256].mean() == pytest.approx(0.8, abs=0.02)
    assert by_position[256:].mean() == pytest.approx(0.1, abs=0.02)


def test_acceptance_falls_at_the_record_of_the_change():
    made = generate(shipped_model("drafter-dies"), depth=8, seed=0)
    first = made.accepted > 0
    change = made.offsets[200]
    assert first[:change].mean() == pytest.approx(0.8, abs=0.02)
    assert first[change:].mean() == pytest.approx(0.1, abs=0.02)


def test_a_change_of_position_and_record_needs_both():
    model = msgspec.structs.replace(
        constant_model(1.0),
        changes=(RegimeChange(logit=-50, from_position=3, from_record=1),),
        output_tokens=(5,),
    )
    model = msgspec.structs.replace(model, position_logits=(40.0,))
    made = generate(model, depth=1, seed=0, records=3)
    assert made.accepted.reshape(3, 5).tolist() == [[1] * 5, [1, 1, 1, 0, 0], [1, 1, 1, 0, 0]]


def test_hazards_rise_along_a_run_because_easy_text_lasts():
    found, _ = hazards(generate(STICKY, depth=8, seed=0).accepted.astype(int), 8)
    assert found[3] > found[0] + 0.1


def rate_variance(data: AcceptanceData) -> float:
    """Variance between records of equal length of the share that accepts the first draft."""
    rates = np.add.reduceat(data.accepted > 0, data.offsets[:-1], dtype=float) / data.lengths
    return float(rates.var())


def test_requests_differ_by_their_deviation():
    alike = msgspec.structs.replace(constant_model(0.5), request_deviation=0.0)
    apart = msgspec.structs.replace(alike, request_deviation=1.0)
    low, high = (rate_variance(generate(m, depth=1, seed=0)) for m in (alike, apart))
    assert low == pytest.approx(0.25 / 512, rel=0.2)
    # The variance of logistic(u), u standard normal, is .0433.
    assert high == pytest.approx(0.0433, rel=0.15)


def test_same_seed_same_data_and_another_seed_other_data():
    one, two, other = (generate(STICKY, depth=4, seed=s, records=300).accepted for s in (1, 1, 2))
    assert one.tobytes() == two.tobytes()
    assert one.tobytes() != other.tobytes()


def test_lengths_may_be_given():
    made = generate(STICKY, depth=4, seed=0, output_tokens=np.array([3, 1, 7]))
    assert made.lengths.tolist() == [3, 1, 7]


def test_a_chain_whose_states_never_meet_starts_in_any():
    assert stationary(((1.0, 0.0), (0.0, 1.0))) == pytest.approx([0.5, 0.5])
    assert stationary(((0.9, 0.1), (0.3, 0.7))) == pytest.approx([0.75, 0.25])


def test_a_saved_model_reads_back_the_same(tmp_path):
    path = tmp_path / "model.json"
    model = shipped_model("regime-change")
    path.write_bytes(msgspec.json.encode(model))
    assert load_hazard_model(path) == model
    assert json.loads(path.read_text())["schema"] == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema": 2}, "schema"),
        ({"kind": "cost"}, "kind"),
        ({"surprise": 1}, "surprise"),
        ({"position_logits": []}, "position_logits"),
        ({"position_logits": [1e9]}, "position_logits"),
        ({"transitions": [[0.5, 0.4], [0.5, 0.5]]}, "sum to 1"),
        ({"transitions": [[1.0]]}, "2 rows of 2"),
        ({"transitions": [[-1, 2], [0.5, 0.5]]}, "transitions"),
        ({"request_deviation": -1}, "request_deviation"),
        ({"output_tokens": [0]}, "output_tokens"),
        ({"changes": [{"logit": 0, "from_position": -1}]}, "from_position"),
    ],
)
def test_a_bad_model_file_names_the_field(tmp_path, change, said):
    path = tmp_path / "model.json"
    path.write_text(json.dumps({**msgspec.to_builtins(STICKY), **change}))
    with pytest.raises(DataError, match=said) as caught:
        load_hazard_model(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_a_model_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(DataError, match="gone"):
        load_hazard_model(tmp_path / "gone.json")


@pytest.mark.parametrize("name", ["best", "constant", "constant:much", "constant:2"])
def test_an_unknown_model_says_what_there_is(name):
    with pytest.raises(DataError, match=r"there are good|0\.8|0\.\.1"):
        shipped_model(name)
