"""What the drafter shows arrives at the scheduler, request by request, unaltered."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from engines import KMAX, PATIENT, Job
from recording import record_steps, stop_recording
from v2_signals import certainty

from adaptive_spec.adapters.vllm.draft_signal.arrivals import SignalArrivals
from adaptive_spec.adapters.vllm.draft_signal.lookup_tap import LookupTap, match_length
from adaptive_spec.adapters.vllm.draft_signal.model_tap import ModelTap
from adaptive_spec.adapters.vllm.draft_signal.values import ATTRIBUTE, DraftSignals
from adaptive_spec.adapters.vllm.draft_signal.worker import WORKERS, CarriesSignals

WORKER = WORKERS["vllm.v1.worker.cpu_worker.CPUWorker"]
PROBABILISTIC = {"draft_sample_method": "probabilistic"}


def jobs(temperature: float = 0.0, tokens: int = 20) -> list[Job]:
    options = {"max_tokens": tokens, "temperature": temperature, "seed": 1}
    return [
        Job(f"r{n}", [3 + n, 5, 7, 3 + n, 5, 7, 3 + n], arrives=n, options=options)
        for n in range(3)
    ]


def carried(engine: Any) -> list[tuple[Any, DraftSignals | None]]:
    """Copies of the objects that bring drafts or results, with the signals on them."""
    seen: list[tuple[Any, DraftSignals | None]] = []
    scheduler = engine.scheduler
    drafts, results = scheduler.update_draft_token_ids, scheduler.update_from_output

    def update_draft_token_ids(carrier: Any) -> Any:
        seen.append((copy.deepcopy(carrier), getattr(carrier, ATTRIBUTE, None)))
        return drafts(carrier)

    def update_from_output(scheduled: Any, carrier: Any) -> Any:
        if (signals := getattr(carrier, ATTRIBUTE, None)) is not None:
            seen.append((copy.deepcopy(carrier), signals))
        return results(scheduled, carrier)

    scheduler.update_draft_token_ids = update_draft_token_ids
    scheduler.update_from_output = update_from_output
    return seen


def watch_distributions(engine: Any) -> list[np.ndarray]:
    """What the drafter's head computes at each draft position, [rows, vocabulary]."""
    logits: list[np.ndarray] = []
    head = engine.runner.drafter.model.logits_processor
    head.register_forward_hook(
        lambda module, given, made: logits.append(made.double().numpy().copy())
    )
    return logits


@pytest.mark.engine
@pytest.mark.parametrize("method", ["draft_model", "eagle"])
def test_each_draft_position_of_each_request_has_its_certainty(shelf: Any, method: str) -> None:
    engine = shelf.get(method, worker_cls=WORKER)
    logits, seen = watch_distributions(engine), carried(engine)
    engine.run(jobs())
    rounds = [signals for carrier, signals in seen if signals is not None]
    assert len(rounds) >= 10
    shown = np.concatenate(logits)
    place = 0
    for signals in rounds:
        rows = len(signals.request_ids)
        assert signals.confidence.shape == (rows, KMAX)
        here = shown[place : place + rows * KMAX].reshape(KMAX, rows, -1).swapaxes(0, 1)
        place += rows * KMAX
        confidence, entropy = certainty(here)
        np.testing.assert_allclose(signals.confidence, confidence, atol=1e-5)
        np.testing.assert_allclose(signals.entropy, entropy, atol=1e-3)
    # vLLM adds a suffix of its own to a request's name.
    names = {name.partition("-")[0] for signals in rounds for name in signals.request_ids}
    assert names == {"r0", "r1", "r2"}


@pytest.mark.engine
@pytest.mark.parametrize(
    ("speculation", "traced"), [({}, False), (PROBABILISTIC, True)], ids=["greedy", "traced"]
)
def test_entropy_is_computed_only_for_who_uses_it(
    shelf: Any, tmp_path: Any, speculation: dict[str, Any], traced: bool
) -> None:
    adaptive: dict[str, Any] = {
        "policy": "goodput",
        "fail_open": PATIENT,
    }
    if traced:
        adaptive["trace"] = {"directory": str(tmp_path)}
    engine = shelf.get("draft_model", adaptive=adaptive, speculation=speculation)
    logits, seen = watch_distributions(engine), carried(engine)
    engine.run(jobs(temperature=0.0))
    rounds = [signals for _, signals in seen if signals is not None]
    known = [signals.confidence[~np.isnan(signals.confidence)] for signals in rounds]
    entropy = [signals.entropy[~np.isnan(signals.confidence)] for signals in rounds]
    assert sum(map(len, known)) >= 10
    assert all(np.isnan(values).all() != traced for values in entropy if len(values))
    shown = np.concatenate(logits)
    largest, _ = certainty(shown)
    for value in np.concatenate(known):
        assert np.abs(largest - value).min() < 1e-5
    shelf.clear()


@pytest.mark.engine
def test_sampled_drafts_show_the_distribution_they_are_drawn_from(shelf: Any) -> None:
    engine = shelf.get("draft_model", worker_cls=WORKER, speculation=PROBABILISTIC)
    drawn_from: list[np.ndarray] = []
    seen = carried(engine)

    def keep(step: int) -> None:
        q = engine.runner.drafter.take_last_draft_probs()
        drawn_from.append(None if q is None else q.double().numpy().copy())

    engine.run(jobs(temperature=0.8), each_step=keep)
    rounds = [signals for _, signals in seen if signals is not None]
    assert len(rounds) == len(drawn_from) > 5
    for signals, q in zip(rounds, drawn_from, strict=True):
        confidence, entropy = certainty(np.log(np.maximum(q, 1e-300)))
        np.testing.assert_allclose(signals.confidence, confidence, atol=1e-6)
        np.testing.assert_allclose(signals.entropy, entropy, atol=1e-4)


@pytest.mark.engine
@pytest.mark.parametrize("method", ["ngram", "suffix"])
def test_text_look_up_shows_how_much_matched(shelf: Any, method: str) -> None:
    if method == "suffix":
        pytest.importorskip("arctic_inference", reason="suffix decoding needs arctic-inference")
    engine = shelf.get(method, worker_cls=WORKER)
    seen = carried(engine)
    engine.run(jobs())
    found = 0
    for carrier, signals in seen:
        if signals is None:
            assert not any(carrier.draft_token_ids)
            continue
        drafted = {
            name: len(tokens)
            for name, tokens in zip(carrier.req_ids, carrier.draft_token_ids, strict=True)
            if tokens
        }
        known = (~np.isnan(signals.confidence)).sum(axis=1)
        assert dict(zip(signals.request_ids, known.tolist(), strict=True)) == drafted
        assert (
            (signals.confidence > 0) & (signals.confidence <= 1) | np.isnan(signals.confidence)
        ).all()
        found += len(drafted)
    assert found > 5


FIXED = {"policy": "static", "options": {"k": KMAX}}


@pytest.mark.engine
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_policy_gets_it_with_the_step_or_with_its_outcome(shelf: Any, asynchronous: bool) -> None:
    engine = shelf.get("draft_model", adaptive=FIXED, asynchronous=asynchronous)
    steps = record_steps(engine)
    engine.run(jobs())
    verifying = [
        (context, outcome)
        for context, plan, outcome in steps
        if outcome is not None and outcome.verified.any()
    ]
    assert len(verifying) > 5
    for context, outcome in verifying:
        in_time, late = context.confidence, outcome.confidence
        assert (in_time is None, late is None) == ((True, False) if asynchronous else (False, True))
        if asynchronous:
            known = ~np.isnan(outcome.confidence)
            verified = outcome.verified
        else:
            known = ~np.isnan(context.confidence)
            verified = context.draft_available
        assert (known.sum(axis=1) >= verified).all()
    stop_recording(engine)


@pytest.mark.engine
def test_what_came_late_is_that_of_the_drafts_that_were_verified(shelf: Any) -> None:
    """The same drafts with the same values, whether these come in time or late."""
    shown: list[list[list[float]]] = []
    for asynchronous in (False, True):
        engine = shelf.get("draft_model", adaptive=FIXED, asynchronous=asynchronous)
        steps = record_steps(engine)
        engine.run(jobs(tokens=60)[:1])
        shown.append([])
        for context, _, outcome in steps:
            if outcome is not None and (outcome.verified == KMAX).any():
                values = outcome.confidence if asynchronous else context.confidence
                shown[-1].append(values[0].round(4).tolist())
        stop_recording(engine)
    in_time, late = shown
    both = min(len(in_time), len(late))  # only the last rounds of a request differ
    assert both > 3
    assert late[:both] == in_time[:both]


@pytest.mark.engine
def test_it_can_be_switched_off(shelf: Any) -> None:
    engine = shelf.get("draft_model", adaptive=FIXED | {"confidence": False})
    assert type(engine.core.model_executor.driver_worker.worker).__name__ == "CPUWorker"
    steps = record_steps(engine)
    engine.run(jobs())
    assert all(context.confidence is None for context, _, _ in steps)
    stop_recording(engine)


def test_where_everything_is_verified_only_now_and_then_a_round_is_read() -> None:
    arrivals = SignalArrivals(KMAX)

    def step(number: int, verified: int) -> bool:
        context: Any = SimpleNamespace(step=number, draft_available=np.array([KMAX]))
        plan: Any = SimpleNamespace(verify=np.array([verified]))
        return arrivals.wanted(context, plan)

    assert all(step(number, KMAX) for number in range(200)), "nothing has come yet"
    arrivals.arrived(SimpleNamespace(**{ATTRIBUTE: object()}))
    assert step(200, KMAX - 1)
    wanted = [step(number, KMAX) for number in range(201, 401)]
    assert all(wanted[:60])
    assert 10 < sum(wanted[100:]) < 20
    assert step(401, KMAX - 1)


@pytest.mark.parametrize(
    ("tokens", "longest", "matched"),
    [
        ([1, 2, 3, 9, 1, 2, 3], 4, 3),
        ([1, 2, 3, 9, 1, 2, 3], 2, 2),
        ([7, 7, 7], 4, 2),
        ([1, 2, 3], 4, 0),
        ([5], 4, 0),
        ([], 4, 0),
    ],
)
def test_match_length_is_the_longest_repeated_end(tokens, longest, matched):
    assert match_length(np.array(tokens, dtype=np.int64), longest) == matched


def test_rows_follow_the_requests_asked_for():
    signals = DraftSignals(("a", "b"), np.array([[0.9, 0.8], [0.7, 0.6]]), np.ones((2, 2)))
    confidence, entropy = signals.rows(["b", "new", "a"], 3)
    np.testing.assert_array_equal(
        confidence, [[0.7, 0.6, np.nan], [np.nan] * 3, [0.9, 0.8, np.nan]]
    )
    assert entropy.shape == (3, 3)


@pytest.mark.engine
def test_a_fault_while_reading_leaves_the_drafts_alone(caplog):
    import torch

    class Drafter:
        model = SimpleNamespace(compute_logits=lambda hidden: "no tensor")

        def _sample_draft_tokens(self, hidden: Any, metadata: Any) -> Any:
            self.model.compute_logits(hidden)
            return hidden, None

        def propose(self) -> Any:
            return torch.stack([self._sample_draft_tokens(torch.ones(2), None)[0]], dim=1)

    runner = SimpleNamespace(
        drafter=Drafter(),
        input_batch=SimpleNamespace(req_ids=["a", "b"]),
        vllm_config=SimpleNamespace(instance_id="made up"),
    )
    tap = ModelTap(runner)
    for _ in range(3):
        assert runner.drafter.propose().tolist() == [[1.0], [1.0]]
        assert tap.take_signals() is None
    assert len([record for record in caplog.records if "not read any more" in record.message]) == 1


@pytest.mark.parametrize("drafter", ["n-gram", "suffix"])
def test_a_fault_while_looking_at_matches_is_said_once(
    caplog: pytest.LogCaptureFixture, drafter: str
) -> None:
    drafts = [[1, 2]]
    cache = SimpleNamespace(speculate=lambda request_id: SimpleNamespace(token_ids=[1]))
    proposer = SimpleNamespace(propose=lambda *_: drafts, max_n=3)
    chosen = SimpleNamespace(suffix_cache=cache) if drafter == "suffix" else proposer
    tap = LookupTap(SimpleNamespace(drafter=chosen, num_spec_tokens=2, input_batch=None))
    for _ in range(3):
        tap.wanted = True  # as the worker says at each step
        if drafter == "suffix":
            assert cache.speculate("a").token_ids == [1]
        else:
            assert proposer.propose(2, [[5]], [3], [[1, 2, 3]]) is drafts
        assert tap.take_signals() is None
    assert len([record for record in caplog.records if "not read any more" in record.message]) == 1


def test_values_that_cannot_be_sent_end_the_reading(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> Any:
        raise ValueError("planned failure")

    worker: Any = CarriesSignals()
    worker._adaptive_spec_tap = SimpleNamespace(take_signals=lambda: broken, wanted=True)
    output = SimpleNamespace(get_output=lambda: "results")
    for _ in range(3):
        own = SimpleNamespace(get_output=output.get_output)
        assert worker._with_signals(own).get_output() == "results"
    assert worker._adaptive_spec_tap is None
    assert len([record for record in caplog.records if "not sent any more" in record.message]) == 1
