"""A drafter and a look-up beside it, from the file to the throughput."""

import json
from pathlib import Path

import numpy as np
import pytest

from adaptive_spec.errors import DataError
from adaptive_spec.sim.acceptance.files import load_acceptance
from adaptive_spec.sim.acceptance.pool import pool, select
from adaptive_spec.sim.drafters.registry import drafter
from adaptive_spec.sim.engine.options import EngineOptions
from adaptive_spec.sim.oracle import consult
from adaptive_spec.sim.policy_choice import parse_policy
from adaptive_spec.sim.scenario import Scenario, simulate
from tests.refused import refused

BOTH = "eagle+ngram"
KMAX = 6
POLICY = "goodput"


def runs_of(right: np.ndarray) -> list[int]:
    """Accepted length at each position, where `right` says which tokens could be drafted."""
    lengths, run = [], 0
    for token in right[::-1].tolist():
        lengths.append(1 + run)
        run = min(run + 1, 20) if token else 0
    return lengths[::-1]


@pytest.fixture(scope="module")
def copying(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Outputs of 300 tokens: stretches that repeat earlier text, and stretches that don't."""
    random, rows = np.random.default_rng(0), []
    for _ in range(60):
        copies = np.repeat(random.random(10) < 0.4, 30)
        model = random.random(300) < 0.6
        look_up = random.random(300) < np.where(copies, 0.97, 0.05)
        rows.append({"eagle": runs_of(model), "ngram": runs_of(look_up), "prompt_len": 50})
    rows.append({"eagle": [1, 1], "ngram": [1], "prompt_len": 50})  # of another text
    file = tmp_path_factory.mktemp("records") / "copying.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


def scenario(file: str, drafter: str = "hybrid", **changes: object) -> Scenario:
    values: dict[str, object] = {
        "load": "closed:8",
        "acceptance": (file,),
        "drafter": drafter,
        "hardware": "h100-llama-8b",
        "engine": EngineOptions(max_draft_tokens=KMAX),
        "tokens": 16_000,
        "warmup_tokens": 4_000,
    }
    return Scenario(**{**values, **changes})


def test_rows_of_one_text_are_read_with_both_lists(copying: str) -> None:
    data = load_acceptance([copying], drafter_list=BOTH, seed=0, kmax=KMAX)
    assert data.records == 60
    assert len(data.lookup.right) == len(data.accepted)
    assert data.lookup.right.max() == 20
    one = select(data, np.array([3]))
    assert one.lookup.right.tolist() == data.lookup.right[900:1200].tolist()
    alone = load_acceptance([copying], drafter_list="eagle", seed=0, kmax=KMAX)
    mixed = pool([one, alone], seed=0)
    assert len(mixed.lookup.right) == len(mixed.accepted)
    assert mixed.lookup.right.sum() == one.lookup.right.sum()


def test_proposals_and_matches_are_read_where_they_were_recorded(tmp_path: Path) -> None:
    row = {"eagle": [3, 2, 1], "ngram": [1, 4, 2]}
    file = tmp_path / "row.jsonl"
    file.write_text(json.dumps(row | {"ngram_proposed": [0, 5, 2], "ngram_match": [0, 7, 300]}))
    data = load_acceptance([file], drafter_list=BOTH, seed=0, kmax=KMAX)
    shaped = drafter("hybrid").shape(data, np.random.default_rng(0)).lookup
    assert shaped.right.tolist() == [0, 3, 1]
    assert shaped.proposed.tolist() == [0, 5, 2]
    assert shaped.match.tolist() == [0, 7, 254]


def test_data_without_a_look_up_are_refused_in_one_line(tmp_path: Path) -> None:
    with refused(DataError, "no list of a look-up"):
        simulate(scenario("model:good"), parse_policy("goodput"))
    file = tmp_path / "other.jsonl"
    file.write_text(json.dumps({"eagle": [1, 1], "ngram": [1]}))
    with pytest.raises(DataError, match="of one length"):
        load_acceptance([file], drafter_list=BOTH, seed=0, kmax=KMAX)


def test_both_together_beat_each_alone_and_foresight_both(copying: str) -> None:
    alone = [
        simulate(scenario(copying, name), parse_policy(POLICY)).throughput_tok_s
        for name in ("eagle", "suffix")
    ]
    together = simulate(scenario(copying), parse_policy(POLICY))
    assert together.throughput_tok_s > 1.1 * max(alone)
    assert together.fail_opens == 0
    oracles = consult(scenario(copying))
    assert oracles.foresight.throughput_tok_s > together.throughput_tok_s


def test_a_look_up_that_is_never_right_costs_next_to_nothing(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    rows = [
        {"eagle": runs_of(random.random(300) < 0.6), "ngram": [1] * 300, "prompt_len": 50}
        for _ in range(30)
    ]
    file = tmp_path / "prose.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    alone = simulate(scenario(str(file), "eagle"), parse_policy(POLICY))
    both = simulate(scenario(str(file)), parse_policy(POLICY))
    assert both.throughput_tok_s > 0.99 * alone.throughput_tok_s


def test_one_client_whose_text_copies_is_served_without_the_drafter_s_pass(tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    rows = [
        {
            "eagle": runs_of(random.random(300) < 0.4),
            "ngram": runs_of(random.random(300) < 0.97),
            "prompt_len": 50,
        }
        for _ in range(30)
    ]
    file = tmp_path / "edits.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    one = {"load": "closed:1", "tokens": 8_000, "warmup_tokens": 2_000}
    alone = simulate(scenario(str(file), "suffix", **one), parse_policy(POLICY))
    both = simulate(scenario(str(file), **one), parse_policy(POLICY))
    assert both.throughput_tok_s > 0.99 * alone.throughput_tok_s
    assert both.fail_opens == 0


@pytest.mark.long
def test_one_client_writing_json_is_fastest_with_both_sources() -> None:
    """The drafter is weighed for the server, not by request: 1.6 % behind the suffix trees."""

    def speed(drafter: str) -> float:
        run = scenario(
            "record:two_sources+target:json",
            drafter,
            load="closed:1",
            engine=EngineOptions(max_draft_tokens=8),
            tokens=6_000,
            warmup_tokens=2_000,
        )
        return simulate(run, parse_policy(POLICY)).score(closed=True)

    assert speed("hybrid") > 0.98 * max(speed("suffix"), speed("eagle"))
