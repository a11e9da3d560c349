"""What a sweep found, in a few figures per policy and load."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

import msgspec

from adaptive_spec.sim.results.result import Regret
from adaptive_spec.sim.sweep.results import Row, SweepResults, group_rows

ALL_LOADS = "all loads"


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """A policy on a load, over all cells that have it. Ratios of scores; None without oracles.

    Attributes:
        load: its name, or `ALL_LOADS`; in a sweep of groups, the group's.
        policy: as configured.
        cells: how many were run.
        of_best_static_mean, of_best_static_worst: over the best fixed K of each cell.
        of_no_speculation_worst: over true no speculation.
        of_foresight_mean: over perfect foresight.
        regret: 1 - of_best_static_mean.
        throughput_tok_s: mean over the cells.
        tpot_p50_ms, tpot_p99_ms: mean over the cells.
        decision_p99_us: the worst cell's.
        switches: times speculation went off or on again, per 1,000 steps.
        changes: changes of acceptance or load that a policy could recover from.
        recovered: those it has recovered from; see `sim.segments`.
        recovery_seconds: median over those.
        fail_opens: decisions that could not be used, in all.
    """

    load: str
    policy: str
    cells: int
    of_best_static_mean: float | None
    of_best_static_worst: float | None
    of_no_speculation_worst: float | None
    of_foresight_mean: float | None
    regret: float | None
    throughput_tok_s: float
    tpot_p50_ms: float | None
    tpot_p99_ms: float | None
    decision_p99_us: float | None
    switches: float
    changes: int
    recovered: int
    recovery_seconds: float | None
    fail_opens: int


def summarise(results: SweepResults) -> list[Summary]:
    """Per load in the configured order, best first; with several loads, all of them at the end.

    In a sweep of groups per group: only there all policies have run on the same cells.
    """
    rows = [row for row in results.rows if row.kind == "policy"]
    loads = list(dict.fromkeys(row.cell.load for row in rows))
    groups = [(load, [row for row in rows if row.cell.load == load]) for load in loads]
    if results.config.groups:
        parts = results.config.groups.items()
        groups = [(name, group_rows(results, group)) for name, group in parts]
    elif len(loads) > 1:
        groups.append((ALL_LOADS, rows))
    table = []
    for load, members in groups:
        policies = dict.fromkeys(row.result.policy for row in members)
        lines = [
            _summary(load, policy, [row for row in members if row.result.policy == policy])
            for policy in policies
        ]
        table += sorted(lines, key=lambda line: -(line.of_best_static_mean or 0.0))
    return table


def _summary(load: str, policy: str, rows: list[Row]) -> Summary:
    results = [row.result for row in rows]
    regrets = [result.regret for result in results if result.regret is not None]
    of_best = [regret.of_best_static for regret in regrets]
    mean = _mean(of_best)
    recoveries = [recovery for regret in regrets for recovery in regret.recoveries]
    back = [recovery.seconds for recovery in recoveries if recovery.seconds is not None]
    steps = max(sum(result.steps for result in results), 1)
    return Summary(
        load=load,
        policy=policy,
        cells=len(rows),
        of_best_static_mean=mean,
        of_best_static_worst=min(of_best, default=None),
        of_no_speculation_worst=min((r.of_no_speculation for r in regrets), default=None),
        of_foresight_mean=_mean(_foresight(regrets)),
        regret=None if mean is None else 1.0 - mean,
        throughput_tok_s=_mean([result.throughput_tok_s for result in results]) or 0.0,
        tpot_p50_ms=_mean(_known(result.tpot_ms.p50 for result in results)),
        tpot_p99_ms=_mean(_known(result.tpot_ms.p99 for result in results)),
        decision_p99_us=max(_known(result.decision_us.p99 for result in results), default=None),
        switches=1e3 * sum(result.switches for result in results) / steps,
        changes=len(recoveries),
        recovered=len(back),
        recovery_seconds=median(back) if back else None,
        fail_opens=sum(result.fail_opens for result in results),
    )


def _foresight(regrets: list[Regret]) -> list[float]:
    return _known(regret.of_foresight for regret in regrets)


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
