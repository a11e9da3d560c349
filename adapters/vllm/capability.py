"""What a vLLM configuration allows: how K can be steered, and where we only watch.

Read from `VllmConfig` after vLLM has resolved it. Where we stay out or only watch, the table in
`rules` says why.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from adaptive_spec.adapters.vllm import KEY, facts, graph_ladder, varlen_graphs
from adaptive_spec.adapters.vllm.compat import has_several_mtp_modules
from adaptive_spec.adapters.vllm.context import drafter_limit
from adaptive_spec.adapters.vllm.draft_signal.worker import WORKERS
from adaptive_spec.adapters.vllm.lookup import Placement
from adaptive_spec.adapters.vllm.rules import (
    RULES,
    RUN_ON_V2,
    Setup,
    in_pipeline,
    on_expert_ranks,
)
from adaptive_spec.adapters.vllm.worker_facts import COPIES, V2_COPIES, V2_SIGNAL
from adaptive_spec.engines import support
from adaptive_spec.engines.rules import INERT, SHADOW, TRIMMING, reasons
from adaptive_spec.step import Capability, Level

WITHOUT_MODEL = frozenset({"ngram", "ngram_gpu", "suffix"})
"""Methods that draft without running a model: K = 0 costs them nothing."""

CHAINED = frozenset({"draft_model", "eagle", "eagle3", "mtp"})
"""Methods of V1 whose model runs once for each draft position, in `SpecDecodeBaseProposer`."""


_WORTH_TRYING = 4
"""Kmax that is worth trying without a measurement."""

MISSING = "adaptive_spec_missing"
"""Name under which the gate leaves on `SchedulerConfig` which features this vLLM's source lacks."""

_OF_RUNNER = {
    "V1": frozenset({facts.COLD, COPIES}),
    "V2": frozenset(
        {facts.LADDER, facts.V2_COLD, facts.V2_DEPTH, facts.VARLEN, V2_SIGNAL, V2_COPIES}
    ),
}
"""Features that only one of the model runners has a use for."""


class Support(support.Support, frozen=True, kw_only=True):
    """Result of examining a vLLM configuration; `notes` name what isn't supported.

    Attributes:
        runner: ``V1`` or ``V2`` model runner.
        missing: features of use here that this vLLM's source lacks -> what is missing.
        graphs: mode of the CUDA graphs, and how many decode graphs a rank captures for K.
    """

    runner: str = ""
    graphs: str = ""
    missing: Mapping[str, str] = msgspec.field(default_factory=dict)


def detect(vllm_config: Any, *, expected: bool = False) -> Support:
    """Read a resolved `VllmConfig`.

    Args:
        vllm_config: vLLM's.
        expected: take the graphs that the workers are expected to capture, where they have not
            answered yet.
    """
    for inert in reasons(RULES, INERT, Setup(vllm_config)):
        return Support(capability=None, inert=inert)
    speculation = vllm_config.speculative_config
    method = str(speculation.method)
    runner = "V2" if vllm_config.use_v2_model_runner else "V1"
    missing = _missing(vllm_config, runner)
    graphs = _graphs_at_all(vllm_config)
    ladder = graph_ladder.captured(vllm_config)
    setup = Setup(vllm_config, method, runner, missing, expected)
    fixed_depth = next(reasons(RULES, TRIMMING, setup), "")
    if fixed_depth:
        fixed_depth = f"draft depth is fixed with {fixed_depth}, only verification is trimmed"
    uniform = varlen_graphs.uniform_reason(vllm_config, expected=expected)
    varlen = varlen_graphs.captured_sizes(vllm_config)
    level = Level.FULL
    if fixed_depth:
        level = Level.VERIFY
    if uniform:
        level = Level.UNIFORM
    sizes = vllm_config.compilation_config.cudagraph_capture_sizes if graphs else None
    return Support(
        capability=Capability(
            level=level,
            max_draft_tokens=int(vllm_config.num_speculative_tokens),
            # With K per request it is the depth that a ladder restricts.
            ladder=ladder.values if ladder is not None and level is not Level.VERIFY else (),
            token_buckets=varlen or tuple(sorted(set(sizes or ()))),
            depth_follows=not fixed_depth,
            off_pass=method not in WITHOUT_MODEL,
            cold_off=_goes_cold(setup, fixed_depth=bool(fixed_depth)),
            ragged_penalty=varlen_graphs.PRIOR_PENALTY if varlen else 0.0,
            sampled_drafts=method not in WITHOUT_MODEL and _samples_drafts(speculation),
        ),
        method=method,
        runner=runner,
        scheduling="async" if vllm_config.scheduler_config.async_scheduling else "sync",
        shadow=tuple(reasons(RULES, SHADOW, setup)),
        missing=missing,
        graphs=_graphs(vllm_config),
        notes=(
            *filter(
                None,
                (
                    fixed_depth,
                    uniform,
                    _short(vllm_config),
                    _shared_cache(speculation),
                    _synchronous(setup),
                ),
            ),
            *(f"this vLLM lacks {feature} ({why})" for feature, why in missing.items()),
        ),
    )


def _synchronous(setup: Setup) -> str:
    """Return how n-gram drafts keep asynchronous scheduling; empty if they do."""
    if (setup.runner, setup.method) != ("V2", "ngram"):
        return ""
    return (
        "vLLM turns asynchronous scheduling off for ngram; method ngram_gpu looks up the same on "
        "model runner V2 and keeps it"
    )


def _short(vllm_config: Any) -> str:
    """Return what becomes of requests that are longer than the drafter takes; empty if none is."""
    longest, limit = int(vllm_config.model_config.max_model_len), drafter_limit(vllm_config)
    if limit is None or limit >= longest:
        return ""
    return (
        f"the drafter takes {limit} of {longest} tokens: with a longer request in the batch vLLM "
        "drafts for nobody (vllm#52762), and K is 0 until it has ended"
    )


def advice_on_kmax(vllm_config: Any, found: Support) -> str:
    """Describe what a larger num_speculative_tokens would allow; empty if nothing.

    Engines without this package run one K at all loads, so operators configure a small one. With
    it, the configured number is only the bound.
    """
    speculation = vllm_config.speculative_config
    # Only a drafter that runs once for each draft can run more often.
    chained = found.method in CHAINED and not has_several_mtp_modules(speculation)
    if found.capability is None or found.shadow or not chained or speculation.parallel_drafting:
        return ""
    kmax = found.capability.max_draft_tokens
    more = _WORTH_TRYING - kmax
    if more <= 0:
        return ""
    reserved = "KV tokens"
    if _has_state(vllm_config.model_config):
        reserved += " and copies of the recurrent state"
    in_all = more * int(vllm_config.scheduler_config.max_num_seqs)
    return (
        f"Kmax {kmax} can be raised: num_speculative_tokens {_WORTH_TRYING} drafts deeper where it "
        f"pays, with the same weights; it reserves {more} more {reserved} per running request (at "
        f"most {in_all}) and, with captured graphs, captures more of them at start"
    )


def _has_state(model: Any) -> bool:
    """Return whether layers keep a recurrent state."""
    return bool(model.is_hybrid or model.has_inner_state)


def _missing(vllm_config: Any, runner: str) -> dict[str, str]:
    """Features that this vLLM's source lacks and this model and runner would use."""
    model = vllm_config.model_config
    without = _OF_RUNNER["V1" if runner == "V2" else "V2"]
    if not _has_state(model):
        without |= {facts.RECURRENT}
    if not hasattr(model.hf_text_config, "index_topk"):
        without |= {facts.SPARSE_MLA}
    own = getattr(vllm_config.scheduler_config, KEY, None)
    if own is None or own.second_source is None:
        without |= {COPIES, V2_COPIES}
    found: dict[str, str] = getattr(vllm_config.scheduler_config, MISSING, {})
    return {feature: why for feature, why in found.items() if feature not in without}


def _goes_cold(setup: Setup, *, fixed_depth: bool) -> bool:
    """Return whether a step may leave out all passes of the drafter, or its look-up."""
    if in_pipeline(setup) or on_expert_ranks(setup):
        return False
    if getattr(setup.config.parallel_config, "nnodes", 1) > 1:
        return False  # a node without this package can't read the message that leaves passes out
    if setup.runner == "V2":
        return setup.method in RUN_ON_V2 - WITHOUT_MODEL and facts.V2_COLD not in setup.missing
    # A drafter of fixed depth asserts that it is asked for Kmax drafts: of these, `drafter_state`
    # answers in place of suffix decoding alone.
    answered = (setup.method not in WITHOUT_MODEL and not fixed_depth) or setup.method == "suffix"
    return answered and facts.COLD not in setup.missing


def lookup_placement(
    vllm_config: Any, support: Support, workers: Collection[str] = tuple(WORKERS.values())
) -> Placement | str:
    """Return the component that replaces the drafter's drafts by looked-up ones, or why none can.

    Args:
        vllm_config: vLLM's.
        support: of it, by `detect`.
        workers: classes of workers that copy drafts, or will.
    """
    capability, parallel = support.capability, vllm_config.parallel_config
    if capability is None or capability.level is Level.UNIFORM:
        return "one K per batch"
    if support.method not in CHAINED:
        return str(support.method)
    if parallel.pipeline_parallel_size > 1:
        return "pipeline parallelism"
    placement = Placement.SCHEDULER
    if support.runner == "V2":
        if capability.sampled_drafts:
            return "draft_sample_method=probabilistic on model runner V2"
        placement = Placement.RUNNER_V2
    elif vllm_config.scheduler_config.async_scheduling:
        if vllm_config.model_config.logits_processors:
            return "logits processors, which V1 tells of the drafter's drafts"
        placement = Placement.RUNNER_V1
    if placement is not Placement.SCHEDULER or capability.sampled_drafts:
        for feature in {COPIES, V2_COPIES} & support.missing.keys():
            return f"this vLLM lacks {feature}"
        if parallel.worker_cls not in workers or parallel.distributed_executor_backend == "ray":
            return "drafts are copied in the worker, and the gate did not name ours"
    return placement


def _shared_cache(speculation: Any) -> str:
    """Return the warning about compiled code that a change of Kmax needs (vllm#53366), or nothing.

    A parallel drafter's compiled code has Kmax in its shapes. vLLM up to 0.33 names the folder of
    compiled code without Kmax, and then fails to start with the code of another Kmax.
    """
    if not speculation.parallel_drafting and speculation.method not in ("dflash", "dspark"):
        return ""
    other = copy.copy(speculation)
    object.__setattr__(other, "num_speculative_tokens", 1 + speculation.num_speculative_tokens)
    if other.compute_hash() != speculation.compute_hash():
        return ""
    return "another Kmax needs an empty VLLM_CACHE_ROOT (vllm#53366)"


def _samples_drafts(speculation: Any) -> bool:
    return getattr(speculation, "draft_sample_method", "greedy") == "probabilistic"


def _graphs_at_all(vllm_config: Any) -> bool:
    from vllm.config import CUDAGraphMode

    return bool(vllm_config.compilation_config.cudagraph_mode != CUDAGraphMode.NONE)


def _graphs(vllm_config: Any) -> str:
    mode = str(vllm_config.compilation_config.cudagraph_mode.name)
    ladder = graph_ladder.captured(vllm_config)
    count = varlen_graphs.captured_count(vllm_config) or (ladder.graphs if ladder else 0)
    return f"{mode}:{count}" if count else mode
