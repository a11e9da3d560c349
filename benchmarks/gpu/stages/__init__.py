"""The stages, in the order in which they are run."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.gpu.bench import Bench

from . import adaptive, confidence, overhead, ramp, serving, smoke, step_costs, sweep

STAGES: dict[str, Callable[[Bench], None]] = {
    "smoke": smoke.run,
    "sweep": sweep.run,
    "step_costs": step_costs.run,
    "overhead": overhead.run,
    "confidence": confidence.run,
    "ramp": ramp.run,
    "adaptive": adaptive.run,
    "server": serving.run,
}
