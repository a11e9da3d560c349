"""Requests that opted out of speculation have no vote in what the others' drafts are worth."""

from __future__ import annotations

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from adaptive_spec.policies.planning.step_forecast import StepForecast, forecast_step
from adaptive_spec.step import Capability, IntArray, Level, StepContext
from tests import steps
from tests.policies.optional.test_tpot_targets import costs

KMAX = 6


def planned(
    context: StepContext,
    survival: np.ndarray,
    times: tuple[np.ndarray, np.ndarray],
    rows: IntArray | None = None,
) -> StepForecast:
    """The forecast of these rows alone, with the step times of the whole batch."""
    if rows is None:
        return forecast_step(context, survival, *times)
    arrays = {
        name: getattr(context, name)[rows]
        for name in ("slots", "draft_available", "draft_possible", "context_tokens", "tpot_target")
    }
    ids = [context.request_ids[row] for row in rows]
    alone = msgspec.structs.replace(context, request_ids=ids, opted_out=None, **arrays)
    verify, drafting = times
    return forecast_step(
        alone, np.ascontiguousarray(survival[:, rows]), verify[: len(rows) * KMAX + 1], drafting
    )


@given(
    seed=st.integers(0, 2**32 - 1),
    batch=st.integers(2, 24),
    level=st.sampled_from(list(Level)),
    ladder=st.sampled_from([(0, 2, 6), (0, 1, 2, 3, 4, 5, 6)]),
)
def test_others_are_planned_for_as_if_opted_out_requests_were_absent(
    seed: int, batch: int, level: Level, ladder: tuple[int, ...]
) -> None:
    random = np.random.default_rng(seed)
    opted_out = random.random(batch) < 0.4
    opted_out[random.integers(batch)] = False
    possible = np.where(opted_out, 0, random.integers(0, KMAX + 1, batch))
    context = steps.context(
        batch,
        Capability(
            level=level,
            max_draft_tokens=KMAX,
            ladder=ladder if level is Level.UNIFORM else (),
            depth_follows=level is not Level.VERIFY,
            cold_off=True,
        ),
        step=1,
        context_tokens=50,
        draft_available=np.minimum(possible, random.integers(0, KMAX + 1)),
        draft_possible=possible,
        opted_out=opted_out,
    )
    survival = np.cumprod(random.uniform(0.01, 0.99, (KMAX, batch)), axis=0)
    times = costs(random, batch, KMAX)
    whole = planned(context, survival, times)
    rows = np.flatnonzero(~opted_out)
    alone = planned(context, survival, times, rows)
    assert whole.best.verify[rows].tolist() == alone.best.verify.tolist()
    assert not whole.best.verify[opted_out].any()
    assert whole.best.draft_depth == alone.best.draft_depth
    assert np.isclose(whole.of_none, alone.of_none)
    assert np.allclose(whole.best_uniform(), alone.best_uniform())
    out = batch - len(rows)
    assert np.isclose(whole.best_tokens, alone.best_tokens + out)
    assert np.isclose(whole.counted(whole.best_tokens) / batch, alone.best_tokens / len(rows))
