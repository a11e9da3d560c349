"""Rules that bias sampled output are found out by two worlds, and sound ones pass.

The rules are those of the table in the losslessness contract, for any batch and depth. Which of
them are biased is computed: the joint law of two requests' output, by exact enumeration.
"""

from collections.abc import Callable

import msgspec
import numpy as np
import pytest

from adaptive_spec import Capability, Level, SpecPlan, check_policy
from adaptive_spec.policy import Provenance, build_policy
from adaptive_spec.step import FloatArray, IntArray, StepContext
from adaptive_spec.testing.fake_engine import KMAX, capabilities
from adaptive_spec.testing.noninterference import check_noninterference
from tests.losslessness.exact import rules
from tests.losslessness.exact.rules import leading
from tests.losslessness.test_contract_table import EXACT, bias, found_for

Rule = Callable[[FloatArray], IntArray]
"""[B, depth] confidence -> [B] K, before the drafts at hand limit it."""


def best(values: FloatArray, number: int) -> IntArray:
    """The `number` highest values; ties to the shallower position."""
    order = np.argsort(-values.T.ravel(), kind="stable")[:number]
    chosen = np.zeros(values.size, dtype=np.bool_)
    chosen[order] = True
    return leading(chosen.reshape(values.T.shape).T)


def threshold(confidence: FloatArray) -> IntArray:
    return leading(confidence > 0.5)


def keep_the_fallen(confidence: FloatArray) -> IntArray:
    return np.minimum(threshold(confidence) + 1, confidence.shape[1])


def ranked(confidence: FloatArray) -> IntArray:
    return best(confidence.cumprod(axis=1), len(confidence))


def one_way(confidence: FloatArray) -> IntArray:
    first = threshold(confidence[:1])
    known = confidence[0, : first[0] + 1].min()
    return np.concatenate([first, leading(confidence[1:] > known)])


def last_position(confidence: FloatArray) -> IntArray:
    return np.where(confidence[:, -1] > 0.5, confidence.shape[1], 0)


def live_budget(confidence: FloatArray) -> IntArray:
    return best(confidence.cumprod(axis=1), int((confidence > 0.5).sum()))


def ranked_by_hazard(confidence: FloatArray) -> IntArray:
    return best(confidence, len(confidence))


def taken_back(confidence: FloatArray) -> IntArray:
    """An early exit at the first fall, less the draft before it."""
    return np.maximum(threshold(confidence) - 1, 0)


def staircase_argmax(confidence: FloatArray) -> IntArray:
    survival = confidence.cumprod(axis=1)
    total = np.concatenate([[0.0], np.cumsum(-np.sort(-survival.ravel()))])
    seconds = 1.0 + 0.8 / len(confidence) * (np.arange(len(total)) // 2)
    return best(survival, int(np.argmax((len(confidence) + total) / seconds)))


def each_by_the_others_deeper(confidence: FloatArray) -> IntArray:
    return np.where(np.roll(confidence[:, 1], 1) > 0.5, 2, 0)


SOUND: dict[str, Rule] = {
    "threshold on a position's own distribution": threshold,
    "early exit, all that was drafted verified": keep_the_fallen,
    "stale budget, ranked by survival": ranked,
    "one request by another's admitted positions": one_way,
}
BIASED: dict[str, Rule] = {
    "threshold on the last position": last_position,
    "budget from live confidence": live_budget,
    "stale budget, ranked by hazard": ranked_by_hazard,
    "the last draft taken back": taken_back,
    "argmax over a staircase of live confidence": staircase_argmax,
    "each request by the other's deeper position": each_by_the_others_deeper,
}


class Planted(rules.Planted):
    """Verifies what a rule says, and all where nothing is shown."""

    def plan(self, context: StepContext) -> SpecPlan:
        wanted = context.draft_available
        if context.confidence is not None and context.batch_size:
            wanted = self.rule(np.nan_to_num(context.confidence, nan=0.4))
            if context.capability.level is Level.UNIFORM:
                rungs = context.capability.uniform_values
                wanted = max(rung for rung in rungs if rung <= wanted.max())
        return self.planned(context, np.minimum(context.draft_available, wanted))


VERIFY = Capability(level=Level.VERIFY, max_draft_tokens=KMAX)


@pytest.mark.parametrize("rule", SOUND.values(), ids=SOUND)
def test_a_sound_rule_passes(rule: Rule) -> None:
    found = check_noninterference(Planted(rule), VERIFY)
    assert found.decided_by_signal > 0


@pytest.mark.parametrize("rule", BIASED.values(), ids=BIASED)
def test_a_biased_rule_is_found_out(rule: Rule) -> None:
    with pytest.raises(AssertionError, match="sampled output is biased"):
        check_noninterference(Planted(rule), VERIFY)


def test_a_k_rounded_down_to_the_ladder_is_found_out() -> None:
    plain, gaps = capabilities(Level.UNIFORM)
    check_noninterference(Planted(threshold), plain)
    with pytest.raises(AssertionError, match="biased"):
        check_noninterference(Planted(threshold), gaps)


def test_a_rule_for_greedy_drafts_only_is_exempt_and_the_report_says_so() -> None:
    class Greedy(Planted):
        provenance = Provenance(source="a paper", faults="looks ahead", greedy_drafts_only=True)

    report = check_policy(lambda seed: Greedy(last_position), levels=[Level.VERIFY])
    assert (report.rounds, report.exempt) == (0, "for greedy drafts only: looks ahead")
    with pytest.raises(AssertionError, match="biased"):
        check_policy(lambda seed: Planted(last_position), levels=[Level.VERIFY])
    checked = check_policy(lambda seed: Planted(threshold), levels=[Level.VERIFY])
    assert checked.rounds > 0
    assert checked.decided_by_signal > 0
    assert not checked.exempt


class TakesOther(Planted):
    """Looked-up drafts where the drafter is less sure of a position than this."""

    def __init__(self, position: int) -> None:
        super().__init__(threshold)
        self._position = position

    def plan(self, context: StepContext) -> SpecPlan:
        made = super().plan(context)
        assert context.lookup_available is not None
        unsure = np.nan_to_num(context.confidence[:, self._position], nan=1.0) < 0.5
        return msgspec.structs.replace(
            made, from_lookup=unsure, verify=np.where(unsure, context.lookup_available, made.verify)
        )


def test_a_source_chosen_by_a_position_is_sound_for_the_first_only() -> None:
    assert check_noninterference(TakesOther(0), VERIFY, lookup=True).decided_by_signal > 0
    with pytest.raises(AssertionError, match="sampled output is biased"):
        check_noninterference(TakesOther(2), VERIFY, lookup=True)


def test_goodput_chooses_between_two_sources_by_finished_rounds() -> None:
    found = check_noninterference(build_policy("goodput"), VERIFY, lookup=True)
    assert found.rounds > 0


def test_a_policy_whose_copy_shares_its_random_generator_is_told_to_change() -> None:
    random = np.random.default_rng(0)
    with pytest.raises(AssertionError, match="copy"):
        check_noninterference(
            Planted(lambda confidence: random.integers(0, 3, len(confidence))), VERIFY
        )


@pytest.mark.parametrize("rule", SOUND.values(), ids=SOUND)
def test_the_joint_law_of_a_sound_rule_is_the_targets(rule: Rule) -> None:
    assert bias(found_for(lambda: rules.Planted(rule))) < EXACT


@pytest.mark.parametrize("rule", BIASED.values(), ids=BIASED)
def test_the_joint_law_of_a_biased_rule_is_not(rule: Rule) -> None:
    assert bias(found_for(lambda: rules.Planted(rule))) > 0.005
