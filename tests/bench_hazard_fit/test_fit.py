from __future__ import annotations

import msgspec
import numpy as np
import pytest

from adaptive_spec.sim.acceptance.data import mean_accepted
from adaptive_spec.sim.acceptance.hazard import (
    constant_model,
    generate,
    load_hazard_model,
)
from adaptive_spec.sim.acceptance.models import shipped_model
from benchmarks.hazard_fit.fit import between_request_variance, fit_hazard_model
from benchmarks.hazard_fit.hidden_markov import fit_hidden_markov
from tests.sim.acceptance.fake_records import step_correlation


def test_a_hidden_chain_is_found_again():
    random = np.random.default_rng(0)
    chances, stay = np.array([0.1, 0.9]), 0.92
    sequences = []
    for _ in range(150):
        state = int(random.integers(2))
        sequence = []
        for _ in range(200):
            sequence.append(random.random() < chances[state])
            state = state if random.random() < stay else 1 - state
        sequences.append(np.array(sequence))
    found = fit_hidden_markov(sequences, states=2, iterations=40)
    assert found.chances == pytest.approx(chances, abs=0.02)
    assert np.diag(found.transitions) == pytest.approx([stay, stay], abs=0.015)


def test_more_iterations_never_fit_worse():
    sequences = [
        (generate(shipped_model("mixed"), depth=1, seed=s, records=1).accepted > 0)
        for s in range(20)
    ]
    fits = [fit_hidden_markov(sequences, states=3, iterations=n) for n in (1, 5, 20)]
    likelihoods = [fit.log_likelihood for fit in fits]
    assert likelihoods == sorted(likelihoods)


@pytest.mark.parametrize("name", ["mixed", "good"])
def test_a_model_fitted_to_a_model_generates_alike(name):
    real = generate(shipped_model(name), depth=8, seed=3, records=150)
    model = fit_hazard_model(real, iterations=30)
    made = generate(model, depth=8, seed=9, output_tokens=np.tile(real.lengths, 6))
    for k in (1, 3, 8):
        assert mean_accepted(made, k) == pytest.approx(mean_accepted(real, k), rel=0.06)
    assert step_correlation(made, 2).after_all == pytest.approx(
        step_correlation(real, 2).after_all, abs=0.04
    )
    assert step_correlation(made, 2).after_none == pytest.approx(
        step_correlation(real, 2).after_none, abs=0.04
    )
    assert between_request_variance(made) == pytest.approx(between_request_variance(real), rel=0.35)


def test_independent_acceptance_is_fitted_as_nearly_independent():
    real = generate(constant_model(0.7), depth=6, seed=0, records=60)
    made = generate(fit_hazard_model(real, iterations=20), depth=6, seed=1, records=100)
    found = step_correlation(made, 2)
    assert found.after_all == pytest.approx(0.49, abs=0.03)
    assert found.after_none == pytest.approx(0.49, abs=0.03)


def test_same_data_same_model_and_it_survives_a_file(tmp_path):
    real = generate(shipped_model("poor"), depth=4, seed=0, records=20)
    one, two = (fit_hazard_model(real, iterations=5, name="mine") for _ in range(2))
    assert one == two
    assert one.name == "mine"
    (tmp_path / "mine.json").write_bytes(msgspec.json.encode(one))
    assert load_hazard_model(tmp_path / "mine.json") == one


def test_a_fit_of_nothing_accepted_accepts_nothing():
    real = generate(constant_model(0.0), depth=4, seed=0, records=5)
    made = generate(fit_hazard_model(real, iterations=5), depth=4, seed=0, records=5)
    assert made.accepted.mean() < 0.01


def test_the_number_of_states_is_checked():
    with pytest.raises(ValueError, match=r"1\.\.4"):
        fit_hazard_model(generate(constant_model(0.5), depth=2, seed=0, records=2), states=5)
