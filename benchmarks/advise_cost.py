r"""CPU time of `adaptive-spec advise` here over that of a commit, and memory of the trace readers.

    python benchmarks/advise_cost.py [--base 04898987] [TRACE ...]
    python benchmarks/advise_cost.py --memory 100000,1000000

Both builds answer in turn, each in processes of its own, with an empty cache. With `--memory`, each
reader meets a trace of so many steps, of 8 requests each, and its peak is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
if not __package__:  # run as a file
    sys.path[0] = str(ROOT)

from benchmarks.decision_cost import exported  # noqa: E402

TRACE = ROOT / "benchmarks" / "results" / "vllm_cpu-costs.jsonl.gz"
BATCH, KMAX = 8, 6
COMMAND = [sys.executable, "-m", "adaptive_spec"]
READERS = {
    "advise": ["advise", "{}"],
    "profile": ["profile", "{}", "--output", "{}/profile.json"],
    "replay --acceptance": ["replay", "--acceptance", "{}", "--seconds", "5", "--policy", "off"],
    "replay --load": ["replay", "--load", "{}", "--seconds", "5", "--policy", "off"],
    "explain": ["explain", "{}", "--step", "{last}"],
}


def answered(tree: Path, arguments: list[str], cache: str) -> tuple[dict[str, object], list[float]]:
    """Run a command; return its JSON, and the CPU seconds at its first line and at its end."""
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        env={
            **os.environ,
            "PYTHONPATH": str(tree),
            "OMP_NUM_THREADS": "1",
            "XDG_CACHE_HOME": cache,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tree,
    )
    assert process.stderr is not None
    assert process.stdout is not None
    spent = []
    for line in process.stderr:
        if line.startswith("first look"):
            user, system = (
                Path(f"/proc/{process.pid}/stat").read_text().rsplit(")")[1].split()[11:13]
            )
            spent.append((int(user) + int(system)) / os.sysconf("SC_CLK_TCK"))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    output = process.stdout.read()
    process.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return json.loads(output), spent


def compare(base: str, traces: list[str]) -> None:
    """Print a line per trace."""
    with tempfile.TemporaryDirectory() as folder:
        old = exported(base, folder)
        for trace in traces:
            path = str(Path(trace).resolve())
            empty = tempfile.mkdtemp(dir=folder)
            before, (whole,) = answered(old, ["advise", path, "--json", "--jobs", "1"], empty)
            now, (first, *ended) = answered(ROOT, ["advise", path, "--json"], empty)
            _, kept = answered(ROOT, ["advise", path, "--json", "--gpus", "8"], empty)
            took = ended[-1] if ended else first
            verdicts = [each["verdict"]["worth"] for each in (before, now)]  # type: ignore[index]
            print(
                f"{Path(trace).name}: {whole:.1f} -> {took:.1f} s ({took / whole:.3f}), "
                f"first look {first:.1f} s, kept {kept[-1]:.1f} s; {' -> '.join(verdicts)}",
                *(each["verdict"]["sentence"] for each in (before, now)),  # type: ignore[index]
                sep="\n  ",
                flush=True,
            )


def write_trace(folder: Path, steps: int) -> None:
    """Write a trace of 6 to 8 requests at a time, of 60 steps each, with random K."""
    random = np.random.default_rng(0)
    with (folder / "steps-1-000000.jsonl").open("w") as file:
        for step in range(steps):
            batch = BATCH - step // 500 % 3
            k = random.integers(0, KMAX + 1, batch)
            accepted = np.minimum(random.geometric(0.3, batch) - 1, k)
            age = [(step + 7 * slot) % 60 for slot in range(batch)]
            tokens, context = batch + int(k.sum()), [100 + 2 * each for each in age]
            prefill = 100 if 0 in age else 0
            seconds = 0.007 + 1e-4 * tokens + 5e-4 * int(k.max()) + 2e-5 * prefill + 1e-4 * batch
            record = {
                "schema": 1,
                "step": step,
                "now": round(0.01 * step, 6),
                "mode": "on",
                "reason": "drawn",
                "depth": int(k.max()),
                "seconds": round(seconds * random.lognormal(0.0, 0.02), 7),
                "batch_size": batch,
                "batch_tokens": tokens,
                "context_tokens": sum(context),
                "prefill_tokens": prefill,
                "waiting": 0,
                "kv_free_tokens": 1 << 20,
                "ids": [f"r{slot}-{(step + 7 * slot) // 60}" for slot in range(batch)],
                "k": k.tolist(),
                "accepted": accepted.tolist(),
                "emitted": (accepted + 1).tolist(),
                "available": k.tolist(),
                "possible": [KMAX] * batch,
                "contexts": context,
                "engine_k": KMAX,
            }
            if not step:
                capability = {"level": 2, "max_draft_tokens": KMAX}
                record.update(capability=capability, kv_total_tokens=1 << 21)
            file.write(json.dumps(record) + "\n")


def memory(sizes: list[int], readers: list[str]) -> None:
    """Print the peak of each reader at each number of steps, and what a step adds."""
    with tempfile.TemporaryDirectory() as folder:
        peaks: dict[str, list[float]] = {}
        for steps in sizes:
            trace = Path(folder) / str(steps)
            trace.mkdir()
            write_trace(trace, steps)
            for name in readers:
                arguments = [each.format(trace, last=steps - 1) for each in READERS[name]]
                began = time.monotonic()
                found = subprocess.run(
                    [sys.executable, __file__, "--peak", *COMMAND, *arguments],
                    env={**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": folder},
                    capture_output=True,
                    text=True,
                )
                if found.returncode:
                    raise SystemExit(f"{name}: {found.stderr[-500:]}")
                cpu, peak = map(float, found.stdout.split()[-2:])
                peaks.setdefault(name, []).append(peak)
                print(
                    f"{name:20} {steps:9,} steps {peak:6.0f} MB {cpu:6.1f} s of CPU, "
                    f"{time.monotonic() - began:.0f} s",
                    flush=True,
                )
            (trace / "steps-1-000000.jsonl").unlink()
        for name, found_peaks in peaks.items():
            if len(sizes) > 1:
                slope = (found_peaks[-1] - found_peaks[0]) / (sizes[-1] - sizes[0])
                print(f"{name:20} {1e6 * slope:6.0f} bytes a step")


def main() -> int:
    """Compare, or measure memory."""
    if sys.argv[1:2] == ["--peak"]:
        code = subprocess.run(sys.argv[2:], stdout=subprocess.DEVNULL).returncode
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        print(used.ru_utime + used.ru_stime, used.ru_maxrss / 1e3)
        return code
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("traces", nargs="*", default=[str(TRACE)])
    parser.add_argument("--base", default="04898987", help="commit to compare with")
    parser.add_argument("--memory", help="numbers of steps, separated by commas")
    parser.add_argument("--readers", default=",".join(READERS))
    given = parser.parse_args()
    if given.memory:
        memory([int(each) for each in given.memory.split(",")], given.readers.split(","))
    else:
        compare(given.base, given.traces)
    return 0


if __name__ == "__main__":
    sys.exit(main())
