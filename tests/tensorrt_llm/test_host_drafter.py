"""The 1.2.x route: a drafter that is given to the LLM API, nothing patched."""

import importlib
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from harness import target, violations
from harness.executor import host_executor
from harness.executor import run as run_executor
from harness.record import Record
from harness.traffic import Traffic, wrong_outputs

from adaptive_spec import check_adapter
from adaptive_spec.adapters.tensorrt_llm import host_decisions
from adaptive_spec.adapters.tensorrt_llm.host_decisions import SuffixIndex
from adaptive_spec.config import Config, FailOpen

KMAX = 4


@pytest.fixture
def stand_in(import_stand_in: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.delenv("TLLM_ADAPTIVE_SPEC", raising=False)
    return import_stand_in()


def drafter_of(policy: str, **options: Any) -> Any:
    module = importlib.import_module("adaptive_spec.adapters.tensorrt_llm.host_drafter")
    patient = FailOpen(max_decision_ms=1e6)
    config = Config(policy=policy, options=options, memory_guard=False, fail_open=patient)
    return module.AdaptivePromptLookup(KMAX, config=config)


def run(
    trt: Any,
    drafter: Any,
    *,
    companion: bool = True,
    first_tokens: tuple[int, ...] = (2, 4, 6),
    longest_prompt: int = 20,
) -> Any:
    """Requests whose text repeats itself, or never, by their first token."""
    traffic = Traffic(
        trt, 3, iterations=600, rate=0.15, first_tokens=first_tokens, longest_prompt=longest_prompt
    )
    with_companion = drafter.companion if companion else None
    executor = run_executor(host_executor(trt, traffic, drafter, with_companion, kmax=KMAX))
    assert wrong_outputs(traffic) == []
    assert all(request.is_finished for request in traffic.sent)
    return executor


def test_repeated_text_is_drafted_and_accepted(
    stand_in: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = Record(monkeypatch.setattr)
    drafter = drafter_of("static")
    run(stand_in, drafter)
    status = drafter._decisions.controller.status()
    assert not status["fail_opens"]
    assert status["accepted_tokens"] > 500
    assert not drafter.live
    check_adapter(record.steps(), live_requests=status["live_requests"])


def test_filler_counts_as_rejected_drafts_beside_a_request_that_copies(
    stand_in: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = Record(monkeypatch.setattr)
    run(stand_in, drafter_of("static"))
    outcomes = [outcome for *_, outcome in record.steps() if outcome is not None]
    drafted = np.concatenate([each.verified for each in outcomes if each.verified.any()])
    assert (drafted == KMAX).mean() > 0.8, "of requests near their end there are few"
    accepted = sum(int(each.accepted.sum()) for each in outcomes)
    assert 0.4 < accepted / drafted.sum() < 0.6


def test_without_anything_to_draft_the_target_computes_one_position(
    stand_in: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target, "VOCABULARY", 1 << 30)
    executor = run(stand_in, drafter_of("static"), first_tokens=(1, 3, 5), longest_prompt=1)
    widths = [k for batch, k in executor.engine.history if batch]
    assert widths.count(0) > 0.9 * len(widths)


def test_it_comes_back_after_having_been_off(stand_in: Any) -> None:
    """Upstream remembers off per request; a random policy switches all the time."""
    executor = run(stand_in, drafter_of("harness.random_policy:RandomPolicy"))
    widths = [k for batch, k in executor.engine.history if batch]
    assert set(widths) == {0, KMAX}
    accepted = sum(accepted for entry in executor.engine.truth for _, accepted in entry.values())
    assert accepted > 200


def test_off_remembered_per_request_would_overrun_the_reserve(
    stand_in: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    drafter = drafter_of("harness.random_policy:RandomPolicy")

    def forgetful(scheduled_batch: Any) -> None:
        drafter.companion_works = True
        drafter._decided().launched(scheduled_batch)

    monkeypatch.setattr(drafter, "batch_scheduled", forgetful)
    with pytest.raises(violations.KvOverrunError):
        run(stand_in, drafter)


def test_without_its_companion_it_never_switches_off(stand_in: Any) -> None:
    drafter = drafter_of("harness.random_policy:RandomPolicy")
    executor = run(stand_in, drafter, companion=False)
    assert {k for _, k in executor.engine.history} == {KMAX}


def test_a_copy_in_a_worker_is_whole_and_shares_its_companion(stand_in: Any) -> None:
    drafter = drafter_of("static")
    run(stand_in, drafter)
    copy, companion = pickle.loads(pickle.dumps((drafter, drafter.companion)))
    assert copy.companion is companion
    assert companion._drafter is copy
    assert copy._decisions is None
    run(stand_in, copy)
    assert copy._decisions.controller.status()["accepted_tokens"] > 500


@pytest.mark.parametrize("broken_part", ["look_up", "_decided"])
def test_faults_mean_drafting_as_configured(
    stand_in: Any, monkeypatch: pytest.MonkeyPatch, broken_part: str
) -> None:
    drafter = drafter_of("harness.random_policy:RandomPolicy")

    def broken(*args: Any) -> Any:
        raise ValueError("broken on purpose")

    holder = drafter if hasattr(drafter, broken_part) else host_decisions.LiveRequest
    monkeypatch.setattr(holder, broken_part, broken)
    executor = run(stand_in, drafter)
    assert {k for _, k in executor.engine.history} == {KMAX}


def test_rank_0_decides(stand_in: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    utils = importlib.import_module("tensorrt_llm._utils")

    class Other:
        tp_rank = 1

        @staticmethod
        def tp_broadcast(obj: int, root: int = 0) -> int:
            return 0

    monkeypatch.setattr(utils, "world", Other)
    drafter = drafter_of("static")
    executor = run(stand_in, drafter)
    assert {k for _, k in executor.engine.history[3:]} == {0}
    assert drafter._decisions.controller.status()["steps"] == 0


class TestLookup:
    def test_what_followed_the_longest_match(self) -> None:
        index = SuffixIndex(3)
        index.extend([1, 2, 3, 4, 9, 2, 3])
        assert index.propose(3) == [4, 9, 2]
        index.extend([1, 2, 3, 4, 9, 2, 3, 5, 3])
        assert index.propose(2) == [5, 3]

    def test_nothing_known_nothing_proposed(self) -> None:
        index = SuffixIndex(3)
        assert index.propose(3) == []
        index.extend([1, 2, 3])
        assert index.propose(3) == []
        assert index.propose(0) == []
        index.extend([1, 2, 3, 1])
        assert index.propose(-1) == []

    def test_growing_piece_by_piece_is_the_same_as_at_once(self) -> None:
        tokens = [1, 2, 1, 2, 3, 1, 2, 1, 2]
        pieces, whole = SuffixIndex(3), SuffixIndex(3)
        for end in range(1, len(tokens) + 1):
            pieces.extend(tokens[:end])
        whole.extend(tokens)
        assert pieces.propose(4) == whole.propose(4) == [3, 1, 2, 1]
