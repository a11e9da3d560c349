"""Measure acceptance of one drafter on the small target, in vLLM on CPU.

    python benchmarks/bench_pair/measure_acceptance.py MODELS_DIR draft [--method probabilistic]

prints one Markdown row per kind and temperature.  Needs only vLLM and what build.py made: static
speculation of vLLM's own, engine and drafter in this process.  A step's accepted draft tokens are
the tokens it emitted, less one.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    __package__ = "benchmarks.bench_pair"

from .names import KINDS
from .prompts import load_prompts
from .vllm_cpu_sampling_fix import apply

if TYPE_CHECKING:
    from vllm import LLM

ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "0-1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "OMP_NUM_THREADS": "2",
    "OMP_WAIT_POLICY": "passive",
    "HF_HUB_OFFLINE": "1",
}
DRAFT_TOKENS = 6
REPORTED_POSITIONS = (1, 2, 4, 6)
LOOP_TOKENS = 12


@dataclass(frozen=True)
class Step:
    """One verification of one request."""

    accepted: int
    looping: bool


def loop_start(prompt: Sequence[int], output: Sequence[int]) -> int:
    """Output position from which the text repeats itself: its first repeated 12-gram begins there.

    Equals the output's length if there is none.
    """
    text = [*prompt, *output]
    seen = set()
    for end in range(LOOP_TOKENS, len(text) + 1):
        gram = tuple(text[end - LOOP_TOKENS : end])
        if gram in seen and end > len(prompt):
            return max(end - LOOP_TOKENS - len(prompt), 0)
        seen.add(gram)
    return len(output)


def steps_of_request(prompt: Sequence[int], bursts: Sequence[Sequence[int]]) -> list[Step]:
    """The steps of a request that emitted `bursts`: the first is prefill and drafts nothing.

    Steps that start so near the end that the token limit could have cut them are left out: all of
    them, cut or not, lest long ones be lost more often.
    """
    output = [token for burst in bursts for token in burst]
    repeats_from = loop_start(prompt, output)
    position, steps = len(bursts[0]), []
    for burst in bursts[1:]:
        if position + DRAFT_TOKENS + 1 > len(output):
            break
        steps.append(Step(len(burst) - 1, position >= repeats_from))
        position += len(burst)
    return steps


def start_engine(models: Path, drafter: str, method: str, batch: int) -> LLM:
    os.environ.update({key: os.environ.get(key, value) for key, value in ENVIRONMENT.items()})
    from vllm import LLM

    apply()
    speculation = {
        "method": drafter if drafter in ("eagle", "eagle3", "mtp") else "draft_model",
        "num_speculative_tokens": DRAFT_TOKENS,
        "draft_sample_method": method,
    }
    if drafter != "mtp":  # the module of MTP is part of the target
        speculation["model"] = str(models / drafter)
    return LLM(
        model=str(models / ("mtp" if drafter == "mtp" else "target")),
        dtype="float32",
        max_model_len=512,
        max_num_seqs=batch,
        max_num_batched_tokens=4096,
        enforce_eager=True,
        enable_prefix_caching=False,
        seed=0,
        speculative_config=speculation,
    )


def run(llm: LLM, prompts: Sequence[str], temperature: float, max_tokens: int) -> list[Step]:
    """Generate from all prompts at once and return every step of every request."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    engine = llm.llm_engine
    parameters = SamplingParams(
        temperature=temperature,
        max_tokens=max_tokens,
        ignore_eos=True,
        output_kind=RequestOutputKind.DELTA,
    )
    bursts: dict[str, list[list[int]]] = {}
    prompt_tokens: dict[str, list[int]] = {}
    for number, prompt in enumerate(prompts):
        engine.add_request(f"{temperature}-{number}", prompt, parameters)
    while engine.has_unfinished_requests():
        for output in engine.step():
            prompt_tokens[output.request_id] = list(output.prompt_token_ids)
            burst = list(output.outputs[0].token_ids)
            if burst:
                bursts.setdefault(output.request_id, []).append(burst)
    return [
        step
        for request in bursts
        for step in steps_of_request(prompt_tokens[request], bursts[request])
    ]


def summary(steps: Sequence[Step]) -> str:
    """Mean accepted, survival at the reported positions, share of looping steps, steps."""
    count = len(steps)
    mean = sum(step.accepted for step in steps) / count
    survival = " ".join(
        f"{sum(step.accepted >= position for step in steps) / count:.2f}"
        for position in REPORTED_POSITIONS
    )
    looping = sum(step.looping for step in steps) / count
    return f"{mean:.2f} | {survival} | {looping:.2f} | {count}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", type=Path)
    parser.add_argument("drafter", choices=("draft", "draft_poor", "eagle", "eagle3", "mtp"))
    parser.add_argument("--method", choices=("greedy", "probabilistic"), default="greedy")
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 0.8])
    parser.add_argument("--prompts", type=int, default=24, help="per kind")
    parser.add_argument("--max-tokens", type=int, default=96)
    arguments = parser.parse_args()

    started = time.monotonic()
    llm = start_engine(arguments.models, arguments.drafter, arguments.method, arguments.prompts)
    prompts = load_prompts()
    print("| drafter | sampling | T | kind | mean accepted | survival 1 2 4 6 | looping | steps |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for temperature in arguments.temperatures:
        for kind in KINDS:
            chosen = prompts[kind][: arguments.prompts]
            steps = run(llm, chosen, temperature, arguments.max_tokens)
            label = f"{arguments.drafter} | {arguments.method} | {temperature:g} | {kind}"
            print(f"| {label} | {summary(steps)} |", flush=True)
    print(f"{time.monotonic() - started:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
