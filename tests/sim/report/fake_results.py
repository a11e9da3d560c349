"""Results with known figures: score = K's or policy's factor x concurrency."""

from collections.abc import Mapping

import msgspec

from adaptive_spec.sim.oracle import Oracles
from adaptive_spec.sim.result import Percentiles, Result
from adaptive_spec.sim.sweep.cells import CellName
from adaptive_spec.sim.sweep.config import SweepConfig
from adaptive_spec.sim.sweep.results import Row, SweepResults


def result(policy: str, throughput: float, **more: object) -> Result:
    values = {
        "policy": policy,
        "throughput_tok_s": throughput,
        "ttft_ms": Percentiles(10, 20, 30, 12),
        "tpot_ms": Percentiles(
            1e5 / throughput, 2e5 / throughput, 3e5 / throughput, 1e5 / throughput
        ),
        "goodput_req_s": None,
        "mean_k": 2.0,
        "accepted_per_step": 1.0,
        "mode_fraction": {"on": 1.0},
        "decision_us": Percentiles(50, 60, 70, 55),
        "steps": 100,
        "tokens": 1000,
        "seconds": 1.0,
        "requests": 10,
        "rejected": 0,
        "preemptions": 0,
        "mean_batch": 4.0,
        "kv_peak": 0.1,
        "k_fraction": {"2": 1.0},
        "fail_opens": 0,
        "simulation_seconds": 0.1,
    }
    return Result(**(values | more))


def results(
    scores: Mapping[str, Mapping[str, tuple[float, ...]]],
    fixed: Mapping[str, tuple[float, float, float]],
    foresight: float | None = None,
    acceptance: tuple[str, ...] = ("one",),
    **more: object,
) -> SweepResults:
    """A sweep's results.

    Args:
        scores: throughput by policy, load and seed.
        fixed: throughput of K = 0, 1, 2 by load.
        foresight: throughput of perfect foresight on all loads.
        acceptance: names of settings, all with the same figures.
        more: fields of every policy's result.
    """
    seeds = len(next(iter(next(iter(scores.values())).values())))
    config = SweepConfig(
        policies=tuple(scores),
        acceptance=dict.fromkeys(acceptance, "made-up.jsonl"),
        drafters=("eagle",),
        hardware=("h100-llama-8b",),
        loads=tuple(fixed),
        seeds=seeds,
        tokens=1000,
    )
    rows = []
    for name in acceptance:
        for load, by_k in fixed.items():
            for seed in range(seeds):
                cell = CellName(name, "eagle", "h100-llama-8b", "default", load, seed)
                static = tuple(result(f"static:k={k}", x) for k, x in enumerate(by_k))
                best = None if foresight is None else result("foresight", foresight)
                oracles = Oracles(closed=True, static=static, foresight=best)
                found = [
                    ("policy", result(policy, scores[policy][load][seed], **more))
                    for policy in scores
                ]
                found += [("static", each) for each in static]
                found += [("foresight", best)] if best else []
                rows += [
                    Row(cell=cell, kind=kind, closed=True, gpus=2, result=oracles.held_against(r))
                    for kind, r in found
                ]
    return SweepResults(version="0", config=config, rows=tuple(rows))


def without_oracles(results: SweepResults) -> SweepResults:
    rows = [
        msgspec.structs.replace(row, result=msgspec.structs.replace(row.result, regret=None))
        for row in results.rows
        if row.kind == "policy"
    ]
    return msgspec.structs.replace(results, rows=tuple(rows))
