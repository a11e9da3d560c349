"""SGLang's own adaptivity, as it is in its source, against ours under SGLang's rules.

    python benchmarks/sglang_sim.py [--sglang FOLDER] [--json FILE] [--text FILE]

The peer is SGLang's own code: `AdaptiveSpeculativeParams` and its slots, read from
`speculative/adaptive_spec_params.py` of an installed SGLang or of an unpacked wheel (``--sglang``,
the folder that holds `sglang/`). Its imports of the rest of SGLang are left out, nothing else.

Level 0, one K per batch out of SGLang's default candidates 0, 1, 3, 5, 7; results known one step
later (overlap scheduling); K = 0 costs the pass that keeps the drafter in step, for all but `off`;
EAGLE on the H100 profile of an 8B model, closed loops. Simulated throughput; no SGLang ran.

* `sglang`: its default file, which allows fewer K the larger the batch, and none from 64 on;
* `sglang, one list`: the same code with all five candidates at every batch size;
* `goodput`: ours, all candidates at every batch size, as on an engine without captured graphs or
  with that one list;
* `goodput, default file`: ours, held to the candidates of the default file at each batch size; the
  adapter does that where graphs are captured for those only;
* `goodput, dwell N`: ours with the adapter's limit of one change of K in N steps on average.

`best K` is the best fixed K of each set and load, 0 (`off`, no drafter pass at all) included: what
hindsight would launch with. Ratios are throughput over throughput, same seed. The set-up and its
figures are ours; ranks, graphs, memory and the cost of a change of K are not modelled.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any, ClassVar

import msgspec
import numpy as np

from adaptive_spec.adapters.sglang.steps import round_down, wanted_k
from adaptive_spec.adapters.sglang.switch_limit import SwitchLimit
from adaptive_spec.errors import DataError
from adaptive_spec.kernels import select_kernel
from adaptive_spec.policies.goodput import GoodputOptions, GoodputPolicy
from adaptive_spec.policy import Policy, State
from adaptive_spec.sim.data_folder import data_folder
from adaptive_spec.sim.options import EngineOptions
from adaptive_spec.sim.policy_choice import parse_policy
from adaptive_spec.sim.result import Result
from adaptive_spec.sim.scenario import Scenario
from adaptive_spec.values import IntArray, Level, Mode, SpecPlan, StepContext, StepOutcome

FILE = "sglang/srt/speculative/adaptive_spec_params.py"
LADDER = (0, 1, 3, 5, 7)
LAUNCH_K = 3
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


class NoOptions(msgspec.Struct, frozen=True):
    """No options."""


class SGLangSchedule:
    """SGLang's parameters object as a policy: its K for the batch, its own learning."""

    name: ClassVar[str] = "sglang"
    summary: ClassVar[str] = "SGLang's --speculative-adaptive"
    Options: ClassVar[type[msgspec.Struct]] = NoOptions

    def __init__(self, params: Any) -> None:
        self._params = params

    def plan(self, context: StepContext) -> SpecPlan:
        """K of the slot of this batch size."""
        k = self._params.get_steps_for_batch(context.batch_size)
        return SpecPlan(
            step=context.step,
            verify=np.minimum(context.draft_available, k),
            draft_depth=k,
            mode=Mode.ON,
            reason="schedule",
        )

    def observe(self, outcome: StepOutcome) -> None:
        """Feed the slot of this batch size."""
        self._params.on_verify_complete(outcome.accepted.tolist(), outcome.batch_size)

    def forget(self, slots: IntArray) -> None:
        """It knows no requests."""

    def state(self) -> State:
        """Nothing is kept over a restart."""
        return {}

    def restore(self, state: State) -> None:
        """Nothing is kept over a restart."""


class Restricted(GoodputPolicy):
    """`goodput` behind what the adapter puts after it: runnable K and a limit on changes.

    The adapter tells the policy that what its last plan asked for is at hand, and SGLang drafts
    what the adapter settles on at the beginning of the step. The simulator drafts at the end of the
    step before: to the depth that will be settled on if the policy stays with its plan.
    """

    def __init__(self, runnable: Callable[[int], tuple[int, ...]], dwell: int, seed: int) -> None:
        super().__init__(GoodputOptions(), seed=seed)
        self._runnable = runnable
        self._limit = SwitchLimit(dwell)
        self._asked = LAUNCH_K

    def plan(self, context: StepContext) -> SpecPlan:
        """The policy's plan, cut to what may run with this many requests."""
        allowed = self._runnable(context.batch_size)
        possible = np.minimum(context.draft_possible, allowed[-1])
        plan = super().plan(
            msgspec.structs.replace(
                context,
                draft_available=np.minimum(possible, self._asked),
                draft_possible=possible,
            )
        )
        self._asked = plan.draft_depth
        k = self._limit.settle(round_down(wanted_k(plan), allowed))
        return msgspec.structs.replace(
            plan,
            verify=np.minimum(context.draft_available, k),
            draft_depth=self._limit.foresee(round_down(plan.draft_depth, allowed)),
        )


def sglang_classes(folder: Path | None) -> dict[str, Any]:
    """SGLang's module without its imports of SGLang. Raises DataError if there is none."""
    if folder is not None:
        file = folder / FILE
    else:
        spec = importlib.util.find_spec("sglang")
        places = list(spec.submodule_search_locations or []) if spec else []
        file = Path(places[0]).parent / FILE if places else Path(FILE)
    try:
        tree = ast.parse(file.read_text())
    except OSError as error:
        raise DataError(
            f"{file}: {error.strerror}; install sglang, or unpack its wheel: --sglang FOLDER"
        ) from error
    tree.body = [
        node
        for node in tree.body
        if not (isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sglang"))
    ]
    module: dict[str, Any] = {"__name__": "sglang", "log_info_on_rank0": lambda *_: None}
    exec(compile(tree, str(file), "exec"), module)
    return module


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
    """One row per load or set: ours over the peers, then each policy over the best fixed K."""
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
    parser.add_argument("--text", type=Path, help="write the tables here")
    arguments = parser.parse_args()
    try:
        sglang = sglang_classes(arguments.sglang)
        one_list = Path(__file__).with_name("sglang_one_list.json")
        run(sglang, one_list, arguments)
    except DataError as error:
        raise SystemExit(f"error: {error}") from error


def run(sglang: dict[str, Any], one_list: Path, arguments: argparse.Namespace) -> None:
    kernel = select_kernel("auto")
    bench = Bench(sglang, arguments.sets, arguments.seeds)
    began = time.perf_counter()
    for k in LADDER:
        bench.run(fixed(k), lambda seed, k=k: parse_policy(fixed(k)).build(seed))
    bench.run(SGLANG, lambda _: bench.own(None))
    bench.run(ONE, lambda _: bench.own(one_list))
    bench.run(OURS, lambda seed: parse_policy(OURS).build(seed))
    bench.run(DEFAULT_FILE, lambda seed: Restricted(bench.default_candidates, 1, seed))
    labels = [SGLANG, ONE, OURS, DEFAULT_FILE]
    for dwell in DWELLS:
        label = f"goodput, dwell {dwell}"
        bench.run(label, lambda seed, dwell=dwell: Restricted(lambda _: LADDER, dwell, seed))
        labels.append(label)
    print(f"{'in all':<24} {time.perf_counter() - began:6.1f} s, {kernel.name} planner")
    lines, rows = table(bench, labels, 1, "concurrency")
    more, others = table(bench, labels, 0, "acceptance")
    fail_opens = sum(each.fail_opens for results in bench.runs.values() for each in results)
    lines += [*more, f"\nfail-opens: {fail_opens}"]
    print("\n".join(lines))
    if arguments.text:
        arguments.text.write_text("\n".join(lines).lstrip("\n") + "\n")
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
