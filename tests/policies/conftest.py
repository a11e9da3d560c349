"""Kernels in either form."""

from collections.abc import Iterator

import pytest

from adaptive_spec.policies.kernels import load_kernels, numba_available, select_kernel


@pytest.fixture(
    params=[
        "numpy",
        pytest.param("numba", marks=pytest.mark.skipif(not numba_available(), reason="no numba")),
    ]
)
def each_form(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run the test with the kernels in numpy, and again with them compiled."""
    select_kernel(request.param)
    load_kernels()
    yield
    select_kernel("numpy")


@pytest.fixture(scope="session")
def needs_numba() -> None:
    """Skip where numba is not installed."""
    if not numba_available():
        pytest.skip("numba is not installed")
