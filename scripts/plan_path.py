"""Show which modules one plan and one observation of a steady server pass through.

    python scripts/plan_path.py [--functions]

The server is a simulated one, 16 clients with EAGLE on an H100; the step shown is the first after
1,500 that neither measures nor switches. Compiled functions do not show.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

from adaptive_spec.policy import build_policy
from adaptive_spec.sim.acceptance.files import load_acceptance
from adaptive_spec.sim.drafters.registry import drafter
from adaptive_spec.sim.engine.loop import Engine
from adaptive_spec.sim.engine.options import EngineOptions
from adaptive_spec.sim.hardware.registry import hardware
from adaptive_spec.sim.load.arrivals import Piece
from adaptive_spec.sim.load.base import VaryingClosedLoad
from adaptive_spec.sim.load.request import requests_of
from adaptive_spec.step import Kind

ROOT = Path(__file__).resolve().parent.parent
SHOWN = ("adaptive_spec", "policies")
CLIENTS, STEPS, KMAX = 16, 1500, 6


class Calls:
    """Counts calls of our functions while it is switched on."""

    def __init__(self) -> None:
        self.seen: Counter[tuple[str, str]] = Counter()

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """Count a call; of `sys.setprofile`."""
        if event != "call":
            return
        try:
            path = Path(frame.f_code.co_filename).resolve().relative_to(ROOT)
        except ValueError:
            return
        if path.parts[0] in SHOWN:
            self.seen[str(path), frame.f_code.co_qualname] += 1

    def around(self, function: Any) -> Any:
        """Count while this function runs."""

        def counted(*arguments: Any, **options: Any) -> Any:
            sys.setprofile(self)
            try:
                return function(*arguments, **options)
            finally:
                sys.setprofile(None)

        return counted


def steady_step() -> tuple[Calls, Calls]:
    """Calls of `plan` and of `observe` in a step that only does as it knows."""
    data = load_acceptance(["record:good_t0.8"], drafter_list="eagle", seed=0, kmax=KMAX)
    load = VaryingClosedLoad(requests_of(data, seed=0), [Piece(1e9, CLIENTS, CLIENTS)])
    engine = Engine(
        load,
        data,
        drafter("eagle"),
        hardware("h100-llama-8b"),
        build_policy("goodput"),
        EngineOptions(max_draft_tokens=KMAX),
    )
    controller = engine.controller
    plan, observe = controller.plan, controller.observe
    found: list[tuple[Calls, Calls]] = []
    steps = itertools.count()

    def planned(*arguments: Any) -> Any:
        if found or next(steps) < STEPS:
            return plan(*arguments)
        calls = Calls(), Calls()
        made = calls[0].around(plan)(*arguments)
        if made.kind is Kind.PLANNED:
            found.append(calls)
        return made

    def observed(*arguments: Any) -> Any:
        # With decisions a step ahead, this is the outcome of the step before: steady, too.
        if found and not found[0][1].seen:
            return found[0][1].around(observe)(*arguments)
        return observe(*arguments)

    controller.plan, controller.observe = planned, observed
    # A clock that stands still: the history, due once a second of it, adds no row.
    with mock.patch("time.monotonic", return_value=0.0):
        engine.run(max_tokens=KMAX * CLIENTS * STEPS)
    return found[0]


def main() -> int:
    """Print."""
    parser = argparse.ArgumentParser(description="Show the modules of a plan.")
    parser.add_argument("--functions", action="store_true", help="with their functions")
    given = parser.parse_args()
    for title, calls in zip(("plan", "observe"), steady_step(), strict=True):
        files = Counter(path for path, _ in calls.seen.elements())
        print(f"{title}: {len(files)} modules, {calls.seen.total()} calls of Python")
        for path in dict.fromkeys(path for path, _ in calls.seen):
            print(f"  {path}  {files[path]}")
            for (where, name), count in calls.seen.items():
                if given.functions and where == path:
                    print(f"      {name}  {count}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
