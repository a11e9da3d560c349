"""What one decision costs: plan + observe of the default policy, Kmax 8, at B = 64 and 256.

    python benchmarks/decision_cost.py [--json] [--kernel numpy|numba] [--steps 3000] [--repeats 5]

Prints microseconds per step. With repeats the same steps run so many times, and each counts with
its shortest time: what else the machine was doing is left out, what a step itself costs is not.
Where vLLM is installed, its own CPU-side budget function (adaptive verification) is timed on the
same survivals, interleaved step by step.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from adaptive_spec import Capability, Level, RequestSlots, StepContext, StepOutcome, build_policy
from adaptive_spec.controller.steps_in_flight import finished_step
from adaptive_spec.kernels import kernel_in_use, select_kernel

KMAX = 8


def measure(batch: int, steps: int, level: Level) -> tuple[list[int], list[int]]:
    """Nanoseconds of each plan + observe, and of vLLM's budget function where it is installed."""
    random = np.random.default_rng(0)
    policy = build_policy("goodput", seed=0)
    capability = Capability(level=level, max_draft_tokens=KMAX)
    slots = RequestSlots()
    names = [f"request-{i}" for i in range(batch)]
    rows = np.array([slots.assign(name) for name in names], dtype=np.int64)
    skill = random.uniform(0.3, 0.95, batch)
    depth = KMAX
    context_tokens = random.integers(100, 2000, batch)
    budget = vllm_budget_function(batch)
    ours: list[int] = []
    baselines: list[int] = []
    now = 0.0
    for step in range(steps):
        possible = np.minimum(random.integers(0, 200, batch), KMAX).astype(np.int64)
        context = StepContext(
            step=step,
            capability=capability,
            request_ids=names,
            slots=rows,
            context_tokens=context_tokens,
            draft_available=np.minimum(possible, depth),
            draft_possible=possible,
            engine_k=KMAX,
            tpot_target=np.full(batch, np.inf),
            task=np.full(batch, -1, dtype=np.int64),
            temperature=np.zeros(batch),
            now=now,
        )
        began = time.perf_counter_ns()
        plan = policy.plan(context)
        planned = time.perf_counter_ns()
        hits = random.random((batch, KMAX)) < skill[:, None]
        accepted = np.minimum(hits.cumprod(axis=1).sum(axis=1), plan.verify)
        tokens = batch + int(plan.verify.sum())
        seconds = 7e-3 + 2e-5 * tokens + 5e-4 * plan.draft_depth
        seconds *= float(np.exp(0.03 * random.standard_normal()))
        now += seconds
        outcome = StepOutcome(
            step=step,
            slots=rows,
            verified=plan.verify,
            accepted=accepted,
            emitted=accepted + 1,
            batch_size=batch,
            batch_tokens=tokens,
            context_tokens=int(context_tokens.sum()),
            prefill_tokens=0,
            draft_depth=plan.draft_depth,
            ragged=True,
            seconds=seconds,
            now=now,
        )
        resumed = time.perf_counter_ns()
        policy.observe(finished_step(context, plan, outcome))
        ours.append(time.perf_counter_ns() - resumed + planned - began)
        if budget is not None:
            confidence = random.uniform(0.3, 1.0, (batch, KMAX)).astype(np.float32)
            began = time.perf_counter_ns()
            budget(confidence)
            baselines.append(time.perf_counter_ns() - began)
        depth = plan.draft_depth
    return ours[steps // 5 :], baselines[steps // 5 :]


def shortest(batch: int, steps: int, level: Level, repeats: int) -> tuple[list[int], list[int]]:
    """The same of so many runs of the same steps, the shortest of each step."""
    runs = [measure(batch, steps, level) for _ in range(repeats)]
    ours, baselines = zip(*runs, strict=True)
    return np.min(ours, axis=0).tolist(), np.min(baselines, axis=0).tolist()


def vllm_budget_function(batch: int) -> Callable[[Any], object] | None:
    """vLLM's choice of a verification budget, its own code on a stand-in for its GPU state.

    `AdaptiveVerificationManager.get_num_tokens` (vLLM 0.32, v1/worker/gpu/spec_decode) is pure
    numpy; it decides one budget for the batch, where ours also learns and sets K and D.
    """
    try:
        from vllm.v1.worker.gpu.spec_decode.adaptive_verification import (
            AdaptiveVerificationManager,
        )
    except ImportError:
        return None
    names = [f"request-{i}" for i in range(batch)]
    scheduled = dict.fromkeys(names, KMAX + 1)
    drafts = {name: [-1] * KMAX for name in names}
    buffer = SimpleNamespace(np=np.ones((batch, KMAX), dtype=np.float32))
    state = SimpleNamespace(
        cost_tables=(np.full(batch + 1, 4.0), 7.0 + 0.02 * np.arange(batch * (KMAX + 1) + 1)),
        req_states=SimpleNamespace(
            req_id_to_index={name: i for i, name in enumerate(names)},
            num_computed_tokens_np=np.full(batch, 500),
            prefill_len=SimpleNamespace(np=np.full(batch, 100)),
        ),
        num_speculative_steps=KMAX,
        num_bonus_tokens=1,
        _max_total_logits=1 << 30,
        _stale_confidences=[buffer],
        _stale_idx=0,
    )

    def budget(confidence: Any) -> object:
        buffer.np = confidence
        return AdaptiveVerificationManager.get_num_tokens(state, scheduled, drafts)

    return budget


def percentiles(nanoseconds: list[int]) -> dict[str, float]:
    """p50 and p99 in microseconds."""
    p50, p99 = np.percentile(np.array(nanoseconds) / 1e3, [50, 99])
    return {"p50_us": round(float(p50), 1), "p99_us": round(float(p99), 1)}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--kernel", choices=["auto", "numpy", "numba"], default="auto")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--level", choices=[level.name for level in Level], default="FULL")
    arguments = parser.parse_args()
    select_kernel(arguments.kernel)
    gc.collect()
    gc.freeze()
    result: dict[str, Any] = {}
    for batch in (64, 256):
        level = Level[arguments.level]
        ours, baselines = shortest(batch, arguments.steps, level, arguments.repeats)
        result[f"B{batch}"] = percentiles(ours)
        if baselines:
            result[f"B{batch}"]["vllm_budget"] = percentiles(baselines)
    if arguments.json:
        print(json.dumps(result))
        return
    print(f"kernel {kernel_in_use()}, plan + observe, Kmax {KMAX}")
    for name, figures in result.items():
        print(name, figures)


if __name__ == "__main__":
    main()
