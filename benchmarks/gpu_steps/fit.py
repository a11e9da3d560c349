"""A hardware profile from measured steps."""

from __future__ import annotations

import itertools

import numpy as np

from adaptive_spec.sim.hardware.gpus import gpu_facts
from adaptive_spec.sim.hardware.models import model_facts
from adaptive_spec.sim.hardware.nonnegative import robust_nonnegative_fit
from adaptive_spec.sim.hardware.profile_file import HardwareProfile, MeasuredDraft
from adaptive_spec.sim.hardware.roofline import (
    GRAPH_SIZES,
    PASS_LAUNCH_SECONDS,
    VLLM_ASYNC,
    all_reduce_seconds,
    kv_pool,
)
from adaptive_spec.step import FloatArray

from .measure import EAGLE_VOCABULARY, Measurement
from .model import Shape


def fitted_profile(
    measurements: list[Measurement], shape: Shape, gpu: str, name: str, where: str
) -> HardwareProfile:
    """A hardware profile of these measurements."""
    facts, model = gpu_facts(gpu), model_facts(shape.model)
    rows = [each for each in measurements if each.kind == "decode"]
    batch = np.array([row.batch for row in rows], dtype=np.float64)
    tokens = np.array([row.batch * row.query_tokens for row in rows], dtype=np.float64)
    context = np.array([row.batch * row.context for row in rows], dtype=np.float64)
    seconds = np.array([row.seconds for row in rows])
    knots = np.unique(tokens)[:: max(1, len(np.unique(tokens)) // 24)]
    if knots[-1] != tokens.max():
        knots = np.append(knots, tokens.max())
    ramps = [np.ones(len(rows))]
    ramps += [
        np.clip((tokens - left) / (right - left), 0.0, 1.0)
        for left, right in itertools.pairwise(knots)
    ]
    solution = robust_nonnegative_fit(np.stack([*ramps, batch, context], axis=1), seconds)
    curve = np.cumsum(solution[: len(knots)])
    curve += [
        model.layers * all_reduce_seconds(facts, model, shape.tensor_parallel, int(knot))
        for knot in knots
    ]
    prompts = [each for each in measurements if each.kind == "prompt"]
    memory, weights = kv_pool(facts, model, shape.tensor_parallel, "bf16")
    return HardwareProfile(
        schema=1,
        name=name,
        source=f"benchmarks/gpu_step_cost.py on {where}: kernels measured; all-reduces: "
        f"{facts.efficiency_source}; engine: {VLLM_ASYNC.source}",
        model=model.name,
        gpu=facts.name,
        tensor_parallel=shape.tensor_parallel,
        memory_bytes=memory,
        weight_bytes=weights,
        kv_bytes_per_token=model.kv_bytes_per_token(),
        layers=model.layers,
        token_buckets=list(GRAPH_SIZES),
        overhead=VLLM_ASYNC.per_step,
        tokens=[int(knot) for knot in knots],
        seconds=np.maximum.accumulate(curve).tolist(),
        per_request=float(solution[-2]),
        per_context_token=float(solution[-1]),
        per_prefill_context_token=_pair_seconds(prompts, knots, curve),
        draft_pass_overhead=PASS_LAUNCH_SECONDS,
        drafts={"eagle": _eagle(measurements, where)},
    )


def _pair_seconds(prompts: list[Measurement], knots: FloatArray, curve: FloatArray) -> float:
    """Attention of a prompt per pair of tokens: what the curve does not explain."""
    if not prompts:
        return 0.0
    tokens = np.array([each.query_tokens for each in prompts], dtype=np.float64)
    slope = (curve[-1] - curve[-2]) / (knots[-1] - knots[-2])
    dense = np.interp(tokens, knots, curve) + slope * np.maximum(tokens - knots[-1], 0.0)
    beyond = np.maximum(np.array([each.seconds for each in prompts]) - dense, 0.0)
    return float(np.median(beyond / (tokens * tokens / 2.0)))


def _eagle(measurements: list[Measurement], where: str) -> MeasuredDraft:
    rows = [each for each in measurements if each.kind == "eagle"]
    features = np.array([(1.0, row.batch, row.batch * row.context) for row in rows])
    once, request, context = robust_nonnegative_fit(
        features, np.array([row.seconds for row in rows])
    ).tolist()
    return MeasuredDraft(
        pass_=once + PASS_LAUNCH_SECONDS,
        pass_per_request=request,
        pass_per_context_token=context,
        source=f"one layer and a head of {EAGLE_VOCABULARY} tokens on {where}, and a launch",
    )
