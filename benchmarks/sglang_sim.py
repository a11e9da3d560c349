"""SGLang's own adaptivity, as it is in its source, against ours under SGLang's rules.

    python benchmarks/sglang_sim.py [--sglang FOLDER] [--json FILE]

The baseline is SGLang's own code: `AdaptiveSpeculativeParams` and its slots, read from
`speculative/adaptive_spec_params.py` of an installed SGLang or of an unpacked wheel (``--sglang``,
the folder that holds `sglang/`). Its imports of the rest of SGLang are left out, nothing else.

Level 0, one K per batch out of SGLang's default candidates 0, 1, 3, 5, 7; results known one step
later (overlap scheduling); K = 0 costs the pass that keeps the drafter in step, for all but `off`;
EAGLE on the H100 profile of an 8B model, closed loops. Simulated throughput; no SGLang ran.

* `sglang`: its default file, which allows fewer K the larger the batch, and none from 64 on;
* `sglang, one list`: the same code with all five candidates at every batch size;
* `goodput`: ours as the adapter runs it, with all candidates at every batch size, as on an engine
  without captured graphs or with that one list;
* `goodput, default file`: ours, held to the candidates of the default file at each batch size; the
  adapter does that where graphs are captured for those only;
* `goodput, dwell N`: ours with the adapter's limit of one change of K in N steps on average.

`best K` is the best fixed K of each set and load, 0 (`off`, no drafter pass at all) included: what
hindsight would launch with. Ratios are throughput over throughput, same seed. The set-up and its
figures are ours; ranks, graphs, memory and the cost of a change of K are not modelled.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from adaptive_spec.errors import DataError
from adaptive_spec.policies.kernels import kernel_in_use, select_kernel
from adaptive_spec.policy import Policy
from adaptive_spec.sim.data_folder import data_folder
from adaptive_spec.sim.engine.options import EngineOptions
from adaptive_spec.sim.policy_choice import parse_policy
from adaptive_spec.sim.results.result import Result
from adaptive_spec.sim.scenario import Scenario
from adaptive_spec.step import Level
from benchmarks.sglang_arms import (
    LADDER,
    LAUNCH_K,
    Restricted,
    SGLangSchedule,
    sglang_classes,
)

PUBLIC = {
    "gsm8k": "unlicensed/acceptance_specdecodebench_llama31_8b_gsm8k.jsonl.gz",
    "instructcoder": "unlicensed/acceptance_specdecodebench_llama31_8b_instructcoder.jsonl.gz",
}
BUNDLED = ("good", "mixed", "poor", "dead", "regime-change")
LOADS = {1: (2400, 600), 4: (6000, 550), 16: (20000, 550), 64: (64000, 550), 256: (200000, 550)}
"""Concurrency -> emitted tokens that are measured, steps before them."""
BEST = "best K"
SGLANG, ONE, OURS = "sglang", "sglang, one list", "goodput"
DEFAULT_FILE = "goodput, default file"
DWELLS = (2, 4, 8)


class Bench:
    """Runs policies on every set, load and seed."""

    def __init__(self, sglang: dict[str, Any], sets: Sequence[str], seeds: int) -> None:
        self._params = sglang["AdaptiveSpeculativeParams"]
        self._default: dict[int, tuple[int, ...]] = {
            int(size): tuple(sorted(entry["candidate_steps"]))
            for size, entry in sglang["DEFAULT_ADAPTIVE_CONFIG"].items()
        }
        self.places = [(name, load) for name in sets for load in LOADS]
        self.seeds = seeds
        self.runs: dict[tuple[str, int, str], list[Result]] = {}

    def run(self, label: str, policy: Callable[[int], Policy]) -> None:
        """Run one policy everywhere; it is built from a seed."""
        began = time.perf_counter()
        for name, load in self.places:
            found = [self._scenario(name, load, s).run(policy(s), label) for s in range(self.seeds)]
            self.runs[name, load, label] = found
        print(f"{label:<24} {time.perf_counter() - began:6.1f} s", flush=True)

    def own(self, one_list: Path | None) -> Policy:
        """SGLang's own, with its default file or another."""
        return SGLangSchedule(
            self._params(
                initial_steps=LAUNCH_K, cfg_path=None if one_list is None else str(one_list)
            )
        )

    def default_candidates(self, batch_size: int) -> tuple[int, ...]:
        """Candidates of the default file at this batch size."""
        return self._default[max(size for size in self._default if size <= max(batch_size, 1))]

    def speed(self, name: str, load: int, label: str) -> float:
        """Tokens per second, mean of the seeds."""
        return mean(result.throughput_tok_s for result in self.runs[name, load, label])

    def best_k(self, name: str, load: int) -> int:
        """The fixed K with the highest throughput."""
        return max(LADDER, key=lambda k: self.speed(name, load, fixed(k)))

    def ratio(self, name: str, load: int, one: str, other: str) -> float:
        """Throughput over throughput."""
        if other == BEST:
            other = fixed(self.best_k(name, load))
        pairs = zip(self.runs[name, load, one], self.runs[name, load, other], strict=True)
        return mean(a.throughput_tok_s / b.throughput_tok_s for a, b in pairs)

    def _scenario(self, name: str, load: int, seed: int) -> Scenario:
        tokens, warmup = LOADS[load]
        path = str(data_folder() / PUBLIC[name]) if name in PUBLIC else f"model:{name}"
        return Scenario(
            load=f"closed:{load}",
            acceptance=(path,),
            drafter="eagle",
            hardware="h100-llama-8b",
            engine=EngineOptions(
                max_draft_tokens=LADDER[-1], level=Level.UNIFORM, ladder=LADDER, delay=1
            ),
            seed=seed,
            tokens=tokens,
            warmup_steps=warmup,
        )


def fixed(k: int) -> str:
    """The text of the policy that always runs this K."""
    return f"static:k={k}" if k else "off"


def table(bench: Bench, labels: Sequence[str], by: int, title: str) -> tuple[list[str], list[Any]]:
    """One row per load or set: ours over the baselines, then each policy over the best fixed K."""
    groups: dict[object, list[tuple[str, int]]] = {}
    for place in bench.places:
        groups.setdefault(place[by], []).append(place)
    groups["mean"] = bench.places
    lines = [f"\nby {title}: mean (worst) of goodput / ..., then ... / best K"]
    lines.append(
        f"{'':<16}{'/ sglang':>16}{'/ one list':>16}{'/ best K':>16}  |"
        + "".join(f"{label.replace('goodput, ', ''):>17}" for label in labels if label != OURS)
    )
    rows = []
    for group, places in groups.items():
        line, row = f"{group!s:<16}", {"by": title, "value": group}
        for other in (SGLANG, ONE, BEST):
            ratios = [bench.ratio(*place, OURS, other) for place in places]
            row[f"goodput / {other}"] = round(mean(ratios), 4)
            row[f"goodput / {other}, worst"] = round(min(ratios), 4)
            line += f"{mean(ratios):>8.3f}{f'({min(ratios):.3f})':>8}"
        line += "  |"
        for label in labels:
            value = mean(bench.ratio(*place, label, BEST) for place in places)
            row[f"{label} / {BEST}"] = round(value, 4)
            line += "" if label == OURS else f"{value:>17.3f}"
        lines.append(line)
        rows.append(row)
    return lines, rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sglang", type=Path, help="folder that holds sglang/, of a wheel")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--sets", nargs="*", default=[*PUBLIC, *BUNDLED], help="acceptance sets")
    parser.add_argument("--json", type=Path, help="write figures here")
    arguments = parser.parse_args()
    try:
        sglang = sglang_classes(arguments.sglang)
        one_list = Path(__file__).with_name("sglang_one_list.json")
        run(sglang, one_list, arguments)
    except DataError as error:
        raise SystemExit(f"error: {error}") from error


def run(sglang: dict[str, Any], one_list: Path, arguments: argparse.Namespace) -> None:
    select_kernel("auto")
    bench = Bench(sglang, arguments.sets, arguments.seeds)
    began = time.perf_counter()
    for k in LADDER:
        bench.run(fixed(k), lambda seed, k=k: parse_policy(fixed(k)).build(seed))
    bench.run(SGLANG, lambda _: bench.own(None))
    bench.run(ONE, lambda _: bench.own(one_list))
    bench.run(OURS, lambda seed: Restricted(lambda _: LADDER, 1, seed))
    bench.run(DEFAULT_FILE, lambda seed: Restricted(bench.default_candidates, 1, seed))
    labels = [SGLANG, ONE, OURS, DEFAULT_FILE]
    for dwell in DWELLS:
        label = f"goodput, dwell {dwell}"
        bench.run(label, lambda seed, dwell=dwell: Restricted(lambda _: LADDER, dwell, seed))
        labels.append(label)
    print(f"{'in all':<24} {time.perf_counter() - began:6.1f} s, {kernel_in_use()} planner")
    lines, rows = table(bench, labels, 1, "concurrency")
    more, others = table(bench, labels, 0, "acceptance")
    fail_opens = sum(each.fail_opens for results in bench.runs.values() for each in results)
    lines += [*more, f"\nfail-opens: {fail_opens}"]
    print("\n".join(lines))
    if arguments.json:
        runs = [
            {
                "acceptance": name,
                "concurrency": load,
                "policy": label,
                "tok_s": [round(result.throughput_tok_s, 2) for result in results],
                "mean_k": round(mean(result.mean_k for result in results), 3),
                "accepted_per_step": round(mean(r.accepted_per_step for r in results), 3),
            }
            for (name, load, label), results in bench.runs.items()
        ]
        value = {"ladder": LADDER, "launch_k": LAUNCH_K, "tables": rows + others, "runs": runs}
        text = json.dumps(value, separators=(",", ":"))
        arguments.json.write_text(text.replace('},{"', '},\n{"') + "\n")


if __name__ == "__main__":
    main()
