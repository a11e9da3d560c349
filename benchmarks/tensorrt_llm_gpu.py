"""Check the TensorRT-LLM adapter on a GPU, in about ten minutes.

    python benchmarks/tensorrt_llm_gpu.py --model TARGET --draft-model EAGLE3_DRAFT

Needs TensorRT-LLM 1.3 or later, an NVIDIA GPU, a target and an EAGLE3 draft for it. Each arm is a
process of its own: no speculation, static K, upstream's schedule by batch size, upstream's
acceptance gate, a K drawn for each iteration, and adaptive-spec. The table at the end
says, per question, what was measured, what was wanted, and whether it was met. Ratios compare arms
of this one run.

`--start-up-cost` needs neither: it times interpreter starts with and without the start-up hook.

The authors had no such GPU: this script was never run to its end. Its arithmetic is tested.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.judge.gpu.bars import Bar
from benchmarks.judge.gpu.steered import NAME as STEERED

ARMS = ("none", "static", "schedule", "gate", "drawn", "adaptive")
OURS = ("drawn", "adaptive")
PROMPTS = (
    "The president of the United States is",
    "def fibonacci(n):\n    ",
    "List the planets of the solar system:",
    "Once upon a time, in a village by the sea,",
    "Translate to French: The weather is nice today.",
    "The theory of relativity says that",
    "SELECT name, age FROM users WHERE",
    "Explain, step by step, how to boil an egg:",
)


class Arm(msgspec.Struct):
    """Measurements of one process.

    Attributes:
        name: of the arm.
        outputs: greedy token ids of each prompt.
        tokens_per_second: load -> throughput of each repeat.
        steps: per iteration of ours: depth, verified drafts, accepted drafts.
        fail_opens: faults of ours, by kind.
    """

    name: str
    outputs: list[list[int]]
    tokens_per_second: dict[int, list[float]]
    steps: list[tuple[int, int, int]] = []
    fail_opens: dict[str, int] = {}


def verdicts(arms: Mapping[str, Arm], ladder: Sequence[int]) -> list[Bar]:
    """Judge a run, as far as its arms go."""
    found = [_ladder_ran(arms.get("drawn"), ladder), _no_faults(arms)]
    found += [_parity(arms, name) for name in OURS]
    found.append(_acceptance_recovers(arms.get("drawn"), max(ladder)))
    loads = sorted(arms["adaptive"].tokens_per_second) if "adaptive" in arms else []
    found += [_throughput(arms, load) for load in loads]
    return found


def _ladder_ran(drawn: Arm | None, ladder: Sequence[int]) -> Bar:
    question, wanted = "every K of the ladder runs", ",".join(map(str, ladder))
    if drawn is None or not drawn.steps:
        return Bar(question, wanted, "no steps", None)
    ran = sorted({depth for depth, _, _ in drawn.steps})
    return Bar(question, wanted, ",".join(map(str, ran)), ran == sorted(ladder))


def _no_faults(arms: Mapping[str, Arm]) -> Bar:
    kinds = {kind: n for arm in arms.values() for kind, n in arm.fail_opens.items()}
    text = "; ".join(f"{kind}: {n}" for kind, n in kinds.items()) or "none"
    return Bar("faults of adaptive-spec", "none", text, not kinds)


def _parity(arms: Mapping[str, Arm], name: str) -> Bar:
    """Greedy output as without speculation, at least as often as upstream's own static K."""
    question = f"greedy output of {name} = no speculation"
    if name not in arms or "none" not in arms or "static" not in arms:
        return Bar(question, "", "an arm is missing", None)
    reference = arms["none"].outputs
    same, own = (_identical(arms[arm].outputs, reference) for arm in (name, "static"))
    count = len(reference)
    return Bar(question, f"{own} of {count} (static K)", f"{same} of {count}", same >= own)


def _identical(outputs: Sequence[Sequence[int]], reference: Sequence[Sequence[int]]) -> int:
    return sum(list(a) == list(b) for a, b in zip(outputs, reference, strict=True))


def _acceptance_recovers(drawn: Arm | None, kmax: int) -> Bar:
    """A drafter that went stale at a low K would accept less at Kmax in each later turn."""
    question, wanted = "acceptance at Kmax, last turns / first turns", ">= 0.90"
    full = [(v, a) for d, v, a in drawn.steps if d == kmax and v] if drawn else []
    if len(full) < 20:
        return Bar(question, wanted, f"{len(full)} steps", None)
    half = len(full) // 2
    first, last = (
        sum(a for _, a in part) / sum(v for v, _ in part) for part in (full[:half], full[half:])
    )
    if not first:
        return Bar(question, wanted, "nothing was ever accepted", None)
    return Bar(question, wanted, f"{last / first:.2f}", last / first >= 0.9)


def _throughput(arms: Mapping[str, Arm], load: int) -> Bar:
    """Against the best of the others at this load, with what the repeats scatter."""
    ours = arms["adaptive"].tokens_per_second[load]
    others = {
        name: arm.tokens_per_second[load]
        for name, arm in arms.items()
        if name not in OURS and load in arm.tokens_per_second
    }
    question = f"tokens/s at load {load}, adaptive / best other"
    if not others:
        return Bar(question, ">= 0.98", "no other arm", None)
    best = max(others, key=lambda name: statistics.median(others[name]))
    ratio = statistics.median(ours) / statistics.median(others[best])
    scatter = max((max(r) - min(r)) / statistics.median(r) for r in (ours, others[best]))
    every = ", ".join(
        f"{name} {statistics.median(ours) / statistics.median(values):.2f}"
        for name, values in sorted(others.items())
    )
    measured = f"{ratio:.2f} of {best} ({every}; scatter {scatter:.0%})"
    return Bar(question, ">= 0.98 less scatter", measured, ratio >= 0.98 - scatter)


def print_table(rows: Sequence[Bar]) -> bool:
    """Print the verdicts; True if none is unmet."""
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for column in ("question", "measured", "wanted", "verdict"):
        table.add_column(column, overflow="fold")
    words = {True: "met", False: "NOT MET", None: "not judged"}
    for row in rows:
        table.add_row(row.question, row.measured, row.wanted, words[row.met])
    Console().print(table)
    return all(row.met is not False for row in rows)


def run_arm(name: str, options: argparse.Namespace, folder: Path) -> Arm:
    """One arm, in this process, which has imported nothing of TensorRT-LLM yet."""
    os.environ["TLLM_WORKER_USE_SINGLE_PROCESS"] = "1"
    os.environ.pop("TLLM_ADAPTIVE_SPEC", None)
    if name in OURS:
        policy = "goodput" if name == "adaptive" else STEERED
        settings = {
            "policy": policy,
            "status_file": str(folder / f"{name}.status.json"),
            "trace": {"directory": str(folder / f"{name}.traces")},
        }
        os.environ["TLLM_ADAPTIVE_SPEC"] = json.dumps(settings)
        os.environ["TLLM_ADAPTIVE_SPEC_LADDER"] = ",".join(map(str, options.ladder))
        import adaptive_spec.adapters.tensorrt_llm.hook_file  # noqa: F401
    llm, sampling = _engine(name, options)
    outputs = llm.generate(list(PROMPTS), sampling(options.tokens))
    arm = Arm(name, [list(output.outputs[0].token_ids) for output in outputs], {})
    for load in options.loads:
        prompts = [PROMPTS[i % len(PROMPTS)] for i in range(load)]
        llm.generate(prompts, sampling(options.tokens))  # what is learned or compiled first
        arm.tokens_per_second[load] = [
            _timed(llm, prompts, sampling(options.tokens)) for _ in range(options.repeats)
        ]
    llm.shutdown()
    return arm


def _engine(name: str, options: argparse.Namespace) -> tuple[Any, Any]:
    from tensorrt_llm import LLM, SamplingParams
    from tensorrt_llm.llmapi import CudaGraphConfig, Eagle3DecodingConfig, KvCacheConfig

    largest, kmax = max(options.loads), options.kmax
    extra: dict[str, Any] = {}
    if name in OURS:
        extra["draft_len_schedule"] = {largest: kmax}
    elif name == "schedule":
        extra["draft_len_schedule"] = schedule(kmax, largest)
    elif name == "gate":
        extra.update(acceptance_rate_window_size=256, acceptance_rate_threshold=0.3)
    speculation = None
    if name != "none":
        speculation = Eagle3DecodingConfig(
            max_draft_len=kmax, speculative_model=options.draft_model, **extra
        )
    cache: dict[str, Any] = {"free_gpu_memory_fraction": options.memory}
    if "use_kv_cache_manager_v2" in KvCacheConfig.model_fields:
        cache["use_kv_cache_manager_v2"] = False
    llm = LLM(
        model=options.model,
        max_batch_size=largest,
        cuda_graph_config=CudaGraphConfig(max_batch_size=largest, enable_padding=True),
        kv_cache_config=KvCacheConfig(**cache),
        speculative_config=speculation,
    )
    return llm, lambda tokens: SamplingParams(max_tokens=tokens, temperature=0, ignore_eos=True)


def schedule(kmax: int, largest: int) -> dict[int, int]:
    """Upstream's own kind of table: upper bounds of batch size, K falling."""
    steps = ((4, kmax), (16, max(kmax // 2, 1)), (largest, 1))
    found = {bound: k for bound, k in steps if bound < largest}
    return {**found, largest: next(k for bound, k in steps if bound >= largest)}


def _timed(llm: Any, prompts: list[str], sampling: Any) -> float:
    began = time.perf_counter()
    outputs = llm.generate(prompts, sampling)
    tokens = sum(len(output.outputs[0].token_ids) for output in outputs)
    return tokens / (time.perf_counter() - began)


def read_ours(arm: Arm, folder: Path) -> None:
    """Return the figures of our own step traces and status file, once the process has ended."""
    for file in sorted((folder / f"{arm.name}.traces").glob("*.jsonl")):
        for line in file.read_text().splitlines():
            try:
                step = json.loads(line)
            except ValueError:  # the last line of a process that was cut off
                continue
            if step.get("mode") == "on":
                arm.steps.append((step["depth"], sum(step["k"]), sum(step["accepted"])))
    status = folder / f"{arm.name}.status.json"
    if status.is_file():
        arm.fail_opens = json.loads(status.read_text())["fail_opens"]


def start_up_cost(rounds: int = 20, starts: int = 15) -> None:
    """Time interpreter starts of a new environment, with and without the hook, in turn."""
    import venv

    from adaptive_spec.adapters.tensorrt_llm import install

    with tempfile.TemporaryDirectory() as folder:
        venv.EnvBuilder(symlinks=True).create(folder)
        python = Path(folder, "bin", "python")
        packages = next(Path(folder, "lib").iterdir()) / "site-packages"
        seconds: dict[bool, list[float]] = {True: [], False: []}
        for _ in range(rounds):
            for hooked in (True, False):
                (install.install_hook if hooked else install.remove_hook)(packages)
                for _ in range(starts):
                    began = time.perf_counter()
                    subprocess.run([python, "-c", "pass"], check=True)
                    seconds[hooked].append(time.perf_counter() - began)
    with_hook, without = (statistics.median(seconds[hooked]) * 1e3 for hooked in (True, False))
    print(f"interpreter start, median of {rounds * starts}: {without:.2f} ms without the hook,")
    print(f"{with_hook:.2f} ms with it: {with_hook - without:.2f} ms more")


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Check the TensorRT-LLM adapter on a GPU.")
    parser.add_argument("--model", help="target model")
    parser.add_argument("--draft-model", help="EAGLE3 draft of that model")
    parser.add_argument("--kmax", type=int, default=4, help="max_draft_len")
    parser.add_argument("--loads", type=_numbers, default=(1, 8, 32), help="requests at once")
    parser.add_argument("--tokens", type=int, default=128, help="tokens per request")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--memory", type=float, default=0.6, help="free_gpu_memory_fraction")
    parser.add_argument("--start-up-cost", action="store_true", help="only time the hook")
    parser.add_argument("--arm", choices=ARMS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if not options.start_up_cost and not (options.model and options.draft_model):
        parser.error("--model and --draft-model are needed")
    if options.kmax < 1:
        parser.error("--kmax must be 1 or more")
    options.ladder = tuple(sorted({k for k in (1, 2, 3) if k < options.kmax} | {options.kmax}))
    return options


def _numbers(text: str) -> tuple[int, ...]:
    values = tuple(sorted({int(part) for part in text.split(",")}))
    if not values or values[0] < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of loads such as 1,8,32")
    return values


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all arms and print the table; 0 if nothing is unmet, 2 if it cannot run here."""
    options = parse(arguments)
    if options.start_up_cost:
        start_up_cost()
        return 0
    if importlib.util.find_spec("tensorrt_llm") is None:
        print("TensorRT-LLM is not installed in this environment: nothing was checked.")
        print("Install tensorrt-llm 1.3 or later on a machine with an NVIDIA GPU and run it there.")
        return 2
    if options.arm:
        arm = run_arm(options.arm, options, options.folder)
        (options.folder / f"{options.arm}.json").write_bytes(msgspec.json.encode(arm))
        return 0
    given = list(sys.argv[1:] if arguments is None else arguments)
    arms: dict[str, Arm] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for arm_name in ARMS:
            print(f"--- {arm_name}", flush=True)
            command = [sys.executable, __file__, *given, "--arm", arm_name, "--folder", name]
            if subprocess.run(command).returncode:
                print(f"arm {arm_name} failed; see above", flush=True)
                continue
            data = (folder / f"{arm_name}.json").read_bytes()
            arms[arm_name] = msgspec.json.decode(data, type=Arm)
            if arm_name in OURS:
                read_ours(arms[arm_name], folder)
    rows = verdicts(arms, options.ladder)
    missing = [arm_name for arm_name in ARMS if arm_name not in arms]
    if missing:
        rows.insert(0, Bar("all arms run", "all", f"failed: {', '.join(missing)}", False))
    return 0 if print_table(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
