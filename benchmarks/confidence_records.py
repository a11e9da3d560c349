r"""Record what the bench drafters show of their drafts, and what of them is accepted; pack it.

    python benchmarks/bench_pair/build.py MODELS --only target draft draft_poor
    python benchmarks/confidence_records.py record MODELS TRACES --draft good,poor \
        --draft-sampling probabilistic,greedy        # where vLLM is installed
    python benchmarks/confidence_records.py pack TRACES FOLDER

`record` runs the adapter in a real vLLM (runner V1, CPU) on the small target, whose logits and so
whose acceptance are those of the big one. All drafts are verified, whatever they show, so that no
policy decides what is seen; one draft fewer of one request in some steps, both drawn at random,
keeps the adapter reading: it reads less often where all drafts are always verified.

`pack` writes one npz file per drafter and way of sampling, as `read_recorded_npz` of
`sim/acceptance/recorded.py` reads them. Left out are steps that verified fewer than Kmax drafts:
those drawn above, and all that are so near a request's end that its token limit cuts them.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np

if not __package__:  # run as a file
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from adaptive_spec.operation.trace import read_trace
from adaptive_spec.policies.static import StaticOptions, StaticPolicy
from adaptive_spec.step import IntArray, SpecPlan, StepContext
from benchmarks.bench_pair.prompts import load_prompts
from benchmarks.bench_pair.vllm_cpu_sampling_fix import apply

DRAFTS = {"good": "draft", "poor": "draft_poor"}
KMAX = 6
SAMPLED = 0.8
TRIM_EVERY_STEPS = 32
"""Below the 64 steps after which the adapter reads less often."""
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "passive",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_NO_USAGE_STATS": "1",
}


class VerifyAllPolicy(StaticPolicy):
    """Verifies all drafts of all requests, but for one draft now and then, drawn at random."""

    name: ClassVar[str] = "verify_all"
    summary: ClassVar[str] = "all drafts, to record what becomes of each"

    def __init__(self, options: StaticOptions, *, seed: int = 0) -> None:
        super().__init__(options, seed=seed)
        self._random = np.random.default_rng(seed)

    def plan(self, context: StepContext) -> SpecPlan:
        """Kmax for all; in some steps one less for one request."""
        plan = super().plan(context)
        if context.step % TRIM_EVERY_STEPS or not context.batch_size:
            return plan
        verify = plan.verify.copy()
        verify[self._random.integers(context.batch_size)] -= 1
        return msgspec.structs.replace(plan, verify=np.maximum(verify, 0))


@dataclass(frozen=True)
class Condition:
    """A drafter and a way of sampling.

    Attributes:
        draft: `good` or `poor`.
        draft_sampling: vLLM's `draft_sample_method`.
        temperature: of the target.
    """

    draft: str
    draft_sampling: str
    temperature: float

    @property
    def name(self) -> str:
        """Of its file. At temperature 0 both ways of drafting are the same."""
        greedy_drafts = self.temperature > 0 and self.draft_sampling == "greedy"
        return f"{self.draft}{'-greedy-drafts' if greedy_drafts else ''}_t{self.temperature:g}"


def conditions(draft: str, draft_sampling: str) -> list[Condition]:
    """What one engine records: temperature 0 goes with the greedy one."""
    temperatures = (SAMPLED,) if draft_sampling == "probabilistic" else (0.0, SAMPLED)
    return [Condition(draft, draft_sampling, temperature) for temperature in temperatures]


def start_engine(models: Path, condition: Condition, concurrency: int, trace: Path) -> Any:
    """A vLLM engine in this process, with the adapter."""
    os.environ.update(ENVIRONMENT)
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.engine.llm_engine import LLMEngine

    apply()
    adaptive = {
        "policy": "benchmarks.confidence_records:VerifyAllPolicy",
        "options": {"k": KMAX},
        "memory_guard": False,
        "trace": {"directory": str(trace), "max_segments": 1000},
        # A decision that a busy machine delays is as good as any.
        "fail_open": {"max_decision_ms": 60_000.0},
    }
    return LLMEngine.from_engine_args(
        EngineArgs(
            model=str(models / "target"),
            dtype="float32",
            enforce_eager=True,
            max_model_len=256,
            max_num_seqs=concurrency,
            enable_prefix_caching=False,
            seed=0,
            speculative_config={
                "method": "draft_model",
                "model": str(models / DRAFTS[condition.draft]),
                "num_speculative_tokens": KMAX,
                "draft_sample_method": condition.draft_sampling,
            },
            additional_config={"adaptive_spec": adaptive},
        )
    )


def record(
    models: Path, folder: Path, draft: str, draft_sampling: str, prompts: int, tokens: int, at: int
) -> None:
    """Record an engine's conditions, one after the other, all kinds of prompt in one batch."""
    made = conditions(draft, draft_sampling)
    trace = folder / f"{draft}-{draft_sampling}"
    if trace.exists():
        raise SystemExit(f"error: {trace} is there already; remove it or choose another folder")
    engine = start_engine(models, made[0], at, trace)
    for condition in made:
        began = time.monotonic()
        serve(engine, condition, prompts, tokens)
        print(f"{condition.name}: {time.monotonic() - began:.0f} s", flush=True)
    engine.engine_core.shutdown()


def serve(engine: Any, condition: Condition, prompts: int, tokens: int) -> None:
    """Answer so many prompts of each kind; request ids are CONDITION:KIND:NUMBER."""
    from vllm import SamplingParams

    parameters = SamplingParams(
        temperature=condition.temperature, max_tokens=tokens, ignore_eos=True, detokenize=False
    )
    jobs = [
        (f"{condition.name}:{kind}:{number}", text)
        for kind, texts in load_prompts().items()
        for number, text in enumerate(texts[:prompts])
    ]
    random.Random(0).shuffle(jobs)
    for name, text in jobs:
        engine.add_request(name, text, parameters)
    while engine.has_unfinished_requests():
        engine.step()


@dataclass
class Steps:
    """Steps of one condition, one entry each, in order within a request."""

    request: list[int]
    accepted: list[int]
    max_prob: list[list[float]]
    entropy: list[list[float]]
    label: list[str]

    @classmethod
    def none(cls) -> Steps:
        return cls([], [], [], [], [])


def pack(traces: Path, folder: Path) -> None:
    """One npz file per condition out of the folders that `record` made."""
    found: dict[str, Steps] = {}
    numbers: dict[str, int] = {}
    for path in sorted(traces.iterdir()):
        for row in decode_rows(path):
            condition, kind, _ = row["id"].split(":")
            steps = found.setdefault(condition, Steps.none())
            if row["id"] not in numbers:
                numbers[row["id"]] = len(steps.label)
                steps.label.append(kind)
            steps.request.append(numbers[row["id"]])
            steps.accepted.append(row["accepted"])
            steps.max_prob.append(row["confidence"])
            steps.entropy.append(row["entropy"])
    folder.mkdir(parents=True, exist_ok=True)
    for condition, steps in found.items():
        file = folder / f"{condition}.npz"
        save(file, steps)
        print(
            f"{file}: {len(steps.accepted)} steps of {len(steps.label)} requests, "
            f"{file.stat().st_size / 1e3:.0f} kB"
        )


def decode_rows(path: Path) -> Iterator[dict[str, Any]]:
    """One dict per request and step in which Kmax drafts were verified."""
    columns = ("accepted", "confidence", "entropy")
    for step in read_trace(path):
        for row, name in enumerate(step["ids"]):
            if not name or step["k"][row] < KMAX:
                continue
            # vLLM adds a suffix of its own to the name.
            number = name.split(":")
            number[2] = number[2].partition("-")[0]
            yield {"id": ":".join(number)} | {key: step[key][row] for key in columns}


def save(file: Path, steps: Steps) -> None:
    """Compressed, in the smallest types that hold what a trace holds."""
    request: IntArray = np.array(steps.request, dtype=np.int64)
    order = np.argsort(request, kind="stable")
    np.savez_compressed(
        file,
        request=request[order].astype(np.int16),
        accepted=np.array(steps.accepted, dtype=np.int8)[order],
        # null where unknown, which becomes nan on the way
        max_prob=np.array(steps.max_prob, dtype=np.float64).astype(np.float16)[order],
        entropy=np.array(steps.entropy, dtype=np.float64).astype(np.float16)[order],
        label=np.array(steps.label),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    recorder = commands.add_parser("record", help="run vLLM; needs the models of bench_pair")
    recorder.add_argument("models", type=Path)
    recorder.add_argument("traces", type=Path)
    recorder.add_argument("--draft", default="good,poor")
    recorder.add_argument("--draft-sampling", default="probabilistic,greedy")
    recorder.add_argument("--prompts", type=int, default=48, help="of each kind, 1 to 128")
    recorder.add_argument("--tokens", type=int, default=96, help="of each answer")
    recorder.add_argument("--concurrency", type=int, default=8)
    packer = commands.add_parser("pack", help="traces into npz files")
    packer.add_argument("traces", type=Path)
    packer.add_argument("folder", type=Path)
    given = parser.parse_args(arguments)
    if given.command == "pack":
        pack(given.traces, given.folder)
        return
    for draft in given.draft.split(","):
        for sampling in given.draft_sampling.split(","):
            record(
                given.models.resolve(),
                given.traces.resolve(),
                draft,
                sampling,
                given.prompts,
                given.tokens,
                given.concurrency,
            )


if __name__ == "__main__":
    main()
