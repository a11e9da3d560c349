"""Mean TPOT above saturation by policy, at rates of arrival that hardly differ.

    python benchmarks/saturated_score.py

Above saturation the KV pool is full, and which request is admitted next hangs on milliseconds. A
single run is one draw of that: a rate 0.3 % lower can give a TPOT 1 % higher. No speculation has no
random numbers, so that seeds do not show it, and a policy is held against the same draw each time.
Needs the public data: ADAPTIVE_SPEC_DATA or ../shared/data.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np

from adaptive_spec.sim.policy_choice import parse_policy
from adaptive_spec.sim.scenario import Scenario
from adaptive_spec.sim.sweep.cells import Files, plan_cells
from adaptive_spec.sim.sweep.config import load_sweep_config

CONFIG = Path(__file__).with_name("leaderboard.yaml")
ACCEPTANCE, LOAD, RATE = "steady-5", "Mooncake, 1.3 x saturation", "@rate=0.5,"
POLICIES = ("off", "goodput", "static:k=1")
SPREAD, RUNS = 0.015, 31
"""Relative distance of the outermost rates, and the number of rates."""
SEEDS = 5


def main() -> None:
    """Print each policy's mean TPOT over no speculation's, with its standard error."""
    scenario = _scenario()
    rates = np.linspace(1.0 - SPREAD, 1.0 + SPREAD, RUNS)
    base = np.zeros(RUNS)
    for policy in POLICIES:
        tpot = np.array([_tpot(scenario, policy, i % SEEDS, r) for i, r in enumerate(rates)])
        if policy == POLICIES[0]:
            base = tpot
            print(f"{policy}: mean of {RUNS} rates over the rate of the leaderboard", end=" ")
            print(f"{tpot.mean() / tpot[RUNS // 2]:.4f}, deviation {tpot.std() / tpot.mean():.2%}")
            continue
        error = np.hypot(base.std() / base.mean(), tpot.std() / tpot.mean()) / RUNS**0.5
        print(f"{policy}: {base.mean() / tpot.mean():.4f} +- {error:.4f} of no speculation", end="")
        print(f"; against its single draw {base[RUNS // 2] / tpot.mean():.4f}")


def _scenario() -> Scenario:
    cells = plan_cells(load_sweep_config(CONFIG), Files(CONFIG.parent))
    wanted = (
        cell for cell in cells if (cell.name.acceptance, cell.name.load) == (ACCEPTANCE, LOAD)
    )
    found = next(wanted).scenario
    assert RATE in found.load, f"{CONFIG.name}: the rate of {LOAD!r} is no longer {RATE!r}"
    return found


def _tpot(scenario: Scenario, policy: str, seed: int, rate: float) -> float:
    load = scenario.load.replace(RATE, f"@rate={0.5 * rate:.6f},")
    here = msgspec.structs.replace(scenario, load=load, seed=seed)
    mean = here.run(parse_policy(policy).build(seed), policy).tpot_ms.mean
    assert mean is not None
    return mean


if __name__ == "__main__":
    main()
