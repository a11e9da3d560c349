"""Every bandit keeps the contract of a policy in its plain form, too.

The cascade form, the default, is checked with all other installed policies.
"""

from __future__ import annotations

import pytest

from adaptive_spec import Level, check_policy
from tests.policies.bandits.bandits import PATHS, bandit


@pytest.mark.parametrize("name", PATHS)
def test_the_plain_form_keeps_the_contract(name: str) -> None:
    # Both forms run the same plans at the other levels.
    check_policy(lambda seed: bandit(name, seed, cascade=False), levels=[Level.FULL])


def test_thompson_keeps_the_contract_with_known_probabilities() -> None:
    check_policy(
        lambda seed: bandit("thompson", seed, uniform_fraction=0.2), levels=[Level.UNIFORM]
    )
