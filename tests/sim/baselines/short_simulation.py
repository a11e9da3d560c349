"""A short simulation of four requests on the shipped H100 profile, for one K per batch."""

from __future__ import annotations

from adaptive_spec.policy import Policy
from adaptive_spec.sim.engine.options import EngineOptions
from adaptive_spec.sim.scenario import Scenario


def simulated_mean_k(
    policy: Policy,
    model: str,
    *,
    tokens: int = 8000,
    warmup_steps: int = 150,
    auc: float | None = None,
) -> float:
    """Mean K with a drafter such as ``good`` or ``dead``; a plan that can't run fails the test."""
    scenario = Scenario(
        load="closed:4",
        acceptance=(f"model:{model}",),
        drafter="eagle",
        hardware="h100-llama-8b",
        engine=EngineOptions(max_draft_tokens=5),
        tokens=tokens,
        warmup_steps=warmup_steps,
        confidence_auc=auc,
    )
    result = scenario.run(policy, policy.name)
    assert result.fail_opens == 0
    return result.mean_k
