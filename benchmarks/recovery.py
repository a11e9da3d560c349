"""How long policies take to find the new optimum after a change, in the simulator.

    python benchmarks/recovery.py [--policies POLICY POLICY ...] [--cases falls,revives-60,...]

Cases, closed loops on an H100, 8B, EAGLE, Kmax = 6:

* falls: acceptance of all requests falls from about .8 per draft to about .1 at 30 s;
* rises: the other way round;
* revives-N: at 20 s the drafter dies (nothing is accepted to speak of), N seconds later it is back;
* load-up, load-down: 4 clients become 128, or 128 become 4, at 30 s, on gsm8k's EAGLE lists;
* tenants: one with good acceptance (gsm8k, EAGLE) leaves at 30 s, one with poor acceptance comes.

Recovered: the first window of 4,000 decoded request-steps after the change whose throughput is
within 3 % of the fixed K that is best from the change to the end, and stays so on average; steps
and seconds are counted from the change to where that window begins
(`sim/results/segments.py`). `lost` are
the seconds spent beyond what that K takes for as many tokens. Fixed K know no history, so for the
revivals they run with a dead time of 20 s. Means over the seeds; `-`: not within the run, in some
seed.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import msgspec

from adaptive_spec.policies.static import StaticOptions, StaticPolicy
from adaptive_spec.sim.data_folder import ENVIRONMENT_VARIABLE, data_folder
from adaptive_spec.sim.engine.options import EngineOptions
from adaptive_spec.sim.policy_choice import parse_policy
from adaptive_spec.sim.results.segments import Recovery, Segment, recovery_of
from adaptive_spec.sim.scenario import Phase, Scenario, simulate

KMAX = 6
GSM8K = "unlicensed/acceptance_specdecodebench_llama31_8b_gsm8k.jsonl.gz"
GOOD, POOR, DEAD = ("model:steady-80",), ("model:steady-10",), ("model:dead",)
DEAD_FOR_ORACLE = 20.0
LOADS = {
    "load-up": "concurrency: {pieces: [{seconds: 30, at: 4}, {seconds: 300, at: 128}]}\n",
    "load-down": "concurrency: {pieces: [{seconds: 30, at: 128}, {seconds: 300, at: 4}]}\n",
    "tenants": """tenants:
  - name: good
    task: gsm8k
    load: {concurrency: {pieces: [{seconds: 30, at: CLIENTS}, {seconds: 300, at: 0}]}}
  - name: poor
    task: steady-10
    load: {concurrency: {pieces: [{seconds: 30, at: 0}, {seconds: 300, at: CLIENTS}]}}
""",
}


@dataclass(frozen=True)
class Case:
    """A scenario with one change that counts, the last."""

    scenario: Scenario
    oracle: Scenario


def case(name: str, clients: int, seed: int, data: Path, folder: Path) -> Case:
    """The case of this name; raises KeyError for another."""
    plain = Scenario(
        load=f"closed:{clients}",
        acceptance=GOOD,
        drafter="eagle",
        hardware=str(Path(__file__).parent / "profiles/h100-llama-8b.json"),
        engine=EngineOptions(max_draft_tokens=KMAX),
        seed=seed,
        seconds=60.0,
    )
    change = msgspec.structs.replace
    if name in ("falls", "rises"):
        before, after = (GOOD, POOR) if name == "falls" else (POOR, GOOD)
        found = change(plain, acceptance=before, phases=(Phase(at=30.0, files=after),))
        return Case(found, found)
    if name.startswith("revives-"):
        dead = float(name.partition("-")[2])
        measured = 30.0 + max(60.0, 0.2 * dead)

        def revival(seconds: float) -> Scenario:
            back = 20.0 + seconds
            phases = (Phase(at=20.0, files=DEAD), Phase(at=back, files=GOOD))
            return change(plain, phases=phases, seconds=back + measured)

        return Case(revival(dead), revival(DEAD_FOR_ORACLE))
    text = LOADS[name].replace("CLIENTS", str(clients))
    file = folder / f"{name}-{clients}.yaml"
    file.write_text(text)
    files = (str(data / GSM8K), *(POOR if name == "tenants" else ()))
    found = change(plain, load=str(file), acceptance=files, changes=(30.0,))
    return Case(found, found)


@functools.cache
def fixed(scenario: Scenario) -> tuple[Segment, ...]:
    """[Kmax + 1] the last segment with each fixed K."""
    runs = [scenario.run(StaticPolicy(StaticOptions(k=k)), f"K = {k}") for k in range(KMAX + 1)]
    return tuple(run.segments[-1] for run in runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policies", "--policy", nargs="+", default=["goodput"], metavar="POLICY")
    parser.add_argument(
        "--cases",
        default="falls,rises,revives-60,revives-300,load-up,load-down,tenants",
        help="by comma; revives-N for any N",
    )
    parser.add_argument("--clients", default="16,64", help="by comma")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write every run here")
    parser.add_argument("--data", type=Path, help="folder of public traces")
    arguments = parser.parse_args()
    data = data_folder(arguments.data).resolve()
    os.environ[ENVIRONMENT_VARIABLE] = str(data)
    began, rows = time.perf_counter(), []
    print(f"{'case':22}{'policy':34}{'steps':>8}{'seconds':>9}{'lost s':>8}{'/ best K':>9}  best K")
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.cases.split(","):
            for clients in [0] if name.startswith("load") else map(int, _list(arguments.clients)):
                for text in arguments.policies:
                    found = []
                    for seed in range(arguments.seeds):
                        chosen = case(name, clients, seed, data, Path(folder))
                        result = simulate(chosen.scenario, parse_policy(text))
                        recovery = recovery_of(result.segments[-1], fixed(chosen.oracle))
                        assert recovery is not None
                        found.append(recovery)
                        row = {"case": name, "clients": clients, "policy": text, "seed": seed}
                        row |= msgspec.to_builtins(recovery) | {"switches": result.switches}
                        rows.append(row)
                    title = f"{name} x {clients}" if clients else name
                    print(f"{title:22}{text:34}{_line(found)}", flush=True)
    print(f"{time.perf_counter() - began:.0f} s")
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


def _line(found: list[Recovery]) -> str:
    steps = [each.steps for each in found if each.steps is not None]
    seconds = [each.seconds for each in found if each.seconds is not None]
    known = len(steps) == len(found)
    shown = f"{mean(steps):8.0f}{mean(seconds):9.2f}" if known else f"{'-':>8}{'-':>9}"
    lost = mean(each.lost_seconds for each in found)
    ratio = mean(each.of_best_static for each in found)
    return f"{shown}{lost:8.2f}{ratio:9.3f}  {found[0].best_static_k}"


def _list(text: str) -> list[str]:
    return text.split(",")


if __name__ == "__main__":
    main()
