"""`sglang_ema` decides as SGLang's own classes do, batch by batch, on random input.

Needs an environment with SGLang, in which its adaptive parameters can be imported.
"""

import json
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from upstream import upstream_module

from adaptive_spec.sim.baselines.engines.sglang_ema import (
    EmaTier,
    EmaTiers,
    SGLangEmaOptions,
    captured_sizes,
    default_tiers,
)
from adaptive_spec.step import Capability, Level

upstream = upstream_module("sglang.srt.speculative.adaptive_spec_params")

pytestmark = pytest.mark.engine
KMAX = 7
ENGINE = Capability(level=Level.UNIFORM, max_draft_tokens=KMAX)


def pair(
    folder: Path, tiers: list[EmaTier], initial: int, graphs: list[int]
) -> tuple[EmaTiers, Any]:
    """Ours and upstream's, with the same settings."""
    options = SGLangEmaOptions(tiers=tiers, graph_batch_sizes=graphs)
    config = {
        str(tier.batch_size): {
            name: getattr(tier, name) for name in tier.__struct_fields__ if name != "batch_size"
        }
        for tier in tiers
    }
    path = folder / "adaptive.json"
    path.write_text(json.dumps(config))
    theirs = upstream.AdaptiveSpeculativeParams(initial, cfg_path=str(path))
    theirs.set_cuda_graph_bs(graphs or None)
    return EmaTiers(options, ENGINE, initial), theirs


def walk(ours: EmaTiers, theirs: Any, random: np.random.Generator, steps: int) -> int:
    """Drive both with the same batches; how often K changed. Asserts that they agree."""
    changes = 0
    hazard = 0.5
    batch = 1
    for step in range(steps):
        if step % 40 == 0:
            hazard = float(random.choice([0.02, 0.3, 0.6, 0.8, 0.97]))
            batch = int(random.choice([1, 3, 7, 8, 9, 31, 32, 40, 63, 64, 200]))
        size = max(batch + int(random.integers(-1, 2)), 1)
        slot = ours.slot(size)
        assert slot.k == theirs.get_steps_for_batch(size), step
        hits = random.random((size, KMAX)) < hazard
        accepted = np.minimum(hits.cumprod(axis=1).sum(axis=1), slot.k)
        before = slot.k
        slot.record(float(accepted.sum()) / size)
        theirs.on_verify_complete(accepted.tolist(), size)
        changes += slot.k != before
        for mine, known in zip(ours.slots, theirs._slots.values(), strict=True):
            assert (mine.k, mine.ema) == (known.current_steps, known.ema_accept_len), step
    return changes


@pytest.mark.parametrize("initial", [1, 3, 5, 7])
@pytest.mark.parametrize("graphs", [[], [1, 2, 4, 8, 16, 32, 64, 128]])
def test_the_default_tiers_agree_with_sglang_0_5_23_batch_by_batch(
    tmp_path: Path, initial: int, graphs: list[int]
) -> None:
    ours, theirs = pair(tmp_path, default_tiers(), initial, graphs)
    changes = walk(ours, theirs, np.random.default_rng(initial), 4000)
    assert changes > 50


def test_our_defaults_are_those_of_sglang_0_5_23() -> None:
    assert version("sglang") == "0.5.23", "read its rule again, and the names of these tests"
    mine = {
        str(tier.batch_size): {
            "candidate_steps": tier.candidate_steps,
            "up_hysteresis": tier.up_hysteresis,
            "down_hysteresis": tier.down_hysteresis,
            "ceiling_coeff": tier.ceiling_coeff,
        }
        for tier in default_tiers()
    }
    assert mine == upstream.DEFAULT_ADAPTIVE_CONFIG


def test_captured_sizes_are_those_of_sglang_0_5_23() -> None:
    hook = upstream_module("sglang.srt.arg_groups.cuda_graph_hook")
    arguments = SimpleNamespace(disable_cuda_graph_padding=False, speculative_algorithm="EAGLE")
    hook.resolving_view, kept = (lambda given: given), hook.resolving_view
    try:
        assert hook.generate_decode_cuda_graph_batch_sizes(arguments, 256) == captured_sizes()
    finally:
        hook.resolving_view = kept
    tiers = EmaTiers(SGLangEmaOptions(), ENGINE, 3)
    first = [next(n for n in range(1, 300) if tiers.slot(n) is slot) for slot in tiers.slots]
    assert first == [1, 8, 31, 61]


@pytest.mark.parametrize("seed", range(20))
def test_random_settings_agree_with_sglang_0_5_23_batch_by_batch(tmp_path: Path, seed: int) -> None:
    random = np.random.default_rng(1000 + seed)
    tiers = []
    for size in (1, *sorted(random.choice(np.arange(2, 70), 3, replace=False).tolist())):
        count = int(random.integers(1, 5))
        steps = random.choice(np.arange(KMAX + 1), count, replace=False)
        tiers.append(
            EmaTier(
                batch_size=int(size),
                candidate_steps=[int(k) for k in steps],
                ema_alpha=float(random.uniform(0.05, 1.0)),
                update_interval=int(random.integers(1, 8)),
                warmup_batches=int(random.integers(0, 12)),
                up_hysteresis=float(random.uniform(-0.5, 0.5)),
                down_hysteresis=float(random.uniform(-0.5, 0.5)),
                ceiling_coeff=float(random.choice([0.0, 0.5, 1.0, 1.5])),
            )
        )
    ours, theirs = pair(tmp_path, tiers, int(random.integers(0, KMAX + 1)), [])
    walk(ours, theirs, random, 3000)
