"""`adaptive-spec replay` without arguments: what no fixed K can do, on one screen."""

from __future__ import annotations

from concurrent.futures import as_completed
from typing import TYPE_CHECKING, NamedTuple

from adaptive_spec.sim.commands.printing import progress_bar, say, standard_output, table

if TYPE_CHECKING:
    from adaptive_spec.sim.result import Result

LOADS = (1, 16, 64)
"""Requests at a time; the profile was validated up to 64."""
FIXED = (1, 2, 3, 5)
KMAX = 5
HARDWARE, ACCEPTANCE = "a100-llama-8b", "model:mixed"
"""A measured profile, and a synthetic model of easy and hard passages."""
STEPS, WARM_UP_STEPS = 400, 300
WITHIN, _LEVEL = 0.05, 0.01
"""Distance to the best (relative) that a fixed K may keep everywhere, and that is called level."""


class Cell(NamedTuple):
    """One run: policy, requests at a time, machine."""

    policy: str
    clients: int
    hardware: str

    @property
    def load(self) -> str:
        """As `--load` takes it."""
        return f"closed:{self.clients}"


def run_cell(cell: Cell) -> Result:
    """Simulate a cell, the first `WARM_UP_STEPS` steps left out."""
    from adaptive_spec.sim.engine.options import EngineOptions
    from adaptive_spec.sim.policy_choice import parse_policy
    from adaptive_spec.sim.scenario import Scenario, simulate

    scenario = Scenario(
        load=cell.load,
        acceptance=(ACCEPTANCE,),
        drafter="eagle",
        hardware=cell.hardware,
        engine=EngineOptions(max_draft_tokens=KMAX),
        tokens=STEPS * 2 * cell.clients,
        warmup_steps=WARM_UP_STEPS,
    )
    return simulate(scenario, parse_policy(cell.policy))


POLICIES = ("off", *(f"static:k={k}" for k in FIXED), "goodput")


def simulate_all(hardware: str = HARDWARE) -> dict[Cell, Result]:
    """Simulate every policy at every load, in parallel processes.

    Raises DataError or ConfigError for a machine that there is not.
    """
    import os

    from adaptive_spec.sim.hardware.registry import hardware as find_hardware
    from adaptive_spec.sim.sweep.process_pool import WorkerPool

    find_hardware(hardware)  # a wrong name is one line, not that of a worker
    cells = [Cell(policy, clients, hardware) for policy in POLICIES for clients in LOADS]
    found: dict[Cell, Result] = {}
    with progress_bar() as bar:
        task = bar.add_task("simulating", total=len(cells))
        with WorkerPool(os.cpu_count() or 1) as pool:
            order = sorted(cells, key=lambda cell: (cell.policy != "goodput", -cell.clients))
            futures = {pool.submit(run_cell, cell): cell for cell in order}
            for future in as_completed(futures):
                found[futures[future]] = future.result()
                bar.advance(task)
    return {cell: found[cell] for cell in cells}


def print_showcase(results: dict[Cell, Result]) -> None:
    """Print them on one screen."""
    found = {(cell.policy, cell.clients): each.throughput_tok_s for cell, each in results.items()}
    hardware = next(iter(results)).hardware
    console = standard_output()
    printed = table(
        f"simulated tokens/s over no speculation; EAGLE, {ACCEPTANCE}, {hardware}",
        "at a time",
        *map(str, LOADS),
        "at worst",
        least=15,
    )
    names = {f"static:k={k}": f"fixed K = {k}" for k in FIXED}
    worst = {policy: _worst(found, policy) for policy in POLICIES}
    for policy in POLICIES:
        none = [found["off", clients] for clients in LOADS]
        own = [found[policy, clients] for clients in LOADS]
        ratios = [f"{a / b:.2f}" for a, b in zip(own, none, strict=True)]
        if policy == "off":
            ratios = [f"{value:,.0f} tok/s" for value in own]
        name = names.get(policy, {"off": "no speculation"}.get(policy, policy))
        style = "bold" if policy == "goodput" else ""
        printed.add_row(name, *ratios, f"{worst[policy][0] - 1:+.0%}", style=style)
    console.print(printed)
    console.print(closing_sentence({names[each]: worst[each] for each in names}, worst["goodput"]))
    if (lost := lost_to_none(results)) and lost[0] < 1.0 - _LEVEL:
        say(
            f"At {lost[1]}, goodput is {1 - lost[0]:.0%} slower than no speculation: no K pays "
            "there, and the drafter has not been stopped within these steps."
        )
    say(
        f"Measured: {2 * STEPS} tokens a client, without the first {WARM_UP_STEPS} steps; step "
        "times are modelled from published ones, acceptance is synthetic."
    )
    say(
        "Your load, traces and hardware: adaptive-spec replay --help. "
        "Your server: adaptive-spec advise."
    )


def lost_to_none(results: dict[Cell, Result]) -> tuple[float, int]:
    """Return the least throughput of goodput over that of no speculation, and its load."""
    found = {(cell.policy, cell.clients): each.throughput_tok_s for cell, each in results.items()}
    return min((found["goodput", n] / found["off", n], n) for n in LOADS)


def _worst(found: dict[tuple[str, int], float], policy: str) -> tuple[float, int]:
    """Return the least ratio to the best of a load, and the load."""
    ratios = [(found[policy, n] / max(found[each, n] for each in POLICIES), n) for n in LOADS]
    return min(ratios)


def closing_sentence(fixed: dict[str, tuple[float, int]], ours: tuple[float, int]) -> str:
    """Say what no fixed K can do, or that one can.

    Args:
        fixed: worst ratio to the best of a load and that load, by fixed K.
        ours: the same of goodput.
    """
    good = [name for name, (least, _) in fixed.items() if least >= 1.0 - WITHIN]
    mine = f"goodput loses at most {1 - ours[0]:.0%} (at {ours[1]})"
    if good:
        return f"{' and '.join(good)}: within {WITHIN:.0%} of the best at every load; {mine}."
    lost = ", ".join(
        f"{name} loses {1 - least:.0%} at {load}" for name, (least, load) in fixed.items()
    )
    return f"No fixed K is within {WITHIN:.0%} of the best at every load: {lost}; {mine}."
