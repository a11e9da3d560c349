from __future__ import annotations

import msgspec
import pytest

from adaptive_spec.errors import ConfigError
from adaptive_spec.sim.hardware.base import Hardware
from adaptive_spec.sim.hardware.catalogue import MODELS, gpu_facts, model_facts
from adaptive_spec.sim.hardware.roofline import EngineOverhead, roofline_profile

NO_ENGINE = EngineOverhead(per_step=0.0, per_request=0.0, source="none")


def machine(gpu="h100", model="llama-3.1-8b", **options) -> Hardware:
    facts = gpu if not isinstance(gpu, str) else gpu_facts(gpu)
    profile = roofline_profile(facts, model_facts(model), engine=NO_ENGINE, **options)
    return Hardware(profile)


def step(hardware: Hardware, batch: int, context: int = 0, prompt: int = 0) -> float:
    return hardware.verify_seconds(batch, batch, context, prompt, prompt * prompt // 2)


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("llama-3.1-8b", 8.03),
        ("llama-3.1-70b", 70.6),
        ("qwen3-32b", 32.8),
        ("qwen3-30b-a3b", 30.5),
        ("qwen3-235b-a22b", 235.0),
        ("mixtral-8x7b", 46.7),
        ("llama-2-7b", 6.74),
        ("llama-2-70b", 69.0),
        ("qwen3-8b", 8.19),
    ],
)
def test_the_shapes_add_up_to_the_published_sizes(name, billions):
    assert set(MODELS) >= {name}
    assert model_facts(name).weights / 1e9 == pytest.approx(billions, rel=0.01)


def test_a_small_batch_takes_as_long_as_reading_the_weights():
    gpu = gpu_facts("h100")
    read = 15.0e9 / (gpu.bandwidth * gpu.memory_efficiency)
    assert read < step(machine(), 1) < 1.5 * read


def test_a_small_batch_gains_nothing_from_more_operations_per_second():
    gpu = gpu_facts("h100")
    faster = msgspec.structs.replace(gpu, bf16_flops=4 * gpu.bf16_flops)
    assert step(machine(faster), 4) == pytest.approx(step(machine(gpu), 4), rel=0.01)


def test_a_large_prompt_takes_as_long_as_its_operations():
    gpu = gpu_facts("h100")
    operations = 2 * 7.0e9 * 8192 / (gpu.bf16_flops * gpu.compute_efficiency)
    without_attention = machine().verify_seconds(0, 0, 0, 8192, 0)
    assert operations < without_attention < 1.2 * operations


def test_a_large_prompt_gains_little_from_more_bandwidth():
    gpu = gpu_facts("h100")
    faster = msgspec.structs.replace(gpu, bandwidth=4 * gpu.bandwidth)
    slow, fast = step(machine(gpu), 0, prompt=8192), step(machine(faster), 0, prompt=8192)
    assert fast > 0.9 * slow


def test_context_costs_the_reading_of_its_kv():
    gpu = gpu_facts("h200")
    slope = (step(machine(gpu), 8, 100_000) - step(machine(gpu), 8)) / 100_000
    assert slope == pytest.approx(131072 / (gpu.bandwidth * gpu.attention_efficiency))


def test_few_tokens_touch_few_experts_and_many_touch_all():
    gpu = gpu_facts("h200")
    moe = machine(gpu, "qwen3-30b-a3b")
    rate = gpu.bandwidth * gpu.memory_efficiency
    all_experts = 48 * 128 * 3 * 2048 * 768 * 2 / rate
    grown = step(moe, 512) - step(moe, 1)
    assert step(moe, 1) < 0.4 * all_experts
    assert 0.85 * all_experts < grown < 1.3 * all_experts


def test_a_second_draft_costs_a_mixture_of_experts_more_than_a_dense_model():
    def growth(model):
        return step(machine("h200", model), 8) / step(machine("h200", model), 1)

    assert growth("qwen3-30b-a3b") > 2.0 > 1.1 > growth("llama-3.1-8b")


def test_tensor_parallelism_divides_weights_and_adds_reductions():
    one = machine("h200", "llama-3.1-8b")
    two = machine("h200", "llama-3.1-8b", tensor_parallel=2)
    assert 0.5 * step(one, 1) < step(two, 1) < step(one, 1)


def test_fp8_halves_what_a_small_batch_reads():
    bf16, fp8 = machine("h100"), machine("h100", precision="fp8")
    assert 0.5 < step(fp8, 1) / step(bf16, 1) < 0.8


@pytest.mark.parametrize(
    ("gpu", "model", "options", "message"),
    [
        ("h100", "llama-3.1-70b", {}, "use more GPUs"),
        ("a100", "llama-3.1-8b", {"precision": "fp8"}, "a100 has no fp8"),
        ("h100", "llama-3.1-8b", {"precision": "int4"}, "unknown precision 'int4'"),
        ("h100", "llama-3.1-8b", {"tensor_parallel": 0}, "must be >= 1"),
    ],
)
def test_what_cannot_run_is_refused_by_name(gpu, model, options, message):
    with pytest.raises(ConfigError, match=message):
        machine(gpu, model, **options)


def test_unknown_facts_are_refused_with_the_known_names():
    with pytest.raises(ConfigError, match=r"unknown GPU 'v100'; known: .*h100"):
        gpu_facts("v100")
    with pytest.raises(ConfigError, match=r"unknown model 'gpt'; known: .*llama-3.1-8b"):
        model_facts("gpt")
