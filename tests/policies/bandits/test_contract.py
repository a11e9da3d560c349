"""Every bandit, in both forms, keeps the contract of a policy."""

from __future__ import annotations

import pytest

from adaptive_spec import Level, check_policy
from tests.policies.bandits.bandits import FORMS, bandit


@pytest.mark.parametrize(("name", "cascade"), FORMS)
def test_a_bandit_keeps_the_contract(name: str, cascade: bool) -> None:
    # All levels of installed policies are checked with the others; the plain form runs the same
    # plans at every level.
    level = Level.VERIFY if cascade else Level.FULL
    check_policy(lambda seed: bandit(name, seed, cascade=cascade), levels=[level])


def test_thompson_keeps_the_contract_with_known_probabilities() -> None:
    check_policy(
        lambda seed: bandit("thompson", seed, uniform_fraction=0.2), levels=[Level.UNIFORM]
    )
