"""Planned policies that run nothing but what the planner wants."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from adaptive_spec.policies.planning.exploration import Explored, Exploring
from adaptive_spec.policies.planning.step_forecast import StepForecast
from adaptive_spec.step import IntArray


def _as_planned(_: Exploring, forecast: StepForecast, verify: IntArray, depth: int) -> Explored:
    return Explored(verify, depth)


@contextmanager
def without_exploration() -> Iterator[None]:
    """Nothing is tried."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Exploring, "extended", _as_planned)
        patch.setattr(Exploring, "measured", lambda *_: None)
        yield
