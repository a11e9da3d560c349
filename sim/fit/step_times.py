"""A cost profile from recorded step times, by the same model that learns them in a server."""

from __future__ import annotations

import msgspec
import numpy as np

from adaptive_spec.policies.step_time.model import CostModel
from adaptive_spec.policies.step_time.profile import CostProfile
from adaptive_spec.step import Capability, Level, StepOutcome

_FEWEST_STEPS = 60


def fit_step_times(
    outcomes: list[StepOutcome], *, source: str
) -> tuple[CostProfile | None, float | None]:
    """The profile, and the median relative error of predictions made before each step was seen.

    The error is over the second half of the steps. None, None with fewer than 60 steps.
    """
    usable = [each for each in outcomes if each.seconds > 0.0 and each.batch_size]
    if len(usable) < _FEWEST_STEPS:
        return None, None
    deepest = max(
        max(each.draft_depth, -(-each.batch_tokens // each.batch_size) - 1) for each in usable
    )
    model = CostModel(Capability(level=Level.FULL, max_draft_tokens=max(deepest, 1)))
    errors = []
    for number, outcome in enumerate(usable):
        if 2 * number >= len(usable):
            errors.append(abs(model.predict(outcome) / outcome.seconds - 1.0))
        model.learn(outcome)
    profile = model.profile()
    assert profile is not None
    profile = msgspec.structs.replace(
        profile, name="fitted", source=f"{len(usable)} recorded steps of {source}"
    )
    return profile, round(float(np.median(errors)), 5)
