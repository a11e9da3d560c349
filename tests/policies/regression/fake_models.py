"""Small models whose answers are known, and steps to try them on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from adaptive_spec import Capability, Level, StepContext, StepOutcome
from adaptive_spec.policies.regression.model_file import (
    Feature,
    LogisticHead,
    RegressionModel,
)
from adaptive_spec.policy import Policy, build_policy


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
    fields: dict[str, Any] = {
        "step": step,
        "capability": Capability(level=Level.FULL, max_draft_tokens=kmax),
        "request_ids": [f"r{i}" for i in range(batch)],
        "slots": np.arange(batch, dtype=np.int64),
        "context_tokens": np.full(batch, 100, dtype=np.int64),
        "draft_available": np.full(batch, kmax, dtype=np.int64),
        "draft_possible": np.full(batch, kmax, dtype=np.int64),
        "engine_k": kmax,
        "tpot_target": np.full(batch, np.inf),
        "task": np.full(batch, -1, dtype=np.int64),
        "temperature": np.zeros(batch),
        "now": 0.01 * step,
    }
    return StepContext(**(fields | changes))


def outcome(of: StepContext, verified: np.ndarray, accepted: np.ndarray) -> StepOutcome:
    tokens = of.batch_size + int(verified.sum())
    return StepOutcome(
        step=of.step,
        slots=of.slots,
        verified=verified,
        accepted=accepted,
        emitted=accepted + 1,
        batch_size=of.batch_size,
        batch_tokens=tokens,
        context_tokens=int(of.context_tokens.sum()),
        prefill_tokens=0,
        draft_depth=of.capability.max_draft_tokens,
        ragged=False,
        seconds=0.01 + 1e-4 * tokens,
        now=of.now,
    )
