"""The level that CUDA graphs give, on a real engine: one K per batch, out of the ladder."""

from typing import Any

import pytest
from engines import RANDOM, check_same

from adaptive_spec.adapters.vllm import graph_ladder, varlen_graphs
from adaptive_spec.step import Level

pytestmark = pytest.mark.engine


@pytest.fixture
def as_with_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    from adaptive_spec.adapters.vllm import capability

    monkeypatch.setattr(capability, "_graphs_at_all", lambda _: True)
    monkeypatch.setattr(varlen_graphs, "has_full_decode_graphs", lambda _: True)
    monkeypatch.setattr(graph_ladder, "can_capture", lambda _: True)
    monkeypatch.setattr(graph_ladder, "capture_sizes", lambda *_: [])


def test_one_k_per_batch_out_of_the_ladder_and_the_users_own_when_we_fail(
    as_with_graphs: None, reference: dict[str, Any], shelf: Any
) -> None:
    from recording import record_steps, stop_recording
    from scenarios import SCENARIOS
    from switchable_policies import RaisingPolicy, UniformPolicy

    schedule = [(1, 3, 4), (4, 12, 1)]
    engine = shelf.get(
        "draft_model",
        adaptive=RANDOM,
        speculation={"num_speculative_tokens_per_batch_size": schedule},
    )
    try:
        controller = engine.controller
        assert controller.capability.level is Level.UNIFORM
        assert controller.capability.ladder == (0, 1, 3, 4)
        assert engine.scheduler.dynamic_sd_lookup == [0, *[4] * 3, *[1] * 9]
        controller.policy = UniformPolicy()
        record = record_steps(engine)
        answers = engine.run(SCENARIOS["crowded"]())
        stop_recording(engine)
        check_same(answers, reference["crowded"])
        assert controller.counters.failures == {}
        outcomes = [outcome for _, _, outcome in record if outcome is not None]
        ragged = [outcome.step for outcome in outcomes if outcome.ragged]
        # A lone request that stops among its drafts counts fewer of them than the batch's K.
        assert {int(outcome.verified.max(initial=0)) for outcome in outcomes} >= {0, 1, 3, 4}
        assert {plan.draft_depth for _, plan, _ in record} <= {0, 1, 3, 4}
        # Only where a request has no drafts yet: it comes back from a preemption.
        assert len(ragged) < 0.1 * len(outcomes), ragged

        controller.policy = RaisingPolicy()
        record = record_steps(engine)
        engine.run(SCENARIOS["with_logprobs"]())  # one request to begin with, then four
        stop_recording(engine)
        depths = {outcome.draft_depth for _, _, outcome in record if outcome is not None}
        assert depths == {1, 4}
    finally:
        shelf.clear()
