"""Accepted lengths that others measured, against the model's."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from adaptive_spec.sim.drafters.registry import drafter
from adaptive_spec.sim.drafters.trees import EAGLE_HAZARDS
from tests.sim.drafters.fake_records import accepted_by_tree, chain_data, mean_emitted

MT_BENCH = {
    "writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities",
}  # fmt: skip


def measured_mean(path: Path) -> float:
    """Tokens per step on MT-Bench."""
    steps = tokens = 0
    with gzip.open(path, "rt") as lines:
        for line in lines:
            row = json.loads(line)
            if row["category"] in MT_BENCH:
                for turn in row["accept_lengths"]:
                    steps, tokens = steps + len(turn), tokens + sum(turn)
    return tokens / steps


def modelled_mean(name: str, nodes: int, levels: int = 5) -> float:
    """With EAGLE's published chain acceptance for Vicuna-7B on MT-Bench."""
    hazards = (*EAGLE_HAZARDS, EAGLE_HAZARDS[-1])[:levels]
    data = chain_data(hazards, positions=40_000, record=400)
    shaped = drafter(name).shape(data, np.random.default_rng(1))
    return mean_emitted(accepted_by_tree(shaped, nodes), data.offsets)


@pytest.mark.parametrize(
    ("file", "mean", "name", "nodes"),
    [
        # Only the first level's tail was taken from this file; the mean was not fitted.
        ("specbench_vicuna7b_eagle1_yukiki", 3.84, "eagle_tree", 25),
        # Nothing was fitted to this file.
        ("mtbench_vicuna7b_medusa_bnukh", 2.52, "medusa", 63),
    ],
)
def test_trees_on_mt_bench(data, file, mean, name, nodes):
    measured = measured_mean(data / "acceptance" / f"{file}.jsonl.gz")
    assert measured == pytest.approx(mean, abs=0.01)
    assert modelled_mean(name, nodes) == pytest.approx(measured, rel=0.07)


def test_eagles_tree_in_the_paper():
    # EAGLE, arXiv 2401.15077, table 2: tau of Vicuna-7B, greedy, MT-Bench.
    assert modelled_mean("eagle_tree", 25) == pytest.approx(3.94, rel=0.05)


def test_a_dynamic_tree_gains_over_the_static_one_as_much_as_published():
    # Spec-Bench leaderboard, Vicuna-7B: EAGLE-2 4.35, EAGLE 3.57 mean accepted tokens.
    ratio = modelled_mean("eagle2_tree", 60, levels=6) / modelled_mean("eagle_tree", 25)
    assert ratio == pytest.approx(4.35 / 3.57, rel=0.07)
