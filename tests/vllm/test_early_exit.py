"""The draft loop of model runner V1 ends when no request is worth another pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from engines import KMAX, Job
from recording import record_steps, stop_recording
from scenarios import SCENARIOS, prompts
from stopping_policies import RANDOM, RaisingStopper, RandomStopper, StoppingPolicy, shown

from adaptive_spec import check_adapter

PROBABILISTIC = {"draft_sample_method": "probabilistic"}


def few(count: int = 4, **options: Any) -> list[Job]:
    return [
        Job(f"few-{index}", prompt, 0, {"max_tokens": 40} | options)
        for index, prompt in enumerate(prompts(count, 21))
    ]


def passes_per_round(engine: Any, jobs: list[Job]) -> tuple[list[int], list[int], dict[str, Any]]:
    """Passes planned and passes run of each step that decoded, and the answers."""
    record = record_steps(engine)
    answers = engine.run(jobs)
    stop_recording(engine)
    ran = [(plan.draft_depth, outcome.draft_depth) for _, plan, outcome in record if outcome]
    return [one for one, _ in ran], [other for _, other in ran], answers


@pytest.fixture(params=["draft_model", "eagle"])
def random_stops(request: pytest.FixtureRequest, reference: dict[str, Any], shelf: Any) -> Any:
    return shelf.get(request.param, adaptive=RANDOM)


@pytest.fixture
def engine(reference: dict[str, Any], shelf: Any) -> Any:
    """draft_model; the policy can be exchanged, and what a test has broken is put back."""
    engine = shelf.get("draft_model", adaptive=RANDOM)
    controller, driver = engine.controller, engine.scheduler.adaptive_spec
    policy, mode, capability = controller.policy, controller.mode, driver._builder._capability
    yield engine
    controller.policy, controller.mode, driver._builder._capability = policy, mode, capability
    driver._exit.able = True
    controller.counters.__init__()
    faults = controller._faults
    faults.__init__(controller.config.fail_open, controller.counters, faults._log)


@pytest.mark.engine
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_tokens_are_those_without_speculation_whenever_the_loop_ends(
    random_stops: Any, reference: dict[str, Any], scenario: str
) -> None:
    engine = random_stops
    assert engine.controller.capability.stops_drafting
    record = record_steps(engine)
    answers = engine.run(SCENARIOS[scenario]())
    stop_recording(engine)
    for name, expected in reference[scenario].items():
        if not name.startswith("leave-"):
            assert answers[name].tokens == expected.tokens, name
            assert answers[name].reasons == expected.reasons, name
    ended = [o for _, plan, o in record if o is not None and o.draft_depth < plan.draft_depth]
    assert ended, "each loop ran to its end"
    assert any(np.ptp(plan.verify) > 0 for _, plan, o in record if o is not None)
    assert engine.controller.counters.failures == {}
    check_adapter(record, live_requests=len(engine.controller.slots))
    assert len(engine.controller.slots) == 0


@pytest.mark.engine
def test_no_pass_runs_that_no_request_wants(engine: Any) -> None:
    policy = engine.controller.policy = StoppingPolicy()
    rounds, passes = {}, {}
    for keeps in (KMAX, 2, 1):
        policy.keeps = keeps
        before, steps = engine.drafter_passes, engine.controller.counters.steps
        planned, ran, answers = passes_per_round(engine, few(1))
        passes[keeps] = engine.drafter_passes - before
        rounds[keeps] = engine.controller.counters.steps - steps
        assert set(planned) == {KMAX}
        assert set(ran) <= set(range(1, keeps + 1)), "what ran is what is reported"
        # The first verifies what the end of the prompt has drafted.
        assert max(answers["few-0"].metrics[0].per_step_drafted[1:]) == keeps
    # The round that ends the prompt is drafted in full; so is none of the others.
    assert passes[1] <= rounds[1] + KMAX - 1
    assert passes[2] <= 2 * rounds[2] + KMAX - 2
    assert passes[KMAX] > 3 * rounds[KMAX]


@pytest.mark.engine
def test_the_loop_goes_on_as_long_as_one_request_wants_it_and_keeps_each_ones_share(
    engine: Any,
) -> None:
    wanted = {0: 1, 1: 3}  # by place in the batch: two requests that arrive together

    class ByPlace(StoppingPolicy):
        def after_draft_pass(self, draft: Any) -> Any:
            self.keeps = np.array([wanted[place] for place in range(len(draft.slots))])
            return super().after_draft_pass(draft)

    engine.controller.policy = ByPlace()
    record = record_steps(engine)
    engine.run(few(2))
    stop_recording(engine)
    both = [
        (context, outcome)
        for context, _, outcome in record
        if outcome is not None and context.batch_size == 2 and (context.draft_possible > 3).all()
    ]
    assert len(both) > 5
    for context, outcome in both[1:]:  # the first verifies what the prompts' ends have drafted
        assert context.draft_available.tolist() == [1, 3]
        assert outcome.draft_depth == 3
        assert (~np.isnan(context.confidence)).sum(axis=1).tolist() == [1, 3]


@pytest.mark.engine
def test_a_request_that_can_use_no_more_holds_up_nobody(engine: Any) -> None:
    engine.controller.policy = policy = StoppingPolicy()
    policy.keeps = KMAX
    capped = few(1, extra_args={"adaptive_spec_k_cap": 1})
    _, ran, answers = passes_per_round(engine, capped)
    assert set(ran) == {1}
    assert max(answers["few-0"].metrics[0].per_step_drafted) == 1


@pytest.mark.engine
def test_what_is_not_drafted_for_any_more_is_shown_to_nobody(engine: Any) -> None:
    policy = engine.controller.policy = RandomStopper(seed=3)
    engine.run(few(4))
    assert len(policy.asked) > 20
    still = {}
    for draft in policy.asked:
        if draft.position == 0:
            still = dict.fromkeys(draft.slots.tolist(), 0)
        for row, slot in enumerate(draft.slots.tolist()):
            still[slot] += bool(draft.drafting[row])
            assert shown(draft)[row].sum() == still[slot]
            assert shown(draft)[row, : still[slot]].all()


@pytest.mark.engine
@pytest.mark.parametrize("method", ["draft_model", "eagle"])
def test_the_drafter_drafts_the_same_after_a_shortened_loop(
    reference: dict[str, Any], shelf: Any, method: str
) -> None:
    """What it drafts behind a text is what it drafts there when every loop runs to its end."""
    drafted: list[dict[tuple[str, int], list[int]]] = []
    for policy in (StoppingPolicy(), RandomStopper(seed=9)):
        engine = shelf.get(method, adaptive=RANDOM)
        engine.controller.policy = policy
        if type(policy) is StoppingPolicy:
            policy.keeps = KMAX
        seen: dict[tuple[str, int], list[int]] = {}

        def note(_: int, seen: dict[Any, Any] = seen, engine: Any = engine) -> None:
            for request in engine.scheduler.running:
                if request.spec_token_ids:
                    name = request.request_id.rpartition("-")[0]
                    seen[name, request.num_tokens] = list(request.spec_token_ids)

        engine.run(few(6, max_tokens=96), note)
        drafted.append(seen)
    whole, shortened = drafted
    both = whole.keys() & shortened.keys()
    assert len(both) > 60
    assert len({len(shortened[place]) for place in both}) == KMAX
    same = [whole[place][: len(shortened[place])] == shortened[place] for place in both]
    assert np.mean(same) > 0.98, "rounding may turn a tie"


@pytest.mark.engine
def test_distributions_are_those_of_the_drafts_that_were_made(shelf: Any) -> None:
    engine = shelf.get("draft_model", adaptive=RANDOM, speculation=PROBABILISTIC)
    import torch

    ran: list[int] = []
    shown: list[Any] = []
    drafter = engine.runner.drafter
    own = drafter.model.compute_logits

    def compute_logits(*args: Any, **kwargs: Any) -> Any:
        shown.append(own(*args, **kwargs).clone())
        return shown[-1].clone()

    drafter.model.compute_logits = compute_logits

    def check(_: int) -> None:
        passes = shown[:]
        shown.clear()
        assert len(engine.scheduler.adaptive_spec._pending) == 0, "synchronous"
        q = drafter.take_last_draft_probs()
        tokens = engine.runner._draft_token_ids
        if q is None or not len(tokens):
            return
        assert q.shape[:2] == tokens.shape
        assert q.is_contiguous()
        np.testing.assert_allclose(q.sum(dim=-1).numpy(), 1.0, atol=1e-4)
        assert len(passes) == tokens.shape[1]
        for position, logits in enumerate(passes):
            expected = torch.softmax(logits.double() / 0.8, dim=-1)
            np.testing.assert_allclose(q[:, position].double(), expected, atol=1e-5)
        ran.append(tokens.shape[1])

    engine.run(few(4, temperature=0.8), check)
    drafter.model.compute_logits = own
    assert set(range(1, KMAX + 1)) <= set(ran)
    assert engine.controller.counters.failures == {}


@pytest.mark.engine
@pytest.mark.parametrize(
    "policy",
    [*(pytest.param(name, marks=pytest.mark.long) for name in ("svip", "adaedl")), "goodput"],
)
def test_passes_fall_below_the_depth_under_policies_that_stop(
    reference: dict[str, Any], shelf: Any, policy: str
) -> None:
    engine = shelf.get("draft_model", adaptive=RANDOM | {"policy": policy, "kernel": "numpy"})
    # Noise is drafted with little confidence.
    jobs = SCENARIOS["crowded"]()
    planned, ran, answers = passes_per_round(engine, jobs)
    for name, expected in reference["crowded"].items():
        assert answers[name].tokens == expected.tokens, name
    status = engine.controller.status()
    assert status["fail_opens"] == {}
    assert all(one >= other for one, other in zip(planned, ran, strict=True))
    if policy != "goodput":  # what that one finds worth a pass depends on measured times
        assert np.mean(ran) < 0.9 * np.mean(planned)
        assert status["events"]["draft_passes_saved"] > 50


@pytest.mark.engine
def test_a_policy_that_follows_may_trim_what_it_had_drafted_whole(engine: Any) -> None:
    """All that a live stop has left is verified; that ends with the round it was."""
    from switchable_policies import FixedPolicy

    engine.controller.policy = StoppingPolicy()

    def switch(step: int) -> None:
        if step == 5:
            engine.controller.policy = FixedPolicy(1, depth=KMAX)

    answers = engine.run(few(1), switch)
    drafted = answers["few-0"].metrics[0].per_step_drafted
    assert set(drafted[1:4]) == {2}
    assert set(drafted[6:]) == {1}


@pytest.mark.engine
@pytest.mark.parametrize("mode", ["off", "shadow"])
def test_where_we_do_not_act_the_loop_is_vllms(engine: Any, mode: str) -> None:
    policy = engine.controller.policy = StoppingPolicy()
    engine.controller.mode = mode
    before, steps = engine.drafter_passes, engine.steps
    engine.run(few(1))
    assert policy.asked == []
    assert engine.drafter_passes - before == KMAX * (engine.steps - steps)


@pytest.mark.engine
def test_a_policy_that_raises_after_a_pass_costs_nothing_but_its_gain(
    engine: Any, reference: dict[str, Any], said: Any
) -> None:
    engine.controller.policy = policy = RaisingStopper()
    answers = engine.run(SCENARIOS["crowded"]())
    for name, expected in reference["crowded"].items():
        assert answers[name].tokens == expected.tokens, name
    failures = engine.controller.counters.failures
    assert failures.keys() == {"after_draft_pass raised RuntimeError"}
    assert len([line for line in said() if "after_draft_pass raised" in line]) == 1
    assert {draft.position for draft in policy.asked} == set(range(KMAX))


FAULTS = {
    "asking": "adaptive_spec.adapters.vllm.draft_signal.early_exit.DraftRound.goes_on",
    "beginning": "adaptive_spec.adapters.vllm.draft_signal.early_exit.DraftRound.__init__",
    "the answer": "adaptive_spec.adapters.vllm.draft_signal.draft_loop._stacked",
    "the values": "adaptive_spec.adapters.vllm.draft_signal.model_tap._in_slices",
}


@pytest.mark.engine
@pytest.mark.parametrize("where", FAULTS)
def test_after_a_fault_of_ours_the_loop_runs_to_its_end(
    engine: Any,
    reference: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    said: Any,
    where: str,
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise ValueError("planned failure")

    tap = engine.core.model_executor.driver_worker.worker._adaptive_spec_tap
    engine.controller.policy = StoppingPolicy()
    monkeypatch.setattr(FAULTS[where], broken)
    monkeypatch.setattr(tap, "_broken", False)  # put back afterwards
    record = record_steps(engine)
    answers = engine.run(SCENARIOS["with_aborts"]())
    stop_recording(engine)
    for name, expected in reference["with_aborts"].items():
        if not name.startswith("leave-"):
            assert answers[name].tokens == expected.tokens, name
    assert engine.controller.counters.failures == {"early exit raised ValueError": 1}
    assert len([line for line in said() if "early exit raised" in line]) == 1
    assert not record[-1][0].capability.stops_drafting, "policies plan a depth beforehand again"
    assert {outcome.draft_depth for _, _, outcome in record if outcome} == {KMAX}


@pytest.mark.engine
def test_a_fault_while_drafts_are_trimmed_reaches_no_request(
    engine: Any, reference: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise ValueError("planned failure")

    early_exit = "adaptive_spec.adapters.vllm.draft_signal.early_exit"
    monkeypatch.setattr(f"{early_exit}.DraftRound.kept", broken)
    answers = engine.run(SCENARIOS["with_aborts"]())
    for name, expected in reference["with_aborts"].items():
        if not name.startswith("leave-"):
            assert answers[name].tokens == expected.tokens, name
    assert engine.controller.counters.failures.keys() == {"hook drafted raised ValueError"}
