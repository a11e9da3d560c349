"""`dspark` sizes and spreads its budget as SGLang's own planner does, on random input.

Needs an environment with SGLang, in which its DSpark planner can be imported.
"""

from __future__ import annotations

import numpy as np
from upstream import upstream_module

from adaptive_spec.sim.baselines.parts.drafts import most_likely, survival_of
from adaptive_spec.sim.baselines.parts.verification_budget import best_budget

schedule = upstream_module("sglang.kernels.ops.speculative.dspark.dspark_schedule")
planner = upstream_module("sglang.srt.speculative.dspark_components.dspark_planner")
rates_module = upstream_module("sglang.srt.speculative.dspark_components.dspark_sps")

KMAX = 5


def test_number_and_choice_of_verified_drafts_are_upstreams() -> None:
    import torch

    random = np.random.default_rng(0)
    settings = planner.DSparkScheduleConfig(gamma=KMAX)
    budgets = []
    for _ in range(300):
        batch = int(random.integers(1, 12))
        confidence = random.random((batch, KMAX)).astype(np.float32)
        survival = np.cumprod(confidence, axis=1)
        sizes = sorted({1, *random.integers(1, batch * (KMAX + 1) + 1, 4).tolist()})
        rates = np.sort(random.uniform(1.0, 101.0, len(sizes)))[::-1]
        table = rates_module.SpsCostTable(
            max_batch_tokens=1000, sample_batch_tokens=sizes, sample_steps_per_sec=rates.tolist()
        )
        theirs = planner.compute_verify_token_budget(
            history_survival_probs=torch.tensor(survival), sps_table=table, cfg=settings
        ).budget
        tokens = batch + np.arange(batch * KMAX + 1)
        seconds = 1.0 / rates[np.searchsorted(sizes, tokens, side="right") - 1]
        full = np.full(batch, KMAX)
        assert best_budget(survival.astype(np.float64), full, seconds) == theirs
        budgets.append(theirs / int(full.sum()))

        # Theirs count the token of the last round along with the drafts.
        lengths = schedule.schedule_verify_lens_topk(
            confidence=torch.tensor(confidence), budget=theirs, cfg=settings
        )
        ours = most_likely(survival_of(confidence.astype(np.float64)), full, theirs)
        assert (ours + 1).tolist() == lengths.tolist()
    assert 0.1 < np.mean(budgets) < 0.9
