import numpy as np
import pytest

from adaptive_spec.sim.acceptance.data import AcceptanceData


@pytest.fixture
def acceptance() -> AcceptanceData:
    """Three records: two of code (10 and 20 tokens), one of prose (5 tokens, prompt of 70)."""
    return AcceptanceData(
        name="three records",
        source="made up",
        accepted=np.ones(35, dtype=np.uint8),
        offsets=np.array([0, 10, 30, 35]),
        prompt_tokens=np.array([0, 40, 70]),
        labels=("code", "code", "prose"),
        depth=3,
        temperature=0.5,
    )
