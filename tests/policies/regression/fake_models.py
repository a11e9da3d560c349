"""Small models whose answers are known, and steps to try them on."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from adaptive_spec import StepContext, StepOutcome
from adaptive_spec.policies.regression.model_file import Feature, LogisticHead, RegressionModel
from adaptive_spec.policy import Policy, build_policy
from tests import steps


def regression(**options: Any) -> Policy:
    return build_policy("regression", options, seed=1)


def feature(name: str, low: float = -3.0, high: float = 3.0) -> Feature:
    return Feature(name=name, mean=0.5, scale=2.0, low=low, high=high)


def known_model(**changes: Any) -> RegressionModel:
    """Position hazard .5 throughout; the drafts head believes the confidence."""
    nothing = LogisticHead(features=[], intercepts=[0.0] * 4, weights=[], slopes=[])
    believing = LogisticHead(
        features=[Feature(name="confidence", mean=0.0, scale=1.0, low=-9.0, high=9.0)],
        intercepts=[0.0] * 4,
        weights=[1.0],
        slopes=[0.0],
    )
    fields: dict[str, Any] = {"average": [0.5] * 4, "history": nothing, "drafts": believing}
    return RegressionModel(**(fields | changes))


def written(model: RegressionModel, folder: Path) -> str:
    path = folder / "model.json"
    path.write_bytes(msgspec.json.encode(model))
    return str(path)


def context(batch: int, kmax: int, step: int = 0, **changes: Any) -> StepContext:
    return steps.context(batch, step=step, **({"capability": kmax, "now": 0.01 * step} | changes))


def outcome(of: StepContext, verified: np.ndarray, accepted: np.ndarray) -> StepOutcome:
    tokens = of.batch_size + int(verified.sum())
    return steps.outcome(
        of,
        verified,
        accepted,
        draft_depth=of.capability.max_draft_tokens,
        ragged=False,
        seconds=0.01 + 1e-4 * tokens,
    )
