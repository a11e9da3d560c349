import msgspec
import pytest

from adaptive_spec.sim.engine.options import EngineOptions
from adaptive_spec.sim.oracle import consult
from adaptive_spec.sim.policy_choice import parse_policy
from adaptive_spec.sim.scenario import Scenario, simulate


def scenario(**changes) -> Scenario:
    values = {
        "load": "closed:8",
        "acceptance": ("model:mixed",),
        "drafter": "eagle",
        "hardware": "h100-llama-8b",
        "engine": EngineOptions(max_draft_tokens=5),
        "tokens": 6000,
    }
    return Scenario(**{**values, **changes})


def test_the_best_fixed_k_is_the_best_of_all_of_them():
    oracles = consult(scenario())
    speeds = [result.throughput_tok_s for result in oracles.static]
    assert len(speeds) == 6
    assert speeds[oracles.best_static_k] == max(speeds)
    assert [result.policy for result in oracles.static][:2] == ["static:k=0", "static:k=1"]


def test_k_zero_is_true_no_speculation():
    oracles = consult(scenario())
    off = simulate(scenario(), parse_policy("off"))
    assert oracles.static[0].throughput_tok_s == pytest.approx(off.throughput_tok_s)
    assert oracles.held_against(off).regret.of_no_speculation == pytest.approx(1.0)


def test_knowing_the_future_beats_every_fixed_k():
    oracles = consult(scenario(load="closed:32", hardware="a100-llama-8b", tokens=20_000))
    best = oracles.static[oracles.best_static_k]
    assert oracles.foresight.throughput_tok_s > 1.02 * best.throughput_tok_s
    assert oracles.held_against(best).regret.of_foresight < 0.98


def test_an_open_load_is_scored_by_its_time_per_token():
    open_scenario = scenario(load="poisson:5")
    oracles = consult(open_scenario)
    assert not oracles.closed
    tpots = [result.tpot_ms.mean for result in oracles.static]
    assert tpots[oracles.best_static_k] == min(tpots)


def test_a_load_of_which_nothing_ends_has_no_regret():
    rejected = scenario(engine=EngineOptions(max_draft_tokens=5, kv_tokens=16), load="poisson:5")
    rejected = msgspec.structs.replace(rejected, seconds=20.0, tokens=None)
    off = simulate(rejected, parse_policy("off"))
    assert off.rejected > 0
    assert consult(rejected).held_against(off).regret is None


def test_a_token_tree_has_no_foresight():
    oracles = consult(scenario(drafter="eagle2_tree"))
    assert oracles.foresight is None
    assert oracles.held_against(oracles.static[1]).regret.of_foresight is None


def test_a_scenario_survives_its_json():
    before = scenario(seconds=10.0)
    assert msgspec.json.decode(msgspec.json.encode(before), type=Scenario) == before
