"""Kernels are compiled before the first test, whose time would count as a decision's."""

import pytest

from adaptive_spec.policies import goodput


@pytest.fixture(autouse=True, scope="session")
def _compiled() -> None:
    goodput.load_kernels()
