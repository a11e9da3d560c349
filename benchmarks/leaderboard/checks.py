"""The demands on `goodput`, held against the results of the leaderboard.

Each demand names the group of `leaderboard.yaml` that answers it. A ratio is of scores (throughput
in closed loops, 1 / TPOT where requests arrive by themselves), mean over the seeds of a cell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import mean

from adaptive_spec.policy import policy_class, provenance_of
from adaptive_spec.sim.report.leaderboard import (
    Place,
    by_place,
    of_best_static,
    of_no_speculation,
)
from adaptive_spec.sim.sweep.results import Row, SweepResults, group_rows
from adaptive_spec.step import Level

OURS = "goodput"
LOSS, RECOVERY_STEPS = 0.01, 50
HISTORY = (
    *("core", "more loads", "hardware", "arrivals", "results a step late"),
    *("one K per batch", "fixed draft depth"),
)
"""Groups without confidence in which baselines take part."""
WITH_BASELINES = (*HISTORY, "confidence")
SETS = ("acceptance sets", "further acceptance sets")
"""Five seeds of the main ones, one of the rest."""
STEADY = (*WITH_BASELINES, *SETS, "further arrivals", "poor drafter, saturated")
CONFIDENCE = {"closed:1": 1.06, "closed:64": 1.02, "closed:256": 1.04}


@dataclass(frozen=True)
class Demand:
    """A line of the list.

    Attributes:
        wanted: what is demanded.
        found: what was found.
        passed: None where the results can't answer.
    """

    wanted: str
    found: str
    passed: bool | None

    @property
    def line(self) -> str:
        """For people."""
        word = {True: "ok    ", False: "MISSED", None: "open  "}[self.passed]
        return f"{word} {self.wanted}: {self.found}"


def check(results: SweepResults) -> list[Demand]:
    """Every demand, in order."""
    board = Board(results)
    return [
        *_against_best_static(board),
        _against_no_speculation(board),
        *_against_baselines(board),
        *_with_confidence(board),
        *_recovery(board),
        _first_steps(board),
    ]


class Board:
    """Results by group and policy."""

    def __init__(self, results: SweepResults) -> None:
        self.results = results
        self._entries = {entry.label: entry.policy for entry in results.config.policy_entries()}

    def rows(self, groups: Iterable[str], policy: str) -> list[Row]:
        """Rows of a policy in some groups, each once."""
        found: dict[int, Row] = {}
        for name in groups:
            group = self.results.config.groups.get(name)
            for row in group_rows(self.results, group) if group is not None else ():
                if row.result.policy == policy:
                    found[id(row)] = row
        return list(found.values())

    def best(self, groups: Iterable[str], policy: str) -> dict[Place, float]:
        """Ratio to the best fixed K by cell."""
        return by_place(self.rows(groups, policy), of_best_static)

    def policies(self, groups: Iterable[str], wanted: Callable[[str], bool]) -> list[str]:
        """Labels in these groups, but for `OURS`."""
        config = self.results.config
        names = (config.policies_of(config.groups[g]) for g in groups if g in config.groups)
        every = dict.fromkeys(label for each in names for label in each)
        return [label for label in every if label != OURS and wanted(label)]

    def is_baseline(self, label: str) -> bool:
        """Somebody else's, with one K per batch or a fixed draft depth."""
        found = provenance_of(policy_class(plain_name(self._entries[label]), baselines=True))
        return bool(found.source) and found.granularity is not Level.FULL

    def is_foreign(self, label: str) -> bool:
        """Somebody else's, or a bandit or another policy of ours."""
        return not label.startswith(OURS)


def _against_best_static(board: Board) -> list[Demand]:
    ratios = board.best(SETS, OURS)
    wanted = "history only, 1-256 clients, every acceptance set: mean >= 0.99 of the best static K"
    if not ratios:
        return [Demand(wanted, "not run", None)]
    average = mean(ratios.values())
    low = min(ratios, key=lambda place: ratios[place])
    mixed = [
        ratio for place, ratio in ratios.items() if (place[0], place[4]) == ("mixed", "closed:1")
    ]
    return [
        Demand(wanted, f"{average:.4f}, {_count(ratios)}", average >= 0.99),
        Demand(
            "worst cell >= 0.975 after 1,000 steps",
            f"{ratios[low]:.4f} at {where(low)}; {_below(ratios, 0.975)}",
            ratios[low] >= 0.975,
        ),
        Demand(
            ">= 1.01 at one client, mixed traffic",
            f"{mean(mixed):.4f}" if mixed else "not run",
            mean(mixed) >= 1.01 if mixed else None,
        ),
    ]


def _against_no_speculation(board: Board) -> Demand:
    ratios = by_place(board.rows(STEADY, OURS), of_no_speculation)
    wanted = "against no speculation >= 0.995 in every steady cell"
    if not ratios:
        return Demand(wanted, "not run", None)
    low = min(ratios, key=lambda place: ratios[place])
    found = f"lowest {ratios[low]:.4f} at {where(low)}; {_below(ratios, 0.995)}"
    return Demand(wanted, found, ratios[low] >= 0.995)


def _against_baselines(board: Board) -> list[Demand]:
    ours = board.best(HISTORY, OURS)
    if not ours:
        return [Demand("above every L0/L1 baseline on average", "not run", None)]
    everywhere = board.best(WITH_BASELINES, OURS)
    margins: dict[str, float] = {}
    best_baseline: dict[Place, tuple[float, str]] = {}
    for label in board.policies(WITH_BASELINES, board.is_baseline):
        theirs = board.best(WITH_BASELINES, label)
        common = theirs.keys() & everywhere.keys()
        if common:
            margins[label] = mean(everywhere[place] - theirs[place] for place in common)
        for place in common & ours.keys():
            best_baseline[place] = max(best_baseline.get(place, (0.0, "")), (theirs[place], label))
    nearest = min(margins, key=lambda label: margins[label])
    losses = {place: ours[place] / ratio - 1.0 for place, (ratio, _) in best_baseline.items()}
    low = min(losses, key=lambda place: losses[place])
    behind = sum(loss < -LOSS for loss in losses.values())
    return [
        Demand(
            "above every L0/L1 baseline, mean of the cells that both ran",
            f"nearest {nearest}, {100 * margins[nearest]:+.2f} points of the best static K; "
            f"{sum(margin > 0 for margin in margins.values())} of {len(margins)} baselines",
            margins[nearest] > 0,
        ),
        Demand(
            "at no cell more than 1 % below the best history-only baseline",
            f"lowest {100 * losses[low]:+.2f} % against {best_baseline[low][1]} at {where(low)}; "
            f"{behind} of {len(losses)} cells miss it",
            losses[low] >= -LOSS,
        ),
        _led_by_others(board, ours),
    ]


def _led_by_others(board: Board, ours: dict[Place, float]) -> Demand:
    """For information: where anything else leads by more than noise."""
    ahead: dict[str, list[tuple[float, Place]]] = {}
    for label in board.policies(HISTORY, board.is_foreign):
        theirs = board.best(HISTORY, label)
        for place in theirs.keys() & ours.keys():
            lead = theirs[place] / ours[place] - 1.0
            if lead > 0.005:
                ahead.setdefault(label, []).append((lead, place))
    ranked = sorted(ahead, key=lambda label: -len(ahead[label]))
    parts = [
        f"{label} at {len(ahead[label])} (most {100 * max(ahead[label])[0]:.1f} %, "
        f"{where(max(ahead[label])[1])})"
        for label in ranked[:8]
    ]
    wanted = "cells where another policy is more than 0.5 % above goodput"
    return Demand(wanted, "; ".join(parts) or "none", None)


def _with_confidence(board: Board) -> list[Demand]:
    ratios = board.best(["confidence, seeds"], OURS)
    found = []
    for load, least in CONFIDENCE.items():
        here = {place[0]: ratio for place, ratio in ratios.items() if place[4] == load}
        clients = load.removeprefix("closed:")
        wanted = f"confidence of AUC 0.85: >= {least} at {clients} clients"
        if not here:
            found.append(Demand(wanted, "not run", None))
            continue
        each = ", ".join(f"{name} {ratio:.3f}" for name, ratio in here.items())
        average = mean(here.values())
        found.append(Demand(wanted, f"mean {average:.3f} ({each})", average >= least))
    return found


def _recovery(board: Board) -> list[Demand]:
    rows = board.rows(["changes"], OURS)
    found = []
    for name, wanted in (
        ("falls", "acceptance falls from 0.8 to 0.1: within 3 % of the new optimum in <= 50 steps"),
        ("dies and revives", "a drafter dead for 60 s revives: recovered in <= 30 s"),
    ):
        lasts = [
            (row.cell.load, row.result.regret.recoveries[-1])
            for row in rows
            if row.cell.acceptance == name and row.result.regret and row.result.regret.recoveries
        ]
        if not lasts:
            found.append(Demand(wanted, "not run", None))
            continue
        shown = ", ".join(
            f"{load}: "
            + ("not recovered" if r.steps is None else f"{r.steps} steps, {r.seconds:.2f} s")
            for load, r in lasts
        )
        if name == "falls":
            passed = all(r.steps is not None and r.steps <= RECOVERY_STEPS for _, r in lasts)
        else:
            passed = all(r.seconds is not None and r.seconds <= 30.0 for _, r in lasts)
        found.append(Demand(wanted, shown, passed))
    return found


def _first_steps(board: Board) -> Demand:
    ratios = board.best(["first steps"], OURS)
    wanted = "cold start: <= 5 % loss over the first 500 steps"
    if not ratios:
        return Demand(wanted, "not run", None)
    low = min(ratios, key=lambda place: ratios[place])
    found = f"worst {ratios[low]:.4f} at {where(low)}, mean {mean(ratios.values()):.4f}"
    return Demand(wanted, found, ratios[low] >= 0.95)


def plain_name(policy: str) -> str:
    """The policy's name without its options, which may hold variables."""
    return policy.partition(":")[0]


def where(place: Place) -> str:
    """A cell for people; what is usual is left out."""
    acceptance, drafter, hardware, engine, load = place
    parts = [acceptance, load]
    parts += [hardware] if hardware != "h100-llama-8b" else []
    parts += [engine] if engine != "default" else []
    return ", ".join(parts) + (f" ({drafter})" if drafter != "eagle" else "")


def _count(ratios: dict[Place, float]) -> str:
    return f"{len(ratios)} cells of {len({place[0] for place in ratios})} acceptance sets"


def _below(ratios: dict[Place, float], bound: float) -> str:
    missed = sum(ratio < bound for ratio in ratios.values())
    return f"{missed} of {len(ratios)} cells miss it"
