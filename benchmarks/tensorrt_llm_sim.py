"""The adapter's rules of TensorRT-LLM in the simulator: ours against upstream's own adaptivity.

    python benchmarks/tensorrt_llm_sim.py [--json benchmarks/results/tensorrt_llm_sim.json]

Level 0, ladder 1, 2, 3, 5, Kmax = 6, results known one iteration later, closed loops, six
acceptance sets, two machines: `tensorrt_llm_sim.yaml` beside this file. Simulated throughput; no
TensorRT-LLM ran.

Ours, `goodput`, starts every run with nothing but its capability. It may not run K = 0, because the
adapter's smallest K is 1; the baselines may, as upstream. `goodput, K = 0` shows the cost of this
limit: the same policy with a ladder from 0, where upstream declares K = 0 safe (first seed only).

The baselines are tuned in hindsight, per machine, from the fixed K runs of the same cells, averaged
over the acceptance sets (no baseline is tuned to one set):

* schedule: the K that is best on average at each load;
* gates: the K, and the threshold halfway between two sets, with the best mean over loads and sets
  if the gate closed at once on the sets below it, and never on others. Real gates also close by
  chance, and then for good, so they may end up below `one K`. Windows: 10 requests, 500
  iterations. A threshold of 0 means that hindsight would rather never close it.

`best K` is the best fixed K, 0 included, of each machine, set and load: what a schedule tuned for
one set alone would reach. `one K` is the fixed K that is best on average over all of them: a gate
that never closes. A ratio is throughput over throughput, same seed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean

from adaptive_spec.policies.kernels import kernel_in_use, select_kernel
from adaptive_spec.sim.policy_choice import parse_policy
from adaptive_spec.sim.results.result import Result
from adaptive_spec.sim.scenario import simulate
from adaptive_spec.sim.sweep.cells import Cell, CellName, Files, check_cells, plan_cells
from adaptive_spec.sim.sweep.config import load_sweep_config

CONFIG = Path(__file__).with_suffix(".yaml")
GATES = "adaptive_spec.sim.baselines.engines.tensorrt_llm_gates"
SCHEDULE = "adaptive_spec.sim.baselines.engines.tensorrt_llm_schedule:TensorRTLLMSchedulePolicy"
WINDOW_GATE = f"{GATES}:TensorRTLLMWindowGatePolicy"
REQUEST_GATE = f"{GATES}:TensorRTLLMRequestGatePolicy"
REQUESTS, ITERATIONS = 10, 500
OURS, OURS_FROM_0, BEST, ONE = "goodput", "goodput, K = 0", "best K", "one K"
FIXED = {0: "off", 1: "static:k=1", 2: "static:k=2", 3: "static:k=3", 5: "static:k=5"}
FIXED[6] = "static:k=6"
BASELINES = ("schedule", "request gate", "window gate")

Place = tuple[str, str, int]
"""Hardware, acceptance set, concurrency."""
Runs = dict[tuple[Place, str], list[Result]]
"""Results by place and policy, in the order of the seeds."""


class Bench:
    """Runs policies on the cells of the configuration and keeps their results."""

    def __init__(self, config: Path) -> None:
        self.config = load_sweep_config(config)
        cells = plan_cells(self.config, Files(config.resolve().parent))
        check_cells(self.config, cells, config)
        self.cells = {v: [c for c in cells if c.name.engine == v] for v in self.config.engines()}
        self.runs: Runs = {}

    def run(
        self,
        label: str,
        policy: Callable[[str], str],
        *,
        engine: str,
        wanted: Callable[[CellName], bool] = lambda name: True,
    ) -> None:
        """Run one policy on every wanted cell of an engine variant.

        Args:
            label: what results call it.
            policy: hardware -> the policy as text.
            engine: variant.
            wanted: cells to run it on.
        """
        began = time.perf_counter()
        for cell in self.cells[engine]:
            if wanted(cell.name):
                result = simulate(cell.scenario, parse_policy(policy(cell.name.hardware)))
                self.runs.setdefault((place_of(cell), label), []).append(result)
        print(f"{label:<24} {time.perf_counter() - began:6.1f} s", flush=True)

    def places(self, hardware: str) -> list[Place]:
        """All places of a machine."""
        found = dict.fromkeys(place_of(cell) for cell in self.cells["upstream"])
        return [place for place in found if place[0] == hardware]

    def speed(self, place: Place, label: str) -> float:
        """Tokens per second, mean of the seeds."""
        return mean(result.throughput_tok_s for result in self.runs[place, label])

    def best_k(self, place: Place) -> int:
        """The fixed K with the highest throughput."""
        return max(FIXED, key=lambda k: self.speed(place, FIXED[k]))

    def of_best(self, place: Place, k: int) -> float:
        """Throughput of a fixed K over that of the best one."""
        return self.speed(place, FIXED[k]) / self.speed(place, FIXED[self.best_k(place)])

    def one_k(self, hardware: str) -> int:
        """The fixed K with the best mean over all places of a machine."""
        places = self.places(hardware)
        return max(FIXED, key=lambda k: mean(self.of_best(place, k) for place in places))

    def ratios(self, places: Sequence[Place], one: str, other: str) -> list[float]:
        """Throughput over throughput by place, mean of the seeds both have run."""
        found = []
        for place in places:
            pairs = zip(
                self.runs[place, self._label(place, one)],
                self.runs[place, self._label(place, other)],
                strict=False,
            )
            found.append(mean(a.throughput_tok_s / b.throughput_tok_s for a, b in pairs))
        return found

    def _label(self, place: Place, policy: str) -> str:
        if policy == BEST:
            return FIXED[self.best_k(place)]
        return FIXED[self.one_k(place[0])] if policy == ONE else policy


class Baselines:
    """Upstream's own adaptivity on one machine, set up with hindsight."""

    def __init__(self, bench: Bench, hardware: str) -> None:
        self._bench = bench
        self._places = bench.places(hardware)
        length, length_k = self._tuned(lambda result: result.accepted_per_step)
        rate, rate_k = self._tuned(lambda result: result.accepted_per_step / result.mean_k)
        self.texts = {
            "schedule": f"{SCHEDULE}:schedule={json.dumps(self._schedule())}",
            "request gate": f"{REQUEST_GATE}:acceptance_window={REQUESTS},"
            f"acceptance_length_threshold={length:.3f},k={length_k}",
            "window gate": f"{WINDOW_GATE}:acceptance_rate_window_size={ITERATIONS},"
            f"acceptance_rate_threshold={rate:.3f},k={rate_k}",
        }

    def _schedule(self) -> list[tuple[int, int]]:
        """Largest batch size and K; between two loads the limit is their geometric mean."""
        loads = sorted({load for _, _, load in self._places})
        limits = [int((a * b) ** 0.5) for a, b in itertools.pairwise(loads)]
        pairs: list[tuple[int, int]] = []
        for limit, load in zip([*limits, loads[-1]], loads, strict=True):
            k = self._best_on_average(load)
            if pairs and pairs[-1][1] == k:
                pairs.pop()
            pairs.append((limit, k))
        return pairs

    def _best_on_average(self, load: int) -> int:
        places = [place for place in self._places if place[2] == load]
        return max(FIXED, key=lambda k: mean(self._bench.of_best(place, k) for place in places))

    def _tuned(self, signal: Callable[[Result], float]) -> tuple[float, int]:
        """Threshold and K with the best mean, had the gate closed at once."""
        scored = []
        for k in FIXED:
            if not k:
                continue
            seen: dict[str, list[float]] = {}
            for place in self._places:
                runs = self._bench.runs[place, FIXED[k]]
                seen.setdefault(place[1], []).append(mean(signal(result) for result in runs))
            level = {name: mean(values) for name, values in seen.items()}
            ordered = sorted(level.values())
            halfway = [(below + above) / 2 for below, above in itertools.pairwise(ordered)]
            for threshold in (0.0, *halfway):
                score = mean(
                    self._bench.of_best(place, k if level[place[1]] >= threshold else 0)
                    for place in self._places
                )
                scored.append((score, threshold, k))
        _, threshold, k = max(scored)
        return threshold, k


def place_of(cell: Cell) -> Place:
    name = cell.name
    return name.hardware, name.acceptance, int(name.load.removeprefix("closed:"))


def print_table(bench: Bench, hardware: str, by: int, title: str) -> list[dict[str, object]]:
    """Ratios of ours, and of each policy to the best fixed K; one row per value of the axis."""
    groups: dict[object, list[Place]] = {}
    for place in bench.places(hardware):
        groups.setdefault(place[by], []).append(place)
    groups["mean"] = bench.places(hardware)
    print(f"\n{hardware}: by {title}; mean (worst) of ours / ..., then ... / best K")
    print(
        f"{'':<14}{'/ best K':>15}{'/ one K':>15}{'/ schedule':>15}{'/ req. gate':>15}"
        f"{'/ win. gate':>15}  |{'one K':>7}{'sched.':>7}{'req.':>7}{'win.':>7}{'ours 0':>8}"
    )
    rows = []
    for name, places in groups.items():
        row: dict[str, object] = {"hardware": hardware, title: name}
        line = f"{name:<14}"
        for other in (BEST, ONE, *BASELINES):
            ratios = bench.ratios(places, OURS, other)
            row[f"ours / {other}"] = round(mean(ratios), 4)
            row[f"ours / {other}, worst"] = round(min(ratios), 4)
            line += f"{mean(ratios):>8.3f}{f'({min(ratios):.3f})':>7}"
        line += "  |"
        for label in (ONE, *BASELINES, OURS_FROM_0):
            value = mean(bench.ratios(places, label, BEST))
            row[f"{label} / {BEST}"] = round(value, 4)
            line += f"{value:>{8 if label == OURS_FROM_0 else 7}.3f}"
        rows.append(row)
        print(line)
    return rows


def rows_of(bench: Bench) -> list[dict[str, object]]:
    """One row per place and policy."""
    rows = []
    for (place, label), results in bench.runs.items():
        rows.append(
            {
                "hardware": place[0],
                "acceptance": place[1],
                "concurrency": place[2],
                "policy": label,
                "tok_s": [round(result.throughput_tok_s, 2) for result in results],
                "mean_k": round(mean(result.mean_k for result in results), 3),
                "accepted_per_step": round(mean(r.accepted_per_step for r in results), 3),
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", type=Path, default=CONFIG, help="the axes, as of `sweep`")
    parser.add_argument("--json", type=Path, help="write settings, figures and runs here")
    parser.add_argument("--data", type=Path, help="folder of public traces: ${data}")
    arguments = parser.parse_args()
    if arguments.data:
        os.environ["ADAPTIVE_SPEC_DATA"] = str(arguments.data)
    select_kernel("auto")
    bench = Bench(arguments.config)
    began = time.perf_counter()
    for text in FIXED.values():
        bench.run(text, lambda _, text=text: text, engine="upstream")
    machines = bench.config.hardware
    tuned = {hardware: Baselines(bench, hardware) for hardware in machines}
    for baseline in BASELINES:
        bench.run(
            baseline,
            lambda hardware, baseline=baseline: tuned[hardware].texts[baseline],
            engine="upstream",
        )
    bench.run(OURS, lambda _: OURS, engine="adapter")
    first = bench.config.seed_list()[0]
    bench.run(
        OURS_FROM_0, lambda _: OURS, engine="upstream", wanted=lambda name: name.seed == first
    )
    print(f"{'in all':<24} {time.perf_counter() - began:6.1f} s, {kernel_in_use()} planner")
    tables = []
    for hardware in machines:
        print(f"\n{hardware}: one K = {bench.one_k(hardware)}; settings of the baselines")
        for baseline, text in tuned[hardware].texts.items():
            print(f"  {baseline}: {text.partition(':')[2]}")
        tables += print_table(bench, hardware, 2, "concurrency")
        tables += print_table(bench, hardware, 1, "acceptance")
    fail_opens = sum(each.fail_opens for results in bench.runs.values() for each in results)
    print(f"\nfail-opens: {fail_opens}")
    if arguments.json:
        value = {
            "engine": bench.config.engine | {"variants": bench.config.engine_variants},
            "baselines": {hardware: baselines.texts for hardware, baselines in tuned.items()},
            "tables": tables,
            "runs": rows_of(bench),
        }
        text = json.dumps(value, indent=None, separators=(",", ":"))
        arguments.json.write_text(text.replace('},{"hardware"', '},\n{"hardware"') + "\n")


if __name__ == "__main__":
    main()
