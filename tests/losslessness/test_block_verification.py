"""Block verification (vLLM's `rejection_sample_method: block`), by enumeration.

A later draft may save an earlier one there. How often the first j drafts are accepted does not
depend on it: the chance of that, given these drafts, is the ratio that they have kept, however many
come after them. So the contract and the labels are those of ordinary verification.
"""

import numpy as np
import pytest

from adaptive_spec.step import FloatArray
from tests.losslessness.exact import rules
from tests.losslessness.exact.joint_law import enumerate_batch
from tests.losslessness.exact.models import random_model
from tests.losslessness.exact.request import Request, Rules
from tests.losslessness.exact.rules import Planted, Rule
from tests.losslessness.exact.shipped import NAMES, engines, experienced, shipped
from tests.losslessness.test_contract_table import EXACT, EXACT_RULES, bias, found_for

BLOCKS = Rules(blocks=True)
BIASED_RULES: dict[str, Rule] = {
    "all or nothing by the last position": rules.last_position,
    "live ranking by hazard": rules.best_two_by_hazard,
    "budget from live confidences": rules.live_argmax,
}


def survival(request: Request, k: int) -> FloatArray:
    """[3] how often at least 1, 2, 3 drafts are accepted if k are verified."""
    found = np.zeros(4)
    for drafts, chance in request.drafts(()):
        for emitted, share in request.emitted((), drafts, k).items():
            found[1 : emitted.accepted + 1] += chance * share
    return found[1:]


@pytest.mark.parametrize("rule", EXACT_RULES.values(), ids=EXACT_RULES)
def test_an_exact_rule_keeps_the_joint_law(rule: Rule) -> None:
    assert bias(found_for(lambda: Planted(rule), BLOCKS)) < EXACT


@pytest.mark.parametrize("rule", BIASED_RULES.values(), ids=BIASED_RULES)
def test_a_biased_rule_is_biased(rule: Rule) -> None:
    assert bias(found_for(lambda: Planted(rule), BLOCKS, models=5)) > 0.05


@pytest.mark.parametrize("seed", range(10))
def test_survival_does_not_depend_on_k_and_is_not_below_that_of_single_drafts(seed: int) -> None:
    model = random_model(np.random.default_rng(seed))
    blocks = Request(model, Rules(depth=3, blocks=True))
    found = survival(blocks, 3)
    for k in (1, 2):
        assert survival(blocks, k)[:k] == pytest.approx(found[:k], abs=EXACT)
    single = survival(Request(model, Rules(depth=3)), 3)
    assert (found >= single - EXACT).all()
    assert found[2] > single[2] + 0.01


@pytest.mark.parametrize("engine", engines(3))
@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_policy_keeps_the_joint_law(name: str, engine: str) -> None:
    text = experienced(shipped(name), engines(3)[engine], 40, blocks=True)
    for _ in range(2):
        assert enumerate_batch(text.server, text.requests).bias < EXACT
        text.run(1)
