"""The profiles that published results were computed with."""

import pytest

from adaptive_spec.sim.hardware.registry import hardware
from benchmarks.profiles import published_profile


@pytest.mark.parametrize(
    ("batch", "tokens", "context"), [(1, 1, 100), (64, 256, 64_000), (128, 512, 24_278)]
)
def test_h100_llama_8b_holds_the_published_verify_coefficients(batch, tokens, context):
    published = 3.92645679e-08 * context + 2.10103129e-05 * tokens + 5.88590713e-03 + 1.20683946e-03
    seconds = hardware(published_profile("h100-llama-8b")).verify_seconds(
        batch, tokens, context, 0, 0
    )
    assert seconds == pytest.approx(published, rel=1e-12)


def test_h100_llama_8b_holds_the_published_eagle_proposal_at_k_3():
    draft = hardware(published_profile("h100-llama-8b")).measured_draft("eagle")
    context = 24_278
    ours = draft.proposal + 3 * (draft.pass_ + draft.pass_per_context_token * context)
    published = 2.37768493e-09 * context + 8.41429603e-07 * (1 + 3) + 2.13526175e-03
    assert ours == pytest.approx(published, rel=1e-12)
    assert draft.proposal_per_request == draft.pass_per_request == 0.0


def test_h100_llama_8b_holds_the_published_ngram_share_of_verify():
    draft = hardware(published_profile("h100-llama-8b")).measured_draft("ngram")
    batch, k = 32, 4
    ours = draft.proposal + draft.proposal_per_request * batch + k * draft.pass_per_request * batch
    verify = 2.10103129e-05 * batch * (1 + k) + 5.88590713e-03
    assert ours == pytest.approx(0.005875 * verify, rel=1e-9)


def test_eagle_at_batch_128_on_gsm8k_gains_what_was_published():
    """1.21x at K = 3; 2.379 tokens per step and 189.7 tokens of context from their records."""
    machine = hardware(published_profile("h100-llama-8b"))
    draft = machine.measured_draft("eagle")
    context = round(128 * 189.7)
    plain = machine.verify_seconds(128, 128, context, 0, 0)
    passes = draft.proposal + 3 * (draft.pass_ + draft.pass_per_context_token * context)
    speculating = machine.verify_seconds(128, 512, context, 0, 0) + passes
    assert 2.379 * plain / speculating == pytest.approx(1.21, abs=0.01)
