"""Engines by key, as arguments of vLLM.

A key is `none`, or METHOD-KIND. METHOD is one of `METHODS`. KIND is one of

    vllm       vLLM with Kmax, K by a table at run time, graphs for the rungs of our ladder
    ours       adaptive-spec as it comes: K per request in varlen graphs, drafts' confidence read,
               step traces recorded
    ladder     the same without varlen graphs: one K per batch, out of the captured ladder
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from ..arms import LADDER, NONE, Arm
from .steered import NAME as STEERED

DRAFTERS = {"eagle": "eagle", "draft_model": "draft"}
"""Folder of the drafter's model by vLLM's name of the method."""
LOOK_UPS = ("ngram_gpu", "ngram")
"""vLLM's names of drafts without a model; with the second one it schedules synchronously."""
LOOK_UP = {"prompt_lookup_max": 4, "prompt_lookup_min": 2}
METHODS = (*DRAFTERS, *LOOK_UPS)
KEY = re.compile(rf"({'|'.join(METHODS)})-(vllm|ours|ladder)|none")
CAPTURED_TOKENS = 512
"""vLLM's default bound of `max_cudagraph_capture_size` on Hopper."""


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sizes of the engines, and how much is measured.

    Attributes:
        models: folder of the models.
        scratch: folder for logs and step traces.
        gpu: CUDA with captured graphs; else a CPU, eagerly.
        method: vLLM's name of the drafting method.
        max_num_seqs: most requests in a batch.
        max_model_len: tokens.
        kv_gib: KV cache of an engine.
        kmax: draft tokens configured.
        draft_sampling: vLLM's `draft_sample_method`.
        compilation: vLLM's `compilation_config`, for all engines.
        loads: numbers of clients.
        ks: static K.
        repeats: of every cell.
        temperatures: of sampling.
        cell_seconds: least measured time of a cell.
        audit_seconds: of the audit; bounds need a dozen blocks, in frames of 256 steps.
        output_tokens: length of an answer.
        answers: greedy answers compared.
        batches, contexts: of the timed decode steps.
        steps: counted for each setting.
    """

    models: str
    scratch: str
    gpu: bool = True
    method: str = "eagle"
    max_num_seqs: int = 128
    max_model_len: int = 4096
    kv_gib: float = 5.0
    kmax: int = 5
    draft_sampling: str = "greedy"
    compilation: dict[str, Any] = {}
    loads: tuple[int, ...] = (16, 1, 64, 128)
    ks: tuple[int, ...] = (1, 3, 5)
    repeats: int = 2
    temperatures: tuple[float, ...] = (0.8,)
    cell_seconds: float = 3.0
    audit_seconds: float = 60.0
    output_tokens: int = 96
    answers: int = 32
    batches: tuple[int, ...] = (1, 4, 16, 64, 128)
    contexts: tuple[int, ...] = (128, 1024, 2500)
    steps: int = 8


TINY: dict[str, Any] = dict(
    gpu=False,
    max_num_seqs=4,
    loads=(2,),
    ks=(2, 5),
    cell_seconds=0.2,
    audit_seconds=10.0,
    output_tokens=8,
    answers=4,
    batches=(1, 3),
    contexts=(32,),
    steps=6,
)
"""Toy models on a CPU, to try the code."""


def engine_of(arm: Arm, method: str) -> str:
    """The key of the engine that an arm runs on."""
    if arm.k == -1:
        return NONE
    if arm.name == LADDER:
        return f"{method}-ladder"
    return f"{method}-ours" if arm.policy else f"{method}-vllm"


def arguments_of(key: str, options: Options) -> dict[str, Any]:
    """The arguments of a key. Raises ValueError for one that is not a key."""
    match = KEY.fullmatch(key)
    if match is None:
        raise ValueError(f"{key!r} is no engine: see benchmarks/judge/gpu/setups.py")
    method, kind = match.groups()
    arguments = _of_target(options)
    if method is not None:
        drafting: dict[str, Any] = LOOK_UP
        if method in DRAFTERS:
            drafting = {
                "model": f"{options.models}/{DRAFTERS[method]}",
                "draft_sample_method": options.draft_sampling,
            }
        arguments["speculative_config"] = {
            "method": method,
            "num_speculative_tokens": options.kmax,
            **drafting,
        }
        if kind != "vllm":
            arguments["additional_config"] = {"adaptive_spec": _adaptive(options, kind, key)}
        elif options.gpu:
            _add_graphs(arguments, options)
    return arguments


def _of_target(options: Options) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "model": f"{options.models}/target",
        "max_model_len": options.max_model_len,
        "max_num_seqs": options.max_num_seqs,
        "enable_prefix_caching": False,
        "seed": 0,
    }
    if not options.gpu:
        return arguments | {"dtype": "float32", "enforce_eager": True}
    return arguments | {
        # Worker and scheduler in one process: vLLM's default.
        "distributed_executor_backend": "uni",
        "dtype": "bfloat16",
        # What must be free at start; kv_cache_memory_bytes is what is taken.
        "gpu_memory_utilization": 0.25,
        "kv_cache_memory_bytes": int(options.kv_gib * 2**30),
        "max_num_batched_tokens": 8192,
        "attention_backend": "FLASH_ATTN",
        "cudagraph_metrics": True,
        "compilation_config": dict(options.compilation),
    }


def _add_graphs(arguments: dict[str, Any], options: Options) -> None:
    """Capture full graphs for the rungs of our ladder, so that K can follow any table."""
    from adaptive_spec.adapters.vllm.graph_ladder import capture_sizes, rungs, schedule_for

    most = options.max_num_seqs
    values = rungs(options.kmax, (), most=most)
    largest = min(CAPTURED_TOKENS, 2 * most * (1 + options.kmax))
    schedule = schedule_for(values, most)
    arguments["speculative_config"]["num_speculative_tokens_per_batch_size"] = schedule
    arguments["compilation_config"]["cudagraph_capture_sizes"] = capture_sizes(
        values, most, largest
    )


def _adaptive(options: Options, kind: str, key: str) -> dict[str, Any]:
    """Start with the steered policy: a server switches to it only if it started with it."""
    found: dict[str, Any] = {
        "policy": STEERED,
        "options": {"k": options.kmax},
        "audit": {"share": 0.0},  # an arm's figures are its own
        "trace": {"directory": f"{options.scratch}/traces/{key}", "max_segments": 1000},
    }
    if options.gpu and kind == "ladder":
        found["varlen_graphs"] = False
    return found
