"""Kernels compiled where numba is: these tests simulate thousands of steps."""

from collections.abc import Iterator

import pytest

from adaptive_spec.policies.kernels import load_kernels, select_kernel
from adaptive_spec.policies.two_beliefs import policy


@pytest.fixture(autouse=True)
def _compiled() -> Iterator[None]:
    assert policy.SCHEMA  # its kernels are declared
    select_kernel("auto")
    load_kernels()
    yield
    select_kernel("numpy")
