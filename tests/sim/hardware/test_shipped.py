from __future__ import annotations

import pytest

from adaptive_spec.sim.drafters.chains import NoDrafter
from adaptive_spec.sim.engine.kv_pool import pool_tokens
from adaptive_spec.sim.hardware.catalogue import gpu_facts, model_facts
from adaptive_spec.sim.hardware.registry import hardware, hardware_names, hardware_profile
from adaptive_spec.sim.hardware.roofline import roofline_profile

_ROOFLINES = [
    name for name in hardware_names() if name != "h100-llama-8b" and not name.endswith("-measured")
]


@pytest.mark.parametrize(
    ("batch", "tokens", "context"), [(1, 1, 100), (64, 256, 64_000), (128, 512, 24_278)]
)
def test_h100_llama_8b_holds_the_published_verify_coefficients(batch, tokens, context):
    published = 3.92645679e-08 * context + 2.10103129e-05 * tokens + 5.88590713e-03 + 1.20683946e-03
    seconds = hardware("h100-llama-8b").verify_seconds(batch, tokens, context, 0, 0)
    assert seconds == pytest.approx(published, rel=1e-12)


def test_h100_llama_8b_holds_the_published_eagle_proposal_at_k_3():
    draft = hardware("h100-llama-8b").measured_draft("eagle")
    context = 24_278
    ours = draft.proposal + 3 * (draft.pass_ + draft.pass_per_context_token * context)
    published = 2.37768493e-09 * context + 8.41429603e-07 * (1 + 3) + 2.13526175e-03
    assert ours == pytest.approx(published, rel=1e-12)
    assert draft.proposal_per_request == draft.pass_per_request == 0.0


def test_h100_llama_8b_holds_the_published_ngram_share_of_verify():
    draft = hardware("h100-llama-8b").measured_draft("ngram")
    batch, k = 32, 4
    ours = draft.proposal + draft.proposal_per_request * batch + k * draft.pass_per_request * batch
    verify = 2.10103129e-05 * batch * (1 + k) + 5.88590713e-03
    assert ours == pytest.approx(0.005875 * verify, rel=1e-9)


def test_eagle_at_batch_128_on_gsm8k_gains_what_was_published():
    """1.21x at K = 3; 2.379 tokens per step and 189.7 tokens of context from their records."""
    machine = hardware("h100-llama-8b")
    draft = machine.measured_draft("eagle")
    context = round(128 * 189.7)
    plain = machine.verify_seconds(128, 128, context, 0, 0)
    passes = draft.proposal + 3 * (draft.pass_ + draft.pass_per_context_token * context)
    speculating = machine.verify_seconds(128, 512, context, 0, 0) + passes
    assert 2.379 * plain / speculating == pytest.approx(1.21, abs=0.01)


@pytest.mark.parametrize("name", _ROOFLINES)
def test_every_other_profile_is_the_roofline_of_its_gpu_and_model(name):
    shipped = hardware_profile(name)
    computed = roofline_profile(
        gpu_facts(shipped.gpu),
        model_facts(shipped.model),
        tensor_parallel=shipped.tensor_parallel,
        name=name,
    )
    assert shipped == computed


@pytest.mark.parametrize("name", hardware_names())
def test_every_shipped_profile_has_a_source_and_room_for_kv(name):
    machine = hardware(name)
    assert len(machine.source) > 40
    assert pool_tokens(machine, NoDrafter()) > 8192


def test_the_machines_an_operator_would_look_for_are_there():
    wanted = {
        *(f"{gpu}-llama-8b" for gpu in ("a100", "h100", "h200", "l40s", "b200")),
        *(f"{gpu}-llama-8b" for gpu in ("rtx3090", "rtx4090", "rtxpro6000")),
        *(f"{gpu}-llama-70b-tp4" for gpu in ("h100", "h200", "b200")),
        *(f"{gpu}-qwen3-30b-a3b" for gpu in ("h100", "h200")),
    }
    assert wanted <= set(hardware_names())
