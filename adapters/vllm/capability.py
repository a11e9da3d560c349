"""What a vLLM configuration allows: how K can be steered, and where we only watch.

Read from `VllmConfig` after vLLM has resolved it. The rules and their reasons are in PATCHES.md.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import msgspec

from adaptive_spec.adapters.vllm import KEY, facts, graph_ladder, varlen_graphs
from adaptive_spec.adapters.vllm.attention import mixed_lengths_refusal
from adaptive_spec.adapters.vllm.compat import has_several_mtp_modules
from adaptive_spec.adapters.vllm.draft_signal.worker import WORKERS
from adaptive_spec.adapters.vllm.lookup import Placement
from adaptive_spec.adapters.vllm.worker_facts import COPIES, V2_COPIES, V2_SIGNAL
from adaptive_spec.engines import support
from adaptive_spec.engines.kmax_advice import kmax_advice
from adaptive_spec.step import Capability, Level

DEPTH_FOLLOWS = {
    "V1": frozenset({"draft_model", "eagle", "eagle3", "mtp", "ngram"}),
    "V2": frozenset({"eagle", "eagle3", "mtp"}),
}
"""Methods that draft as many tokens as the scheduler asks for, by model runner. Of the others, V1's
assert that they are asked for the configured number, V2's draft that many and drop the rest."""

RUN_ON_V2 = frozenset({"dflash", "draft_model", "dspark", "eagle", "eagle3", "mtp"})
"""Methods of model runner V2 whose speculators have a model of their own. The runner masks drafts
beyond the scheduler's number for all of them; those of the others were not executed."""

WITHOUT_MODEL = frozenset({"ngram", "ngram_gpu", "suffix"})
"""Methods that draft without running a model: K = 0 costs them nothing."""

CHAINED = frozenset({"draft_model", "eagle", "eagle3", "mtp"})
"""Methods of V1 whose model runs once for each draft position, in `SpecDecodeBaseProposer`."""

_READS_ON_HOST = WORKERS["vllm.v1.worker.cpu_worker.CPUWorker"]
"""The worker that reads what the drafter shows, and needs not wait for a device to do so."""


_OTHER_SETTINGS = ("draft_confidence_threshold", "skip_draft_when_k0")
"""Settings of a `SpeculativeConfig` by which vLLM itself ends or skips drafting."""

_OTHER_PLUGINS = ("dynamic_spec_config",)
"""Keys of `additional_config` by which other plugins set K (vllm-ascend)."""

_STEERING = (
    "__init__",
    "schedule",
    "_update_after_schedule",
    "update_draft_token_ids",
    "update_from_output",
)
"""Methods of vLLM's schedulers that a controller of K replaces; chained-flow replaces one."""

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
    """What was found in a vLLM configuration; `notes` say what isn't supported.

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
    model, speculation = vllm_config.model_config, vllm_config.speculative_config
    inert = _inert_reason(model, speculation, vllm_config.kv_transfer_config)
    if inert:
        return Support(capability=None, inert=inert)
    method = str(speculation.method)
    runner = "V2" if vllm_config.use_v2_model_runner else "V1"
    missing = _missing(vllm_config, runner)
    graphs = _graphs_at_all(vllm_config)
    ladder = graph_ladder.captured(vllm_config)
    fixed_depth = _fixed_depth_reason(vllm_config, method, runner, missing, expected=expected)
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
            cold_off=_goes_cold(
                vllm_config, method, runner, missing, fixed_depth=bool(fixed_depth)
            ),
            ragged_penalty=varlen_graphs.PRIOR_PENALTY if varlen else 0.0,
            sampled_drafts=method not in WITHOUT_MODEL and _samples_drafts(speculation),
        ),
        method=method,
        runner=runner,
        scheduling="async" if vllm_config.scheduler_config.async_scheduling else "sync",
        shadow=tuple(_shadow_reasons(vllm_config, method, runner, missing)),
        missing=missing,
        graphs=_graphs(vllm_config),
        notes=(
            *(note for note in (fixed_depth, uniform, _shared_cache(speculation)) if note),
            *(f"this vLLM lacks {feature} ({why})" for feature, why in missing.items()),
        ),
    )


def advice_on_kmax(vllm_config: Any, found: Support, state: Mapping[str, Any] | None = None) -> str:
    """Say what a larger num_speculative_tokens would give; empty where raising it is no use.

    Args:
        vllm_config: vLLM's.
        found: of it, by `detect`.
        state: what a policy has learned with it.
    """
    speculation = vllm_config.speculative_config
    chained = found.method in CHAINED and not has_several_mtp_modules(speculation)
    if found.capability is None or found.shadow or not chained or speculation.parallel_drafting:
        return ""
    requests = int(vllm_config.scheduler_config.max_num_seqs)
    kmax, recurrent = found.capability.max_draft_tokens, _has_state(vllm_config.model_config)
    return kmax_advice(kmax, requests, state, recurrent=recurrent)


def _inert_reason(model: Any, speculation: Any, kv_transfer: Any) -> str:
    if speculation is None:
        return "no speculation is configured: add --speculative-config"
    if model.runner_type == "pooling":
        return "a pooling model does not decode"
    if model.is_diffusion:
        return "a diffusion model has no draft tokens to choose"
    if kv_transfer is not None and kv_transfer.kv_role == "kv_producer":
        return "a prefill instance (kv_role=kv_producer) generates one token per request"
    return ""


def _has_state(model: Any) -> bool:
    """Whether layers keep a recurrent state."""
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


def _fixed_depth_reason(
    vllm_config: Any, method: str, runner: str, missing: Mapping[str, str], *, expected: bool
) -> str:
    """Why the number of draft passes can't follow the decision; empty if it can.

    `expected`: a ladder that can be captured will be.
    """
    from vllm.config import CUDAGraphMode

    speculation = vllm_config.speculative_config
    reason = ""
    if method not in DEPTH_FOLLOWS[runner]:
        reason = f"{method} on model runner {runner}"
    elif facts.ALONE in missing:
        reason = "another controller of the draft length in this vLLM"
    elif facts.V2_DEPTH in missing:
        reason = "model runner V2 of this vLLM"
    elif speculation.parallel_drafting:
        reason = "parallel drafting"
    elif runner == "V2" and has_several_mtp_modules(speculation):  # V1 repeats the first module
        reason = "several MTP modules"
    elif runner == "V1" and speculation.use_step3p5_mtp():
        reason = "the draft loop of step3p5, which drafts one token where none is wanted"
    elif several := _several_at_work(vllm_config):
        reason = several
    elif (
        runner == "V2"
        and vllm_config.compilation_config.cudagraph_mode.decode_mode() == CUDAGraphMode.FULL
        and graph_ladder.captured(vllm_config) is None
        and not (expected and graph_ladder.can_capture(vllm_config))
    ):
        reason = "a draft loop captured for Kmax only"
    return f"draft depth is fixed with {reason}, only verification is trimmed" if reason else ""


def _several_at_work(vllm_config: Any) -> str:
    """Why the passes of a drafter are not one step's alone to decide; empty if they are."""
    parallel = vllm_config.parallel_config
    if parallel.pipeline_parallel_size > 1:
        # Steps of other requests are under way, and the worker remembers one depth for all.
        return "pipeline parallelism"
    if parallel.data_parallel_size > 1:
        # Of a dense model each rank is an engine of its own, which says 1 here.
        return "data parallelism of a mixture of experts"
    return ""


def _goes_cold(
    vllm_config: Any, method: str, runner: str, missing: Mapping[str, str], *, fixed_depth: bool
) -> bool:
    """Whether a step may leave all passes of the drafter out.

    Model runner V1 asserts, of a drafter whose depth is fixed, that it is asked for Kmax drafts.
    """
    if method in WITHOUT_MODEL or _several_at_work(vllm_config):
        return False
    if getattr(vllm_config.parallel_config, "nnodes", 1) > 1:
        return False  # a node without this package can't read the message that leaves passes out
    if runner == "V2":
        return method in RUN_ON_V2 and facts.V2_COLD not in missing
    return not fixed_depth and facts.COLD not in missing


def lookup_placement(
    vllm_config: Any, support: Support, workers: Collection[str] = tuple(WORKERS.values())
) -> Placement | str:
    """Who puts looked-up drafts in the drafter's place; or why nobody can.

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
    """What an operator who changes Kmax must know of compiled code (vllm#53366); or nothing.

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


def _shadow_reasons(
    vllm_config: Any, method: str, runner: str, missing: Mapping[str, str]
) -> list[str]:
    """Set-ups in which acting has not been tested."""
    speculation = vllm_config.speculative_config
    reasons = []
    if runner == "V2" and method not in RUN_ON_V2:
        reasons.append(f"{method} on model runner V2 (VLLM_USE_V2_MODEL_RUNNER=0 selects V1)")
    if facts.RECURRENT in missing:
        reasons.append("hybrid or state-space model, whose state K = 0 would read stale")
    if speculation.rejection_sample_method != "standard":
        reasons.append(f"rejection_sample_method={speculation.rejection_sample_method}")
    if getattr(speculation, "enable_adaptive_verification", False):
        reasons.append("enable_adaptive_verification already trims")
    if facts.SPARSE_MLA in missing:
        reasons.append("sparse MLA, whose indexer fails on different K in one batch")
    if wrong := wrong_output(vllm_config):
        reasons.append(wrong)
    reasons += _other_controllers(vllm_config)
    if refusal := mixed_lengths_refusal(vllm_config):
        reasons.append(refusal)
    return reasons


def wrong_output(vllm_config: Any) -> str:
    """Why vLLM's own output is wrong with speculation here; empty if no reason is known."""
    pipeline = vllm_config.parallel_config.pipeline_parallel_size > 1
    if pipeline and not vllm_config.scheduler_config.async_scheduling:
        return "pipeline parallelism with synchronous scheduling (vllm#52071)"
    return ""


def _other_controllers(vllm_config: Any) -> list[str]:
    """Configured features of vLLM and of other plugins that set the number of drafts themselves."""
    speculation, added = vllm_config.speculative_config, vllm_config.additional_config
    found = [name for name in _OTHER_SETTINGS if getattr(speculation, name, None)]
    if isinstance(added, Mapping):
        found += [name for name in _OTHER_PLUGINS if added.get(name)]
    reasons = [f"{name} already sets the number of drafts" for name in found]
    return reasons + [f"{patched} was replaced by another plugin" for patched in _replaced()]


def _replaced() -> list[str]:
    """Methods of vLLM's schedulers whose code is not vLLM's."""
    import vllm
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.scheduler import Scheduler

    folder = str(Path(vllm.__file__).parent)
    found = []
    for scheduler in (Scheduler, AsyncScheduler):
        for name in _STEERING:
            code = getattr(vars(scheduler).get(name), "__code__", None)
            if code is not None and not code.co_filename.startswith(folder):
                found.append(f"{scheduler.__name__}.{name}")
    return found
