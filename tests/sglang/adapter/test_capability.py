"""What a built scheduler allows: what is steered, only watched or left alone, and what is said."""

import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
from scheduler_loop import LADDER, OwnSchedule

from adaptive_spec.adapters.sglang.attach import params_of
from adaptive_spec.adapters.sglang.capability import SKIP_VARIABLE, detect, unsupported_here
from adaptive_spec.adapters.sglang.rules import NGRAM_NAME, RANKS_APART
from adaptive_spec.adapters.sglang.steered_params import SteeredParams


class Algorithm:
    def __init__(self, name: str) -> None:
        self.name = name

    def is_none(self) -> bool:
        return self.name == "NONE"

    def is_eagle(self) -> bool:
        return self.name.startswith("EAGLE")

    def is_ngram(self) -> bool:
        return "NGRAM" in self.name

    def is_dspark(self) -> bool:
        return self.name == "DSPARK"


class Arguments:
    device = "cpu"
    disable_cuda_graph = False


class Scheduler:
    enable_overlap = True

    def __init__(self, name: str, **arguments: Any) -> None:
        self.spec_algorithm = Algorithm(name)
        self.server_args = Arguments()
        for key, value in arguments.items():
            setattr(self.server_args, key, value)


def steered_by(parameters: SteeredParams, name: str = "EAGLE", **arguments: Any) -> Any:
    """Return what is found of a scheduler whose worker has these parameters."""
    return detect(Scheduler(name, **arguments), parameters)


def steered(name: str = "EAGLE", **arguments: Any) -> Any:
    """Return what is found of a scheduler whose worker has parameters to steer."""
    return steered_by(SteeredParams(OwnSchedule()), name, **arguments)


def test_eagle_is_steered_over_sglangs_own_candidates() -> None:
    support = steered("EAGLE3")
    capability = support.capability
    assert capability.uniform_values == LADDER
    assert capability.level.name == "UNIFORM"
    assert capability.off_pass
    assert not capability.cold_off
    assert (support.scheduling, support.shadow, support.notes) == ("overlap", (), ())


def test_a_skipped_draft_extend_makes_off_cold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SKIP_VARIABLE, "1")
    support = steered()
    assert not support.capability.off_pass
    assert support.capability.cold_off
    assert SKIP_VARIABLE in support.notes[0]


def resolve(monkeypatch: pytest.MonkeyPatch, get_spec: Callable[[], Any]) -> None:
    """Stand in for the place where SGLang keeps what it has resolved."""
    for name in ("sglang", "sglang.srt", "sglang.srt.runtime_context"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    vars(sys.modules["sglang.srt.runtime_context"])["get_spec"] = get_spec


@pytest.mark.parametrize(
    ("name", "asked", "resolved", "sampled"),
    [
        ("EAGLE", True, False, True),
        ("EAGLE", False, False, False),
        ("EAGLE", False, True, True),
        (NGRAM_NAME, True, True, False),
    ],
)
def test_sampled_drafts_are_told(
    monkeypatch: pytest.MonkeyPatch, name: str, asked: bool, resolved: bool, sampled: bool
) -> None:
    """Policies for greedy drafts only are refused then; SGLang may decide it by itself."""
    found = types.SimpleNamespace(speculative_use_rejection_sampling=resolved)
    resolve(monkeypatch, lambda: found)
    support = steered(name, speculative_use_rejection_sampling=asked, device="cpu")
    assert support.capability.sampled_drafts == sampled


def test_drafts_count_as_sampled_where_sglang_has_not_resolved_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unresolved() -> Any:
        raise ValueError("not resolved")

    resolve(monkeypatch, unresolved)
    support = steered()
    assert support.capability.sampled_drafts


def test_without_k_0_as_a_candidate_it_is_said() -> None:
    own = OwnSchedule()
    own.candidate_steps = [1, 3]
    assert "K = 0 is no candidate" in detect(Scheduler("EAGLE"), SteeredParams(own)).notes[0]
    own.candidate_steps = [0]
    assert "only candidate" in detect(Scheduler("EAGLE"), SteeredParams(own)).inert


PARAMETERS = SteeredParams(OwnSchedule())


@pytest.mark.parametrize(
    ("scheduler", "parameters", "reason", "said"),
    [
        (Scheduler("NONE"), None, "", "no speculation is configured"),
        (Scheduler("DSPARK"), None, "", "left alone"),
        (Scheduler("DSPARK"), PARAMETERS, "", "left alone"),
        (Scheduler("NGRAM"), None, "", f"use --speculative-algorithm {NGRAM_NAME}"),
        # Ours without parameters: not that its user should use it.
        (Scheduler(NGRAM_NAME, enable_pdmux=True), None, "", "not with pdmux"),
        (Scheduler(NGRAM_NAME), None, "", "its buffers could not be made"),
        (Scheduler("DFLASH"), None, "", "DFLASH has a fixed K"),
        (Scheduler("STANDALONE"), None, "not with pdmux", "not with pdmux"),
        (Scheduler("EAGLE", pp_size=2), PARAMETERS, "", "not with pipeline parallelism"),
        (Scheduler("EAGLE", disaggregation_mode="prefill"), PARAMETERS, "", "prefill instance"),
    ],
)
def test_what_is_left_alone_is_said(
    scheduler: Scheduler, parameters: SteeredParams | None, reason: str, said: str
) -> None:
    support = detect(scheduler, parameters, reason)
    assert support.capability is None
    assert said in support.inert
    assert "\n" not in support.inert


def test_a_decode_instance_is_steered_with_a_note() -> None:
    """sglang#17212: with speculation on the decode instance only, prompts have no draft KV."""
    found = steered(disaggregation_mode="decode")
    assert found.shadow == ()
    assert "without the drafter's KV" in found.notes[0]
    assert steered(disaggregation_mode="null").notes == ()


def test_ngram_with_graphs_is_steered() -> None:
    for device in ("cpu", "cuda"):
        support = steered(NGRAM_NAME, device=device)
        assert support.shadow == ()
        assert not support.capability.off_pass


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("enable_two_batch_overlap", True, "two-batch overlap"),
        ("enable_pdmux", True, "pdmux"),
        ("pp_size", 2, "pipeline parallelism"),
    ],
)
def test_set_ups_without_adaptivity_are_named(key: str, value: Any, said: str) -> None:
    arguments = Arguments()
    assert unsupported_here(arguments) == ""
    setattr(arguments, key, value)
    assert said in unsupported_here(arguments)


@pytest.mark.parametrize("key", ["enable_dp_attention", "attn_dp_size"])
def test_attention_dp_is_steered_where_replicas_draft_together(
    monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    arguments = Arguments()
    setattr(arguments, key, 2)
    for algorithm in ("EAGLE", "EAGLE3", "NEXTN"):
        arguments.speculative_algorithm = algorithm
        assert unsupported_here(arguments) == ""
    arguments.speculative_algorithm = "STANDALONE"
    assert unsupported_here(arguments) == "not with STANDALONE and attention DP"
    arguments.speculative_algorithm = "EAGLE"
    for name in RANKS_APART:
        monkeypatch.setenv(name, "false")
        assert unsupported_here(arguments) == ""
        monkeypatch.setenv(name, "1")
        assert unsupported_here(arguments) == f"not with attention DP and {name}"
        monkeypatch.delenv(name)
    for other, value in (("disaggregation_mode", "decode"), ("elastic_ep_backend", "mooncake")):
        setattr(arguments, other, value)
        assert "attention DP" in unsupported_here(arguments)
        setattr(arguments, other, None)


def test_parameters_are_found_on_either_kind_of_worker() -> None:
    class Worker:
        adaptive_controller: Any = None
        steered_params: Any = None

    worker = Worker()
    assert params_of(worker) is None
    assert params_of(None) is None
    worker.steered_params = SteeredParams(OwnSchedule())
    assert params_of(worker) is worker.steered_params
    worker.adaptive_controller = Worker()
    worker.adaptive_controller.params = SteeredParams(OwnSchedule())
    assert params_of(worker) is worker.adaptive_controller.params


def test_candidates_above_the_launch_k_need_buffers_of_their_size() -> None:
    """sglang#30549, #35275: buffers were sized for --speculative-num-steps."""
    assert LADDER[-1] > 2
    [reason] = steered(speculative_num_steps=2).shadow
    assert reason == f"candidate K = {LADDER[-1]} above --speculative-num-steps 2"
    sized = Scheduler("EAGLE", speculative_num_steps=2)
    vars(sized.spec_algorithm)["resolve_max_speculative_num_draft_tokens"] = lambda _: LADDER[-1]
    at_launch = Scheduler("EAGLE", speculative_num_steps=LADDER[-1])
    for allowed in (sized, at_launch):
        assert detect(allowed, SteeredParams(OwnSchedule())).shadow == ()
