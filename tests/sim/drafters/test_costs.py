import pytest

from adaptive_spec.sim.drafters.base import DraftCost
from adaptive_spec.sim.drafters.pricing import TargetShape
from adaptive_spec.sim.drafters.registry import drafter
from adaptive_spec.sim.hardware.profile_file import MeasuredDraft
from tests.sim.drafters.fake_records import FakeHardware

PER_DRAFT = ["draft_model", "eagle", "early_exit", "mtp"]
WHOLE_PROPOSAL = ["block", "medusa", "eagle_tree", "eagle2_tree", "token_tree", "ngram", "suffix"]


@pytest.mark.parametrize("name", PER_DRAFT)
def test_a_chain_costs_more_the_deeper_it_drafts(name):
    cost = drafter(name).cost_on(FakeHardware())
    assert drafter(name).depth_follows
    once = cost.seconds(1, 16, 16_000)
    assert once > 0
    assert cost.seconds(4, 16, 16_000) == pytest.approx(4 * once)


@pytest.mark.parametrize("name", WHOLE_PROPOSAL)
def test_where_the_whole_proposal_is_made_depth_changes_nothing(name):
    cost = drafter(name).cost_on(FakeHardware())
    assert not drafter(name).depth_follows
    assert cost.seconds(1, 16, 16_000) == cost.seconds(8, 16, 16_000) > 0


@pytest.mark.parametrize("name", PER_DRAFT + WHOLE_PROPOSAL)
def test_costs_never_fall_with_the_batch_or_the_context(name):
    cost = drafter(name).cost_on(FakeHardware())
    assert cost.seconds(2, 64, 0) > cost.seconds(2, 1, 0)
    assert cost.seconds(2, 16, 100_000) >= cost.seconds(2, 16, 0)


def test_a_price_is_the_share_of_the_targets_pass_where_that_is_linear():
    hardware = FakeHardware()
    cost = drafter("draft_model:share=0.25").cost_on(hardware)
    for batch, context in ((1, 0), (7, 3_000), (64, 65_536), (200, 400_000)):
        token = 0.25 * (
            hardware.verify_seconds(64, 65, 0, 0, 0) - hardware.verify_seconds(64, 64, 0, 0, 0)
        )
        # Each draft is one token more, per request, for the drafter to run over.
        expected = 3 * (hardware.pass_seconds(0.25, batch, context) + token * batch)
        assert cost.seconds(3, batch, context) == pytest.approx(expected)


@pytest.mark.parametrize(("weights", "layers", "width"), [(16.06e9, 32, 4096), (141.1e9, 80, 8192)])
def test_the_shape_of_llama_follows_from_its_weights_and_layers(weights, layers, width):
    shape = TargetShape.of(FakeHardware(weight_bytes=weights, layers=layers))
    assert shape.width == pytest.approx(width, rel=0.01)
    assert layers * shape.layer + 2 * shape.head == pytest.approx(1.0)


def test_an_eagle_pass_is_a_layer_and_the_head():
    hardware = FakeHardware()
    # Llama-3.1-8B: 218 M parameters of a layer, 525 M of the head, 8.03 G in all.
    expected = hardware.pass_seconds((218 + 525) / 8030, 1, 0)
    assert drafter("eagle").cost_on(hardware).seconds(1, 1, 0) == pytest.approx(expected, rel=0.01)


def test_eagle_takes_the_memory_of_a_layer():
    assert drafter("eagle").weight_bytes(FakeHardware()) == pytest.approx(2 * 218e6, rel=0.01)
    assert drafter("eagle").kv_share(FakeHardware()) == 1 / 32


def test_medusa_takes_the_memory_of_four_heads():
    parameters = 4 * (4096**2 + 128_256 * 4096)
    taken = drafter("medusa").weight_bytes(FakeHardware())
    assert taken == pytest.approx(2 * parameters, rel=0.02)


@pytest.mark.parametrize("name", PER_DRAFT + WHOLE_PROPOSAL)
def test_a_measurement_on_the_hardware_overrides_shapes(name):
    measured = MeasuredDraft(proposal=1e-3, proposal_per_request=1e-6, source="measured here")
    hardware = FakeHardware(measured={name: measured, "other": MeasuredDraft(proposal=9.0)})
    cost = drafter(name).cost_on(hardware)
    assert cost.seconds(3, 10, 5_000) == pytest.approx(1e-3 + 10e-6)


def test_measured_passes_count_once_for_a_block_and_by_depth_for_a_chain():
    measured = MeasuredDraft(pass_=1e-3, pass_per_request=1e-5, pass_per_context_token=1e-8)
    hardware = FakeHardware(measured={"eagle": measured, "block": measured})
    one = 1e-3 + 10 * 1e-5 + 5_000 * 1e-8
    assert drafter("eagle").cost_on(hardware).seconds(3, 10, 5_000) == pytest.approx(3 * one)
    assert drafter("block").cost_on(hardware).seconds(3, 10, 5_000) == pytest.approx(one)


def test_a_tree_runs_a_pass_per_level():
    hardware = FakeHardware()
    shallow = drafter("eagle2_tree:levels=3").cost_on(hardware).seconds(1, 8, 8_000)
    deep = drafter("eagle2_tree:levels=6").cost_on(hardware).seconds(1, 8, 8_000)
    assert deep == pytest.approx(2 * shallow)


def test_staying_in_step_is_one_pass_even_of_a_tree():
    cost = DraftCost(proposal=1.0, pass_=2.0, pass_per_request=0.5, fixed_passes=6)
    assert cost.seconds(1, 2, 0) == 1.0 + 6 * 3.0
    assert cost.warm_seconds(2, 0) == 1.0 + 3.0


def test_n_gram_drafting_is_a_small_share_of_the_targets_pass():
    hardware = FakeHardware()
    cost = drafter("ngram").cost_on(hardware)
    for batch in (1, 64):
        verify = hardware.verify_seconds(batch, batch, 0, 0, 0)
        assert cost.seconds(5, batch, 10_000) == pytest.approx(0.005 * verify)


@pytest.mark.parametrize("k", range(6))
def test_lookahead_rides_in_the_targets_pass(k):
    made = drafter("lookahead")
    assert made.cost_on(FakeHardware()).seconds(4, 64, 10_000) == 0.0
    # With the published W 15, N 5, G 15 a step computes 1 + (W + G)(N - 1) = 121 tokens.
    expected = {0: 0, 4: 120 - 4, 5: 120 - 4}
    if k in expected:
        assert made.extra_tokens(k) == expected[k]
    assert k == 0 or made.extra_tokens(k) >= made.extra_tokens(k - 1)


@pytest.mark.parametrize("name", PER_DRAFT + WHOLE_PROPOSAL + ["none"])
def test_no_other_drafter_adds_tokens_to_the_targets_pass(name):
    assert [drafter(name).extra_tokens(k) for k in range(9)] == [0] * 9
