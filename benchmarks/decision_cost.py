r"""CPU time of a decision in this working tree over that of a commit, and whether both plan alike.

    python benchmarks/decision_cost.py [--base 0fe5ce79] [--policies goodput,bandit,...] [--json F]
    python benchmarks/decision_cost.py --plans 1000 --base HEAD

Each build runs in a process of its own: the commit from a folder that it is exported to, the
working tree from where it lies. Both drive `Controller` by the same load, without an engine, and
take turns by blocks of steps, so that what else the machine does meets both alike. Figures are
microseconds of the process's CPU time per step.

With `--plans N` the first build drives N steps of each case and the second sees the same steps;
printed is the number of steps whose plans differ. In the middle half the drafts are bad, so that
speculation stops and comes back.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
KMAX = 6
_BLOCK, _WARM_BLOCKS = 64, 4
CASES: dict[str, dict[str, Any]] = {
    "full": {},
    "confidence": {"confidence": True},
    "uniform": {"capability": {"level": 0, "ladder": (0, 1, 2, 4, 6)}},
    "fixed depth": {"capability": {"level": 1}, "confidence": True},
    "ragged": {"capability": {"ragged_penalty": 0.03, "token_buckets": tuple(range(8, 513, 8))}},
    "labels": {"labels": True, "confidence": True},
    "look-ups": {"lookup": True, "confidence": True},
    "opt-outs": {"opted_out": True},
    "targets": {"targets": True},
    "no state": {"capability": {"off_pass": False, "cold_off": True}},
}
"""Name -> what differs from an engine of level FULL that reports nothing of its drafts."""


class Load:
    """An engine's steps: requests come and end, acceptance differs by request and wanders.

    Everything random is drawn before a step is planned, so that two builds see the same.
    """

    def __init__(self, policy: str, batch: int, case: str, bad: tuple[int, int]) -> None:
        from adaptive_spec import Capability, Config, Controller, Level, build_policy
        from adaptive_spec.config import FailOpen

        self._case, self._bad = CASES[case], bad
        kind = {"level": 2, **self._case.get("capability", {})}
        kind["level"] = Level(kind["level"])
        self._capability = Capability(max_draft_tokens=KMAX, **kind)
        patient = Config(fail_open=FailOpen(max_decision_ms=1e9))
        self.controller = Controller(build_policy(policy, seed=1), self._capability, patient)
        self._random = np.random.default_rng(1)
        self._batch, self._born, self._step, self._now = batch, 0, 0, 500.0
        self._names = [""] * batch
        self._slots, self._context, self._left = np.zeros((3, batch), np.int64)
        self._skill, self._drafted = np.zeros(batch), np.zeros(batch, np.int64)
        self._begin(range(batch))

    def _begin(self, rows: Any) -> None:
        for row in rows:
            self._born += 1
            self._names[row] = f"r{self._born}"
            self._slots[row] = self.controller.slots.assign(self._names[row])
            self._skill[row] = self._random.beta(6, 2.5)
            self._context[row] = self._random.integers(100, 1500)
            self._left[row] = self._random.geometric(1 / 150) + 5
            self._drafted[row] = 0

    def step(self, imposed: list[Any] | None = None) -> tuple[int, int, list[Any]]:
        """Run a step; return CPU time (ns) of plan and observe, and the plan.

        Args:
            imposed: the plan to run in place of the controller's own, as this returns it.
        """
        from adaptive_spec import StepContext, StepOutcome

        random, batch, case = self._random, self._batch, self._case
        self._step += 1
        skill = self._skill * (0.0 if self._bad[0] <= self._step < self._bad[1] else 1.0)
        hazard = skill[:, None] - 0.03 * np.arange(KMAX) + random.normal(0, 0.18, (batch, KMAX))
        hazard = np.clip(hazard, 0.02, 0.99)
        right = (random.random((batch, KMAX)) < hazard).cumprod(axis=1).sum(axis=1)
        possible = np.clip(self._left - 1, 0, KMAX)
        opted_out = np.arange(batch) % 3 == 0 if case.get("opted_out") else None
        if opted_out is not None:
            possible[opted_out] = 0
        available = np.minimum(self._drafted, possible)
        shown = np.clip(hazard + random.normal(0, 0.1, (batch, KMAX)), 0.01, 0.995)
        shown[np.arange(KMAX) >= available[:, None]] = np.nan
        match = random.integers(0, 12, batch)
        found = np.minimum(np.where(match > 4, KMAX, 0), possible)
        copied = (random.random((batch, KMAX)) < match[:, None] / 12).cumprod(axis=1).sum(axis=1)
        copied, looks_up = np.minimum(copied, found), case.get("lookup")
        slots, total = self._slots.copy(), int(self._context.sum())
        context = StepContext(
            step=self._step,
            capability=self._capability,
            request_ids=list(self._names),
            slots=slots,
            context_tokens=self._context.copy(),
            draft_available=available,
            draft_possible=possible,
            engine_k=KMAX,
            tpot_target=np.full(batch, 0.004 if case.get("targets") else np.inf),
            task=slots % 5 - 1 if case.get("labels") else np.full(batch, -1),
            temperature=np.zeros(batch),
            confidence=shown if case.get("confidence") else None,
            lookup_available=found if looks_up else None,
            lookup_match=match if looks_up else None,
            opted_out=opted_out,
            now=self._now,
        )
        began = time.process_time_ns()
        plan = self.controller.plan(context)
        planned = time.process_time_ns() - began
        looked_up = None if plan.from_lookup is None else plan.from_lookup.tolist()
        own = [plan.verify.tolist(), int(plan.draft_depth), plan.mode.value, looked_up]
        verified, depth, mode, looked_up = imposed or own
        verified = np.array(verified, dtype=np.int64)
        accepted = np.minimum(
            right if looked_up is None else np.where(looked_up, copied, right), verified
        )
        emitted = accepted + 1
        tokens = batch + int(verified.sum())
        ran = depth if self._capability.steers_depth or mode == "off_cold" else KMAX
        passes = 0 if mode == "off_cold" else max(ran, int(self._capability.off_pass))
        seconds = 0.007 + 4e-6 * min(tokens, 64) + 24e-6 * max(tokens - 64, 0) + 9e-9 * total
        seconds = (seconds + passes * (5.3e-4 + 1.5e-6 * batch)) * random.lognormal(0, 0.03)
        self._now += seconds
        outcome = StepOutcome(
            step=self._step,
            slots=slots,
            verified=verified,
            accepted=accepted,
            emitted=emitted,
            batch_size=batch,
            batch_tokens=tokens,
            context_tokens=total,
            prefill_tokens=0,
            draft_depth=ran,
            ragged=bool(np.ptp(verified)),
            seconds=seconds,
            now=self._now,
            lookup_agreed=np.minimum(copied, emitted) if looks_up else None,
        )
        self._drafted[:] = ran
        self._context += emitted
        self._left -= emitted
        ended = np.flatnonzero(self._left <= 0)
        began = time.process_time_ns()
        self.controller.observe(outcome)
        if ended.size:
            self.controller.finish([self._names[row] for row in ended])
        observed = time.process_time_ns() - began
        self._begin(ended)
        return planned, observed, own


def work(policy: str, batch: int, case: str, bad: tuple[int, int]) -> None:
    """Run the steps that each line of the input asks for, and print times and plans."""
    importlib.import_module("adaptive_spec.policies.goodput")  # declares every kernel
    kernels: Any = importlib.import_module("adaptive_spec.policies.kernels")
    if hasattr(kernels, "select_kernel"):  # a commit before numba was required
        kernels.select_kernel("numba")
        kernels = sys.modules["adaptive_spec.policies.kernels.kernel"]
    refused, convert = [0], kernels._as_compiled_for

    def counted(argument: Any) -> Any:
        refused[0] += 1
        return convert(argument)

    kernels._as_compiled_for = counted
    load = Load(policy, batch, case, bad)
    kernels.load_kernels()
    for line in sys.stdin:
        asked = json.loads(line)
        steps = [load.step(plan) for plan in asked]
        faults = dict(load.controller.counters.failures)
        print(json.dumps([steps, refused[0], faults]), flush=True)


class Build:
    """A process that runs steps in one build."""

    def __init__(self, tree: Path, *arguments: Any) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--worker", json.dumps(arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"},
        )
        self.refused = 0
        """Arguments that compiled functions refused and that were copied for them."""

    def run(self, plans: list[Any]) -> list[Any]:
        """Run a step for each of these plans; None: the build's own."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(plans) + "\n")
        self._process.stdin.flush()
        steps, self.refused, faults = json.loads(self._process.stdout.readline())
        if faults:
            raise SystemExit(f"faults: {faults}")
        return list(steps)

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


class Cell(NamedTuple):
    """A policy, a batch size and an engine to measure."""

    policy: str
    batch: int
    case: str


def cost(trees: list[Path], cell: Cell, blocks: int) -> dict[str, Any]:
    """Microseconds by part and build, and ratios of the second build to the first."""
    builds = [Build(tree, *cell, (0, 0)) for tree in trees]
    spent: list[list[list[int]]] = [[], []]
    for block in range(blocks + _WARM_BLOCKS):
        for build, times in zip(builds, spent, strict=True):
            steps = build.run([None] * _BLOCK)
            if block >= _WARM_BLOCKS:
                times += [step[:2] for step in steps]
    for build in builds:
        build.close()
    if builds[1].refused:
        raise SystemExit(f"{cell}: compiled functions refused {builds[1].refused} arguments")
    took = np.array(spent) / 1e3
    parts = {"plan": took[..., 0], "observe": took[..., 1], "both": took.sum(axis=2)}
    found: dict[str, Any] = {**cell._asdict(), "refused by the base": builds[0].refused}
    for name, each in parts.items():
        figures = {
            "median": np.median(each, axis=1),
            "mean": each.mean(axis=1),
            "p99": np.percentile(each, 99, axis=1),
        }
        found[name] = {
            kind: {"us": us.round(1).tolist(), "ratio": round(float(us[1] / us[0]), 3)}
            for kind, us in figures.items()
        }
    return found


def different_plans(trees: list[Path], cell: Cell, steps: int) -> dict[str, Any]:
    """Steps in which the second build plans otherwise in the same state; the first of them."""
    bad = steps // 4, 3 * steps // 4
    first, second = (Build(tree, *cell, bad) for tree in trees)
    different, modes = [], set()
    for begun in range(0, steps, _BLOCK):
        plans = [step[2] for step in first.run([None] * min(_BLOCK, steps - begun))]
        modes |= {plan[2] for plan in plans}
        others = [step[2] for step in second.run(plans)]
        pairs = enumerate(zip(plans, others, strict=True))
        different += [begun + n for n, (one, other) in pairs if one != other]
    first.close()
    second.close()
    return {
        **cell._asdict(),
        "steps": steps,
        "different": len(different),
        "first": different[:1],
        "modes": sorted(modes),
    }


def exported(commit: str, folder: str) -> Path:
    """Export a commit's tree into a folder."""
    archive = subprocess.run(
        ["git", "archive", commit, "adaptive_spec", "policies", "adapters", "sim"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
    return Path(folder)


def show(found: dict[str, Any]) -> None:
    """Print a cell's line."""
    title = f"{found['policy']:10} {found['case']:11} {found['batch']:5}"
    if "different" in found:
        first = f", first at {found['first'][0]}" if found["first"] else ""
        print(
            f"{title}  {found['different']} of {found['steps']} plans differ{first}; "
            f"modes {' '.join(found['modes'])}",
            flush=True,
        )
        return
    both = found["both"]
    shown = [
        f"{kind} {of['us'][0]:6.0f} -> {of['us'][1]:6.0f} us {of['ratio']:.2f}"
        for kind, of in both.items()
    ]
    parts = [f"{part} {found[part]['mean']['ratio']:.2f}" for part in ("plan", "observe")]
    print(title, "; ".join([*shown, *parts]), flush=True)


def main() -> int:
    """Print a line per cell; save JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--base", default="0fe5ce79", help="commit to compare with")
    parser.add_argument("--policies", default="goodput,bandit,regression,static")
    parser.add_argument("--batches", default="1,16,64,256,1024")
    parser.add_argument("--cases", help=f"of {', '.join(CASES)}; separated by commas")
    parser.add_argument("--blocks", type=int, default=10, help=f"of {_BLOCK} steps")
    parser.add_argument("--plans", type=int, default=0, help="compare plans of so many steps")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--worker", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        work(*args.worker)
        return 0
    cases = args.cases or (",".join(CASES) if args.plans else "full,confidence")
    cells = [
        Cell(policy, batch, case)
        for policy in args.policies.split(",")
        for case in cases.split(",")
        for batch in map(int, args.batches.split(","))
    ]
    found = []
    with tempfile.TemporaryDirectory() as folder:
        trees = [exported(args.base, folder), ROOT]
        for cell in cells:
            if args.plans:
                found.append(different_plans(trees, cell, args.plans))
            else:
                found.append(cost(trees, cell, args.blocks))
            show(found[-1])
    if args.plans:
        steps = sum(each["steps"] for each in found)
        print(sum(each["different"] for each in found), "of", steps, "plans differ")
    if args.json:
        args.json.write_text(json.dumps({"command": " ".join(sys.argv), "cells": found}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
