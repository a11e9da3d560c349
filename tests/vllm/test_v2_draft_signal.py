"""On model runner V2, too, what the drafter shows arrives at the scheduler unaltered."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from engines import KMAX, PATIENT, RANDOM, Job
from scenarios import prompts
from v2_engines import V2Engines
from v2_signals import Shown, certainty, run_kernel

from adaptive_spec.adapters.vllm.draft_signal.arrivals import SignalArrivals
from adaptive_spec.adapters.vllm.draft_signal.tap import Round
from adaptive_spec.adapters.vllm.draft_signal.v2_tap import V2Tap, shows_certainty
from adaptive_spec.adapters.vllm.draft_signal.values import ATTRIBUTE, DraftSignals

FIXED = {"policy": "static", "options": {"k": KMAX}, "fail_open": PATIENT}

WAYS = [
    pytest.param(("draft_model", False, False, "drafts"), id="draft_model-sync"),
    pytest.param(("draft_model", True, False, "results of verification"), id="draft_model-async"),
    pytest.param(("draft_model", False, True, "results of verification"), id="as-on-a-gpu"),
    pytest.param(("eagle", False, False, "drafts"), id="eagle-sync", marks=pytest.mark.long),
    pytest.param(("eagle", True, False, "results of verification"), id="eagle-async"),
]
"""(method, asynchronous, as they go on a GPU, what they arrive with)."""


def jobs(tokens: int = 10) -> list[Job]:
    return [
        Job(f"r{place}", text, 2 * place, {"max_tokens": tokens + 4 * place})
        for place, text in enumerate(prompts(3, 7))
    ]


@pytest.fixture(scope="module")
def unspeculated(v2: V2Engines) -> dict[str, list[tuple[int, ...]]]:
    return {name: answer.tokens for name, answer in v2.run(jobs()).answers.items()}


def tokens_of(shown: Shown) -> dict[str, list[tuple[int, ...]]]:
    return {name: answer.tokens for name, answer in shown.answers.items()}


@pytest.fixture(scope="module", params=WAYS)
def watched(request: pytest.FixtureRequest, v2: V2Engines) -> tuple[Shown, str]:
    """While K changes at random, and the depth where it follows."""
    method, asynchronous, late, way = request.param
    shown = v2.watch(jobs(), method, late=late, adaptive=RANDOM, asynchronous=asynchronous)
    return shown, way


@pytest.mark.engine
def test_each_draft_position_of_each_request_has_its_certainty(watched: tuple[Shown, str]) -> None:
    shown, way = watched
    assert shown.worker == "SignalCPUWorker"
    assert shown.reader == "V2Tap"
    assert not shown.trims, "vLLM's own adaptive verification is on"
    assert len(shown.arrived) >= 5
    # Where they go with the results, those of a last round that nobody verified stay behind.
    left = len(shown.computed) - len(shown.arrived)
    assert left == 0 or (left == 1 and way != "drafts")
    for computed, arrived in zip(shown.computed, shown.arrived, strict=False):
        assert arrived.way == way
        assert arrived.names == computed.names
        np.testing.assert_allclose(arrived.confidence, computed.confidence, atol=1e-5)
        np.testing.assert_allclose(arrived.entropy, computed.entropy, atol=1e-4)
    # vLLM adds a suffix of its own to a request's name.
    names = {name.partition("-")[0] for arrived in shown.arrived for name in arrived.names}
    assert names == {"r0", "r1", "r2"}
    everything = np.concatenate([arrived.confidence.ravel() for arrived in shown.arrived])
    assert len(np.unique(everything.round(6))) > 20, "they hardly differ"


@pytest.mark.engine
def test_tokens_are_those_without_speculation(
    watched: tuple[Shown, str], unspeculated: dict[str, list[tuple[int, ...]]]
) -> None:
    shown, _ = watched
    assert tokens_of(shown) == unspeculated
    assert shown.failures == {}


@pytest.mark.engine
def test_each_step_gets_those_of_the_drafts_it_verifies(watched: tuple[Shown, str]) -> None:
    """Found among the rounds by their values: each step's are those of one round, in order."""
    shown, way = watched
    last, seen = -1, 0
    for step in shown.steps:
        known = step.in_time if way == "drafts" else step.late
        assert (step.late if way == "drafts" else step.in_time) is None
        for row, name in enumerate(step.names):
            drafted = int(step.verified[row])
            if not drafted:
                continue
            assert not np.isnan(known[row, :drafted]).any()
            place = next(
                place
                for place, made in enumerate(shown.computed)
                if place >= max(last, 0)
                and name in made.names
                and made.confidence.shape[1] >= drafted
                and np.allclose(
                    made.confidence[made.names.index(name), :drafted], known[row, :drafted]
                )
            )
            last, seen = place, seen + 1
    assert seen > 5


@pytest.mark.engine
def test_it_can_be_switched_off(
    v2: V2Engines, unspeculated: dict[str, list[tuple[int, ...]]]
) -> None:
    shown = v2.watch(jobs(), "draft_model", adaptive=FIXED | {"confidence": False})
    assert shown.worker == "CPUWorker"
    assert shown.reader == "NoneType"
    assert shown.computed
    assert shown.arrived == []
    assert all(step.in_time is None and step.late is None for step in shown.steps)
    assert tokens_of(shown) == unspeculated


SLOTS, TEMPERATURES = [2, -1, 0, 1], [0.5, 0.0, 1.3]


@pytest.mark.engine
@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("half", [False, True])
def test_the_kernel_computes_maximum_and_entropy(v2: V2Engines, half: bool, sampled: bool) -> None:
    """Of a vocabulary of several blocks, the first of which is ruled out for one request."""
    logits = np.random.default_rng(3).normal(0, 4, (4, 9001)).astype(np.float32)
    logits[2, :5000] = -np.inf
    logits[3, 7:] = -np.inf
    if half:  # numbers that need no rounding
        logits = np.round(logits * 4) / 4
    shown = v2.call(run_kernel, logits, half, SLOTS, TEMPERATURES, sampled)
    own = np.array([1.3, 1.0, 0.5, 1.0]) if sampled else np.ones(4)
    confidence, entropy = certainty(logits.astype(np.float64) / own[:, None])
    np.testing.assert_allclose(shown[0, :4, 1], confidence, atol=1e-5)
    np.testing.assert_allclose(shown[1, :4, 1], entropy, atol=1e-4)
    assert np.isnan(np.delete(shown, 1, axis=2)).all()
    assert np.isnan(shown[:, 4]).all()


COMPILE = """
import sys, types
import triton, triton.language
stand_in = types.ModuleType("vllm.triton_utils")
stand_in.tl, stand_in.triton = triton.language, triton
sys.modules |= {"vllm": types.ModuleType("vllm"), "vllm.triton_utils": stand_in}
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from adaptive_spec.adapters.vllm.draft_signal import certainty_kernel as ours
types_of = {
    "shown": "*fp32", "shown_plane": "i32", "shown_row": "i32", "logits": "*bf16",
    "logits_row": "i32", "slots": "*i64", "temperatures": "*fp32", "position": "*i64",
    "vocabulary": "i32", "sampled": "constexpr", "block": "constexpr",
}
constants = {"sampled": True, "block": ours.BLOCK}
made = triton.compile(
    ASTSource(fn=ours.KERNEL, signature=types_of, constexprs=constants),
    target=GPUTarget("cuda", 90, 32),
    options={"num_warps": ours.WARPS},
)
print(len(made.asm["cubin"]))
"""


@pytest.mark.engine
def test_the_kernel_compiles_for_a_gpu() -> None:
    """Triton's interpreter takes what its compiler refuses. Triton brings all that this needs."""
    pytest.importorskip("triton", reason="Triton is not installed; `make test` sets it up")
    made = subprocess.run(
        [sys.executable, "-c", COMPILE], capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr[-2000:]
    assert int(made.stdout) > 1000


def speculator(**different: Any) -> Any:
    plain = {
        "acceptance_estimator": None,
        "device": "cpu",
        "draft_logits": None,
        "max_num_reqs": 4,
        "num_speculative_steps": 3,
        "propose": lambda batch, **_: "drafts",
        "use_local_argmax_reduction": False,
    }
    return SimpleNamespace(**plain | different)


def tap_of(watched: Any, asynchronous: bool = False) -> V2Tap:
    pytest.importorskip("torch", reason="PyTorch is not installed; `make test` sets it up")
    scheduling = SimpleNamespace(async_scheduling=asynchronous)
    config = SimpleNamespace(scheduler_config=scheduling)
    return V2Tap(SimpleNamespace(speculator=watched, vllm_config=config))


BATCH = SimpleNamespace(num_reqs=2, req_ids=["a", "b"])


def test_a_place_that_is_taken_or_not_shown_logits_is_left_alone() -> None:
    assert shows_certainty(speculator())
    assert not shows_certainty(speculator(acceptance_estimator=object()))
    assert not shows_certainty(speculator(use_local_argmax_reduction=True))
    assert not shows_certainty(SimpleNamespace(draft_tokens=None))


def test_a_round_goes_one_way_only() -> None:
    watched = speculator()
    tap = tap_of(watched)
    assert watched.propose(BATCH, num_speculative_tokens=2) == "drafts"
    assert tap.take_verified() is None
    read = tap.take_signals()
    signals = read()
    assert (tuple(signals.request_ids), signals.confidence.shape) == (("a", "b"), (2, 2))
    assert not signals.verified
    assert tap.take_signals() is None
    watched.propose(BATCH, num_speculative_tokens=2)
    assert tap.take_verified() is None, "it went with the drafts"


def test_scheduling_ahead_confidence_goes_with_the_verifying_step() -> None:
    watched = speculator()
    tap = tap_of(watched, asynchronous=True)
    watched.propose(BATCH, num_speculative_tokens=2)
    assert tap.take_verified() is None, "nothing was verified yet"
    assert tap.take_signals() is None
    watched.propose(BATCH, num_speculative_tokens=3)
    read = tap.take_verified()
    signals = read()
    assert signals.verified
    assert signals.confidence.shape == (2, 2), "this is the later round"


@pytest.mark.parametrize("reason", ["not wanted", "no drafts", "dummy run"])
def test_no_round_is_sent_where_there_is_none_to_read(reason: str) -> None:
    watched = speculator()
    tap = tap_of(watched)
    tap.wanted = reason != "not wanted"
    watched.propose(
        BATCH,
        num_speculative_tokens=0 if reason == "no drafts" else 2,
        dummy_run=reason == "dummy run",
    )
    assert tap.take_verified() is None
    assert tap.take_signals() is None


@pytest.mark.parametrize("there", [False, True])
def test_values_still_on_their_way_are_not_waited_for(there: bool) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed; `make test` sets it up")
    event = SimpleNamespace(query=lambda: there)
    sent = Round(("a",), torch.ones(2, 1, 3), event)
    assert (sent.verified_signals() is not None) == there


def test_a_fault_while_reading_is_said_once_and_leaves_the_drafts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    watched = speculator()
    tap = tap_of(watched)
    for _ in range(3):
        tap.wanted = True  # as the worker says at each step
        watched.acceptance_estimator.predict("no tensor", None, None, None, None)
        watched.acceptance_estimator.step(None, None, None)
        assert watched.propose(BATCH, num_speculative_tokens=2) == "drafts"
        tap.take_verified()
        assert tap.take_signals() is None
    assert len([record for record in caplog.records if "not read any more" in record.message]) == 1


def test_late_values_go_to_the_step_that_verifies_their_drafts() -> None:
    arrivals = SignalArrivals(KMAX)
    values = np.ones((1, KMAX))
    for verified in (False, True):
        done, following = SimpleNamespace(), SimpleNamespace()
        signals = DraftSignals(("a",), values, values, verified=verified)
        arrivals.arrived_late(SimpleNamespace(**{ATTRIBUTE: signals}), done, following)
        receives, other = (done, following) if verified else (following, done)
        assert receives.late_signals is signals
        assert not hasattr(other, "late_signals")
        arrivals.arrived_late(SimpleNamespace(**{ATTRIBUTE: signals}), None, None)
    assert arrivals.late == 2
    assert arrivals.for_plan(["a"]) is None, "they are too late for a plan"
