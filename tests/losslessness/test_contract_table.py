"""The table of docs/losslessness.md: which rules are exact, and how far off the others are.

Joint laws by enumeration: three tokens, two drafts, two requests, 20 random pairs of models. A bias
is the largest total variation distance among them.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from adaptive_spec import Capability, Level
from adaptive_spec.policies.static import StaticOptions
from adaptive_spec.policy import Policy
from tests.losslessness.exact import rules
from tests.losslessness.exact.joint_law import Found, Shown, distance, enumerate_batch
from tests.losslessness.exact.models import Model, random_model, without_token
from tests.losslessness.exact.request import DRAWN_AND_VERIFIED, INVALID, Request, Rules
from tests.losslessness.exact.rules import ByEntropy, ByHistory, Planted, Rule, Tetris
from tests.losslessness.exact.server import Server, Signal

EXACT = 1e-12
MODELS = 20
VERIFY = Capability(level=Level.VERIFY, max_draft_tokens=2)


def found_for(
    policy: Callable[[], Policy],
    engine: Rules = DRAWN_AND_VERIFIED,
    *,
    capability: Capability = VERIFY,
    shown: Shown = "maximum",
    signal: Signal = "live",
    rounds: int = 1,
    models: int = MODELS,
) -> list[Found]:
    results = []
    for seed in range(models):
        random = np.random.default_rng(seed)
        requests = [Request(random_model(random), engine) for _ in range(2)]
        server = Server(policy(), capability, signal=signal)
        results.append(enumerate_batch(server, requests, shown=shown, rounds=rounds))
    return results


def bias(results: list[Found]) -> float:
    return max(each.bias for each in results)


def marginal_bias(results: list[Found]) -> float:
    return max(each.marginal_bias for each in results)


EXACT_RULES: dict[str, Rule] = {
    "stale budget, live ranking by survival": rules.best_two,
    "stale multiplier": rules.stale_multiplier,
    "live budget that ends at the first fall": rules.live_first_fall,
    "trim by the position's own maximum": rules.trim,
    "one request by the other's verified positions": rules.one_way,
    "both by the first positions": rules.first_positions,
    "padding filled frontier by frontier": rules.frontier_fill,
}
BIASED_RULES: dict[str, Rule] = {
    "budget from live confidences": rules.live_argmax,
    "multiplier from live confidences": rules.live_multiplier,
    "stale budget, live ranking by hazard": rules.best_two_by_hazard,
    "all or nothing by the last position": rules.last_position,
    "cut to a smaller batch by survival at the last draft": rules.least_sure_loses,
    "padding filled with the live least certain anywhere": rules.global_fill,
}
FIGURES = {
    "threshold on q of the drafted token": 0.207,
    "TETRIS, by q of the drafted token": 0.167,
    "budget from live confidences": 0.141,
    "multiplier from live confidences": 0.141,
    "stale budget, live ranking by hazard": 0.151,
    "all or nothing by the last position": 0.187,
    "each of two by the other's live confidence, joint": 0.052,
    "a drafted end of text is left out": 0.237,
    "a sampled draft that the grammar rules out is left out": 0.133,
    "cut to a smaller batch by survival at the last draft": 0.176,
    "padding filled with the live least certain anywhere": 0.141,
    "source of drafts by q of the drafted token": 0.154,
    "source of drafts by a deeper position": 0.187,
    "looked-up drafts verified as if drawn from q": 0.609,
}
"""Largest bias of one request's law; of the joint law where it says so."""


def figure(name: str) -> object:
    return pytest.approx(FIGURES[name], abs=5e-4)


def test_the_document_has_these_figures() -> None:
    text = (Path(__file__).parents[2] / "docs/losslessness.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")] for line in text.splitlines()]
    table = {row[1]: row[2] for row in rows if len(row) == 4}
    for name, value in FIGURES.items():
        assert table[name] == f"biased, {value:.3f}"


@pytest.mark.parametrize("rule", EXACT_RULES.values(), ids=EXACT_RULES)
def test_an_exact_rule_keeps_the_joint_law(rule: Rule) -> None:
    results = found_for(lambda: Planted(rule))
    assert bias(results) < EXACT
    if rule is not rules.first_positions:  # constant within a round, by what it says
        assert max(each.plans for each in results) > 1


@pytest.mark.parametrize("name", BIASED_RULES)
def test_a_biased_rule_changes_each_requests_law(name: str) -> None:
    assert marginal_bias(found_for(lambda: Planted(BIASED_RULES[name]))) == figure(name)


def test_a_trim_by_entropy_is_exact() -> None:
    results = found_for(lambda: ByEntropy(rules.trim_by_entropy))
    assert bias(results) < EXACT
    assert max(each.plans for each in results) > 1


def test_a_threshold_on_the_drafted_tokens_probability_is_biased() -> None:
    results = found_for(lambda: Planted(rules.trim), shown="token")
    assert marginal_bias(results) == figure("threshold on q of the drafted token")


def test_tetris_is_biased_by_the_drafted_tokens_probability_only() -> None:
    def policy() -> Policy:
        return Tetris(StaticOptions())

    results = found_for(policy, shown="token")
    assert marginal_bias(results) == figure("TETRIS, by q of the drafted token")
    # The number of drafts is fixed, so that the maximum, which the seam carries, is harmless.
    assert bias(found_for(policy)) < EXACT
    greedy = found_for(policy, Rules(drafting="greedy"), shown="token", models=6)
    assert bias(greedy) < EXACT


def test_each_by_the_other_is_right_for_each_and_wrong_for_both() -> None:
    results = found_for(lambda: Planted(rules.by_the_other))
    assert marginal_bias(results) < EXACT
    assert bias(results) == figure("each of two by the other's live confidence, joint")


def test_a_drafted_end_of_text_must_be_verified() -> None:
    left_out = found_for(lambda: Planted(rules.all_of_it), Rules(eos="left out"))
    assert marginal_bias(left_out) == figure("a drafted end of text is left out")
    assert bias(left_out) == pytest.approx(0.316, abs=5e-4)
    assert bias(found_for(lambda: Planted(rules.all_of_it), Rules(eos="verified"))) < EXACT


def grammar_bias(*, drops: bool, masked: bool) -> float:
    """Of one request, of 10 pairs of models, with a target that never emits token 2."""
    worst = 0.0
    for seed in range(10):
        model = random_model(np.random.default_rng(seed))
        draft = without_token(model.draft, INVALID) if masked else model.draft
        target = without_token(model.target, INVALID)
        request = Request(Model(target, draft), Rules(grammar_drops=drops))
        server = Server(Planted(rules.all_of_it), VERIFY)
        joint = enumerate_batch(server, [request, request]).joint
        worst = max(worst, distance(joint.sum(axis=1), request.continued(())))
    return worst


def test_what_the_grammar_rules_out_is_verified_or_never_drawn() -> None:
    left_out = grammar_bias(drops=True, masked=False)
    assert left_out == figure("a sampled draft that the grammar rules out is left out")
    assert grammar_bias(drops=False, masked=False) < EXACT
    assert grammar_bias(drops=True, masked=True) < EXACT


@pytest.mark.parametrize("looks_at", ["accepted", "seconds", "confidence"])
def test_what_finished_rounds_have_shown_is_free_to_use(looks_at: str) -> None:
    results = found_for(lambda: ByHistory(looks_at), rounds=2, models=2)
    assert bias(results) < EXACT
    assert min(each.plans for each in results) > 1


def test_late_confidences_are_exact_where_live_ones_are_not() -> None:
    def policy() -> Policy:
        return Planted(lambda said: rules.last_position(np.nan_to_num(said, nan=1.0)))

    late = found_for(policy, signal="late", rounds=2, models=2)
    assert bias(late) < EXACT
    assert min(each.plans for each in late) > 1
    assert bias(found_for(policy, rounds=2, models=2)) > 0.01


def test_a_limit_of_tokens_is_exact() -> None:
    results = found_for(lambda: Planted(rules.best_two), Rules(capped=True), rounds=2, models=2)
    assert bias(results) < EXACT


RULES = {
    **{name: (rule, "maximum") for name, rule in EXACT_RULES.items()},
    **{name: (rule, "maximum") for name, rule in BIASED_RULES.items()},
    "threshold on the token's probability": (rules.trim, "token"),
    "each by the other": (rules.by_the_other, "maximum"),
}


@pytest.mark.parametrize(("rule", "shown"), RULES.values(), ids=RULES)
def test_every_rule_is_exact_with_greedy_drafts(rule: Rule, shown: Shown) -> None:
    engine = Rules(drafting="greedy")
    assert bias(found_for(lambda: Planted(rule), engine, shown=shown, models=6)) < EXACT


def test_greedy_drafts_must_not_be_judged_as_if_they_were_drawn() -> None:
    engine = Rules(drafting="greedy, judged by q")
    assert bias(found_for(lambda: Planted(rules.best_two), engine, models=3)) > 0.4
