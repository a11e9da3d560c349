"""What a drafter's confidence brings to rules that know what no server knows.

    python benchmarks/confidence_bound.py [--seeds N] [--results DIR]

The leaderboard's cells with a synthetic confidence of AUC .85. The rules know the probability that
a draft is accepted given its confidence, which is how the signal was made; one client's also knows
how long everything takes. Their other constants are set in hindsight: the best of some ten for each
cell. Nothing is learned and nothing explored, so what is missing to them is only what they leave
out: history tells nothing to them.

* One client: drafting stops where going on isn't worth its time, by dynamic programming over the
  survival so far; the best that can be done with this signal.
* More: so many passes in every step, then each request verifies the drafts whose survival reaches a
  price.

Ratios are throughput over that of the cell's best fixed K, next to goodput's.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import Any, ClassVar

import msgspec
import numpy as np

from adaptive_spec import build_policy
from adaptive_spec.policy import Policy
from adaptive_spec.sim.data_folder import ENVIRONMENT_VARIABLE, data_folder
from adaptive_spec.sim.drafters.registry import drafter
from adaptive_spec.sim.engine.step_time import StepTime
from adaptive_spec.sim.hardware.registry import hardware
from adaptive_spec.sim.sweep.cells import Cell, Files, plan_cells
from adaptive_spec.sim.sweep.config import load_sweep_config
from adaptive_spec.step import (
    DraftPass,
    DraftVerdict,
    FinishedStep,
    FloatArray,
    IntArray,
    Mode,
    SpecPlan,
    StepContext,
)

CONFIG = Path(__file__).with_name("leaderboard.yaml")
GROUP = "confidence, seeds"
DEMANDS = {1: 1.06, 64: 1.02, 256: 1.04}
KMAX = 6
_CONTEXT = 400
"""Tokens in the KV cache of the one client's request."""
_GRID = np.linspace(0.0, 1.0, 401)

Found = dict[tuple[str, int], list[tuple[float, float]]]
"""By acceptance set and clients: ratios of the rule and of goodput, for each seed."""


class NoOptions(msgspec.Struct):
    """These rules are made with what they know."""


class KnowsProbabilities:
    """A policy that takes the confidence shown for the probability of acceptance, which it is.

    Args:
        passes: D.
        price: survival from which a draft is verified.
        going_on: [Kmax + 1, grid] what drafting on is worth after so many drafts, by survival so
            far; None: all passes run.
    """

    name: ClassVar[str] = "knows probabilities"
    summary: ClassVar[str] = "confidence as it was made, constants in hindsight"
    Options: ClassVar[type[msgspec.Struct]] = NoOptions

    def __init__(
        self, passes: int, price: float = 0.0, going_on: Sequence[FloatArray] | None = None
    ) -> None:
        self._passes, self._price, self._going_on = passes, price, going_on

    def plan(self, context: StepContext) -> SpecPlan:
        """Verify by price, draft as ever."""
        verify = context.draft_available
        if context.confidence is not None:
            # Unknown where nothing was drafted.
            known = np.nan_to_num(context.confidence, nan=0.0)
            worth = (np.cumprod(known, axis=1) >= self._price).sum(axis=1)
            verify = np.minimum(verify, worth)
        return SpecPlan(
            step=context.step,
            verify=verify,
            draft_depth=self._passes,
            mode=Mode.ON,
            reason="by price",
        )

    def after_draft_pass(self, draft: DraftPass) -> DraftVerdict:
        """Another pass, if it is worth it."""
        if self._going_on is None:
            return DraftVerdict(draft.drafting, draft.drafting)
        survival = np.cumprod(draft.confidence, axis=1)[:, -1]
        worth = np.interp(survival, _GRID, self._going_on[draft.position + 1]) > 0.0
        return DraftVerdict(draft.drafting, draft.drafting & worth)

    def observe(self, step: FinishedStep) -> None:
        """Nothing is learned."""

    def forget(self, slots: IntArray) -> None:
        """Nothing is kept."""

    def state(self) -> dict[str, Any]:
        """None."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """None."""


def rules(cell: Cell, clients: int, best_fixed: float) -> Iterator[Policy]:
    """Those to choose from in hindsight."""
    if clients > 1:
        base = {16: 0.05, 64: 0.25, 256: 0.45}[clients]
        for passes in (2, 3, 4):
            for price in (0.8 * base, base, 1.1 * base, 1.25 * base):
                yield KnowsProbabilities(passes, price)
        return
    data = cell.scenario.acceptance_data()
    accepted = np.minimum(data.accepted, KMAX)
    if data.confidence is None:
        raise ValueError(f"{data.name} has no confidence")
    shown = [data.confidence[accepted >= j, j].astype(np.float64) for j in range(KMAX)]
    for gain in (1.0, 1.02, 1.04, 1.06):
        yield KnowsProbabilities(KMAX, going_on=_worth_of_going_on(shown, gain * best_fixed))


def _worth_of_going_on(shown: Sequence[FloatArray], rate: float) -> list[FloatArray]:
    """After j drafts, by survival so far, in tokens: E[survival] less time, from there on."""
    times = StepTime(hardware("h100-llama-8b"), drafter("eagle"), 0.0)
    random = np.random.default_rng(0)

    def seconds(k: int) -> float:
        verify = times.verify(1, 1 + k, _CONTEXT, 0, 0, any_draft=k > 0, ragged=False)
        return verify + times.draft(1, k, _CONTEXT, cold=False)

    worth: list[FloatArray] = [np.zeros(len(_GRID)) for _ in range(KMAX + 1)]
    for j in reversed(range(KMAX)):
        survival = _GRID[:, None] * random.choice(shown[j], 1000)
        on = (survival + np.interp(survival, _GRID, worth[j + 1])).mean(axis=1)
        worth[j] = np.maximum(on - rate * (seconds(j + 1) - seconds(j)), 0.0)
    return worth


def measure(seeds: int, said: Callable[[str], None]) -> Found:
    """All cells of the group, with so many seeds."""
    config = load_sweep_config(CONFIG)
    group = config.groups[GROUP]
    found: Found = {}
    for cell in plan_cells(config, Files(CONFIG.parent)):
        name = cell.name
        axes = (group.acceptance, group.hardware, group.engine_variants, group.loads)
        mine = (name.acceptance, name.hardware, name.engine, name.load)
        if name.seed >= seeds or any(m not in (a or ()) for m, a in zip(mine, axes, strict=True)):
            continue
        clients = int(name.load.removeprefix("closed:"))
        fixed = max(_rate(cell, build_policy("static", {"k": k})) for k in range(KMAX + 1))
        rule = max(_rate(cell, rule) for rule in rules(cell, clients, fixed)) / fixed
        goodput = _rate(cell, build_policy("goodput", seed=name.seed)) / fixed
        found.setdefault((name.acceptance, clients), []).append((rule, goodput))
        said(f"{name.text}: {rule:.4f}, goodput {goodput:.4f}")
    return found


def _rate(cell: Cell, policy: Policy) -> float:
    return cell.scenario.run(policy, policy.name).throughput_tok_s


def table(found: Found) -> str:
    """For people."""
    lines = [f"{'':22s}{'clients':>8s}{'in hindsight':>14s}{'goodput':>10s}{'demand':>9s}"]
    for clients in sorted({clients for _, clients in found}):
        rows = {name: mine for (name, load), mine in found.items() if load == clients}
        rows["mean"] = [pair for mine in rows.values() for pair in mine]
        for name, pairs in rows.items():
            rule, goodput = (mean(column) for column in zip(*pairs, strict=True))
            wanted = f"{DEMANDS[clients]:9.2f}" if name == "mean" and clients in DEMANDS else ""
            lines.append(f"{name:22s}{clients:8d}{rule:14.3f}{goodput:10.3f}{wanted}")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table; write it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3, choices=(1, 2, 3))
    parser.add_argument("--results", type=Path, help="folder for confidence_bound.json")
    parser.add_argument("--data", type=Path, help="folder of public traces")
    options = parser.parse_args(arguments)
    os.environ[ENVIRONMENT_VARIABLE] = str(data_folder(options.data).resolve())
    found = measure(options.seeds, lambda line: print(line, flush=True))
    print(table(found), end="")
    if options.results is None:
        return
    options.results.mkdir(parents=True, exist_ok=True)
    cells = [
        {"acceptance": name, "clients": clients, "seed": seed, "rule": rule, "goodput": goodput}
        for (name, clients), pairs in found.items()
        for seed, (rule, goodput) in enumerate(pairs)
    ]
    (options.results / "confidence_bound.json").write_text(json.dumps(cells, indent=1) + "\n")


if __name__ == "__main__":
    main()
