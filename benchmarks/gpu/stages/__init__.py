"""The stages, in the order in which they are run."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.gpu.bench import Bench

from . import graphs, own, smoke, step_costs, sweep

STAGES: dict[str, Callable[[Bench], None]] = {
    "smoke": smoke.run,
    "sweep": sweep.run,
    "own": own.run,
    "graphs": graphs.run,
    "step_costs": step_costs.run,
}
