"""What speculation adds to a step on machines that nobody has measured."""

from __future__ import annotations

import msgspec
import pytest

from adaptive_spec.errors import ConfigError
from adaptive_spec.sim.drafters.registry import drafter
from adaptive_spec.sim.engine.step_time import StepTime
from adaptive_spec.sim.hardware.base import Hardware
from adaptive_spec.sim.hardware.catalogue import gpu_facts, model_facts
from adaptive_spec.sim.hardware.registry import hardware, hardware_profile
from adaptive_spec.sim.hardware.roofline import EngineOverhead, roofline_profile

A100 = gpu_facts("a100")
LLAMA = model_facts("llama-3.1-8b")
CONTEXT = 64_000


def step(machine: Hardware, *, any_draft: bool) -> float:
    time = StepTime(machine, drafter("eagle"), 0.0)
    return time.verify(64, 256, CONTEXT, 0, 0, any_draft=any_draft, ragged=False)


def test_unpacked_attention_is_paid_per_token_of_context_with_drafts() -> None:
    machine = hardware("a100-llama-8b")
    more = step(machine, any_draft=True) - step(machine, any_draft=False)
    assert more == pytest.approx(
        A100.verify_attention * machine.profile.per_context_token * CONTEXT
    )


def test_a_kernel_that_packs_the_heads_of_a_group_pays_nothing_more() -> None:
    assert hardware_profile("h200-llama-8b").verify_per_context_token == 0.0


def test_products_are_computed_in_whole_tiles() -> None:
    machine = Hardware(roofline_profile(A100, LLAMA))

    def seconds(tokens: int) -> float:
        return machine.verify_seconds(1, tokens, 0, 0, 0)

    assert seconds(129) - seconds(128) > 10 * (seconds(128) - seconds(127))
    # vidur's operators of Llama-3-8B on an A100: 17.5 ms at 256 tokens over 13.2 at 128.
    assert seconds(256) / seconds(128) == pytest.approx(19.5 / 13.2, rel=0.15)


def test_logits_of_every_verified_token_cross_the_memory() -> None:
    wide = msgspec.structs.replace(LLAMA, vocabulary=2 * LLAMA.vocabulary)
    narrow, wider = (roofline_profile(A100, model).per_batch_token for model in (LLAMA, wide))
    assert wider == pytest.approx(2.0 * narrow)
    computed = 2.0 * LLAMA.head_weights / (A100.bf16_flops * A100.compute_efficiency)
    assert narrow > computed


def test_an_engine_can_be_named_in_a_roofline() -> None:
    named = hardware_profile("roofline:h100:llama-3.1-8b:trtllm")
    assert named.overhead != hardware_profile("roofline:h100:llama-3.1-8b").overhead
    assert hardware_profile("roofline:h100:llama-3.1-8b:tensorrt-llm").overhead == named.overhead
    with pytest.raises(ConfigError, match="tensorrt-llm"):
        hardware_profile("roofline:h100:llama-3.1-8b:unheard-of")


def test_a_smaller_vocabulary_head_makes_a_pass_cheaper() -> None:
    machine = hardware("a100-llama-8b")
    whole, quarter = (
        drafter(name).cost_on(machine).seconds(1, 1, 0) for name in ("eagle", "eagle:head=0.25")
    )
    assert 0.4 < quarter / whole < 0.9


def test_no_step_is_shorter_than_host_work_that_overlaps_with_the_gpu() -> None:
    engine = EngineOverhead(per_step=1e-3, per_request=0.0, overlapped=8e-3, source="")
    machine, free = (
        Hardware(roofline_profile(gpu_facts("h100"), LLAMA, tensor_parallel=8, engine=each))
        for each in (engine, msgspec.structs.replace(engine, overlapped=0.0))
    )
    assert free.verify_seconds(1, 1, 0, 0, 0) < machine.verify_seconds(1, 1, 0, 0, 0) == 8e-3
    long = (64, 64, 0, 8192, 8192 * 4096)
    assert machine.verify_seconds(*long) == free.verify_seconds(*long) > 8e-3


def test_overlapped_host_work_is_no_price_of_a_drafter() -> None:
    engine = EngineOverhead(per_step=1e-3, per_request=0.0, overlapped=8e-3, source="")
    costs = [
        drafter("eagle").cost_on(
            Hardware(roofline_profile(gpu_facts("h100"), LLAMA, tensor_parallel=8, engine=each))
        )
        for each in (engine, msgspec.structs.replace(engine, overlapped=0.0))
    ]
    assert costs[0] == costs[1]
