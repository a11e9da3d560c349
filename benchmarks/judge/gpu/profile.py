"""A hardware profile for the simulator, from the step traces of the stage `step_costs`.

The traces are split in two: decode steps whose K were equal, to which the profile is fitted, and
the steps of real requests at K = Kmax, which say what is accepted at every position.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from adaptive_spec.errors import AdaptiveSpecError
from adaptive_spec.operation.segments import read_trace
from adaptive_spec.sim.hardware.from_trace import profile_from_trace
from adaptive_spec.sim.hardware.profile_file import HardwareProfile, write_hardware_profile

from .bench import Results

PARTS = "parts"
COSTS, ACCEPTANCE = "costs", "acceptance"
SEGMENT = "steps-0-000000.jsonl"
MODEL = "llama-3.1-8b shape (benchmarks/bench_pair)"


def split(trace: Path, out: Path, kmax: int) -> dict[str, int]:
    """Write the two parts of a trace under `out`; returns the steps of each."""
    counts = {COSTS: 0, ACCEPTANCE: 0}
    files = {}
    for name in counts:
        (out / name).mkdir(parents=True, exist_ok=True)
        files[name] = (out / name / SEGMENT).open("w", encoding="utf-8")
    for step in read_trace(trace):
        jobs = [name.partition("-")[0].isdigit() for name in step["ids"]]
        parts = []
        if len(set(step["k"])) <= 1:
            parts.append(COSTS)
        if jobs and all(jobs) and set(step["k"]) == {kmax}:
            parts.append(ACCEPTANCE)
        for name in parts:
            files[name].write(json.dumps(step) + "\n")
            counts[name] += 1
    for file in files.values():
        file.close()
    return counts


def make_profile(out: Path, traces: Path, engine: str) -> dict[str, Any]:
    """Fit OUT/profile.json to the traces of an engine, in a folder of that name under `traces`.

    Returns:
        The profile, how well it fits, and the steps of each part; `error` if it cannot be fitted.
    """
    trace, parts = traces / engine, traces / PARTS
    if not trace.is_dir():
        return {"error": "no step traces: run the stage step_costs"}
    found = Results(out / "results.jsonl").found
    counts = split(trace, parts, int(found["options"]["kmax"]))
    gpu = str(found.get("about", {}).get("gpu", ""))
    drafter = engine.rpartition("-")[0]
    try:
        profile, fit = profile_from_trace([parts / COSTS], name=_name(gpu), drafter=drafter)
    except AdaptiveSpecError as error:
        return {"error": str(error), "steps": counts}
    profile = with_facts(profile, gpu, found.get(f"engine/{engine}", {}))
    write_hardware_profile(profile, out / "profile.json")
    kept = {"profile": profile, "fit": fit, "steps": counts}
    return dict(msgspec.to_builtins(kept))


def with_facts(profile: HardwareProfile, gpu: str, engine: dict[str, Any]) -> HardwareProfile:
    """The profile with the GPU's memory and the captured sizes, which no trace tells."""
    changes: dict[str, Any] = {
        "gpu": gpu,
        "model": MODEL,
        "source": f"measured with vLLM on {gpu}: {profile.source}",
        "token_buckets": engine.get("capture_sizes", []),
    }
    total = engine.get("memory_gib", {}).get("total")
    if total is not None:
        changes["memory_bytes"] = total * 2.0**30
    return msgspec.structs.replace(profile, **changes)


def _name(gpu: str) -> str:
    words = gpu.replace(",", " ").lower().split()
    short = next((word for word in words if word[:1] in "abhl" and word[1:2].isdigit()), "gpu")
    return f"{short}-bench-pair-8b"
