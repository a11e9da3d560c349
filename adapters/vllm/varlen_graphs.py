"""K per request in full graphs: who decides, and how scheduler and workers come to agree.

A scheduler may give requests different K only if the workers have captured graphs for such batches
(`varlen_capture`). Three steps, all before the first request:

1. The gate asks vLLM which attention backends it will choose (`expected_refusal`). That decides
   which sizes are captured, and nothing else.
2. EngineCore arms its workers before the KV cache is initialised. Each decides by its real backends
   and captures; all ranks capture alike.
3. EngineCore asks every worker which graphs it has. Only if all answers are complete, alike and
   what this configuration needs, the scheduler is built with K per request (`uniform_reason`).

Everything else means one K per batch: a refusal, an answer that is missing, late or malformed,
ranks that differ. vLLM's own dispatch compares lengths at every step, so that even a wrong answer
costs a batch its full graph and never gives it a wrong one.
"""

from __future__ import annotations

import functools
import logging
from typing import Any

import msgspec

from adaptive_spec.adapters.vllm import varlen_capture
from adaptive_spec.adapters.vllm.varlen_capture import OWN_DECODE_PATH, RankReport

_LOG = logging.getLogger("vllm.adaptive_spec")
_ORIGINAL = "_adaptive_spec_original"
_METHOD = "_initialize_kv_caches"

ATTRIBUTE = "adaptive_spec_varlen"
"""Name under which `SchedulerConfig` carries `Asked`, then `Varlen`."""

# The drafter's first pass has no full graph then (target_dependent_ar/speculator.py:258).
PRIOR_PENALTY = 0.02
"""Extra time of a step whose K differ (ratio), until steps are timed."""

ONE_K = "captured graphs: "
"""Begins the reason for one K per batch."""

_ANSWER_SECONDS = 60.0


class Varlen(msgspec.Struct, frozen=True, kw_only=True):
    """The graphs that the workers of an engine have captured.

    Attributes:
        refusal: why batches with different K have no full graph; empty if each has one.
        sizes: token counts that a batch is padded to, ascending; empty with a refusal.
        graphs: full graphs of the target, per rank.
    """

    refusal: str = ""
    sizes: tuple[int, ...] = ()
    graphs: int = 0


class Asked:
    """The workers will be asked. Arriving in EngineCore's process it hooks EngineCore.

    Attributes:
        expected: the gate's expectation of the refusal; empty if it expects varlen graphs.
    """

    def __init__(self, expected: str) -> None:
        self.expected = expected

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, (self.expected,)


def _arrived(expected: str) -> Asked | None:
    try:
        install()
    except Exception as error:
        _LOG.warning("adaptive_spec: one K per batch: %s: %s", type(error).__name__, error)
        return None
    return Asked(expected)


def ask_workers(vllm_config: Any, expected: str) -> None:
    """Make the engine of this configuration query its workers."""
    install()
    # On the nested object: vLLM copies VllmConfig field by field and stumbles over strangers.
    setattr(vllm_config.scheduler_config, ATTRIBUTE, Asked(expected))


def refuse(vllm_config: Any, reason: str) -> None:
    """Leave its graphs as they are, for this reason."""
    setattr(vllm_config.scheduler_config, ATTRIBUTE, Varlen(refusal=reason))


def install() -> None:
    """Hook EngineCore in this process, once."""
    from vllm.v1.engine.core import EngineCore

    original = getattr(EngineCore, _METHOD)
    if hasattr(original, _ORIGINAL):
        return

    @functools.wraps(original)
    def initialize_kv_caches(self: Any, vllm_config: Any) -> Any:
        scheduling = vllm_config.scheduler_config
        if not isinstance(getattr(scheduling, ATTRIBUTE, None), Asked):
            return original(self, vllm_config)
        armed = _arm(self.model_executor, vllm_config)
        made = original(self, vllm_config)
        found = _answers(self.model_executor, vllm_config) if not armed else Varlen(refusal=armed)
        setattr(scheduling, ATTRIBUTE, found)
        return made

    setattr(initialize_kv_caches, _ORIGINAL, original)
    setattr(EngineCore, _METHOD, initialize_kv_caches)


def uninstall() -> None:
    """EngineCore as it was."""
    from vllm.v1.engine.core import EngineCore

    original = getattr(getattr(EngineCore, _METHOD), _ORIGINAL, None)
    if original is not None:
        setattr(EngineCore, _METHOD, original)


def _arm(executor: Any, vllm_config: Any) -> str:
    """Arm all workers; why none is, if one can't be."""
    try:
        executor.collective_rpc(varlen_capture.arm, timeout=_ANSWER_SECONDS)
        return ""
    except Exception as error:
        if vllm_config.parallel_config.data_parallel_size > 1:
            raise  # other engines' workers would wait for this one's vote
        try:
            executor.collective_rpc(varlen_capture.disarm, timeout=_ANSWER_SECONDS)
        except Exception:  # those that it reached are disarmed, the others were never armed
            _LOG.debug("adaptive_spec: disarming", exc_info=True)
        return f"{type(error).__name__}: {error}"


def _answers(executor: Any, vllm_config: Any) -> Varlen:
    try:
        answers = executor.collective_rpc(varlen_capture.report, timeout=_ANSWER_SECONDS)
    except Exception as error:
        return Varlen(refusal=f"no answer of the workers ({type(error).__name__}: {error})")
    return verdict(answers, vllm_config)


def verdict(answers: Any, vllm_config: Any) -> Varlen:
    """Return what the workers' answers allow: varlen graphs only if all are as expected.

    Args:
        answers: of every worker, as `varlen_capture.report` returns them, or anything else.
        vllm_config: vLLM's.
    """
    parallel, compilation = vllm_config.parallel_config, vllm_config.compilation_config
    try:
        reports = msgspec.convert(answers, list[RankReport])
    except msgspec.ValidationError as error:
        return Varlen(refusal=f"the workers' answers are malformed ({error})")
    if len(reports) != parallel.world_size:
        return Varlen(refusal=f"{len(reports)} of {parallel.world_size} workers have answered")
    refusals = sorted({report.refusal for report in reports} - {""})
    if refusals:
        return Varlen(refusal=refusals[0])
    first = reports[0]
    if any(report != first for report in reports):
        return Varlen(refusal="workers with different graphs")
    kmax = int(vllm_config.num_speculative_tokens)
    if first.query_len != 1 + kmax:
        return Varlen(
            refusal=f"graphs for up to {first.query_len} tokens per request, not {1 + kmax}"
        )
    most = vllm_config.scheduler_config.max_num_seqs * (1 + kmax)
    needed = [size for size in compilation.cudagraph_capture_sizes or () if size <= most]
    if not needed or first.full_up_to < needed[-1] or not set(first.sizes) <= set(needed):
        return Varlen(refusal=f"full graphs up to {first.full_up_to} tokens only")
    return Varlen(sizes=first.sizes, graphs=first.graphs)


def uniform_reason(vllm_config: Any, *, expected: bool = False) -> str:
    """Why all requests of a batch must run one K; empty if each may have its own.

    Args:
        vllm_config: vLLM's.
        expected: before the workers have answered, take what the gate expects of them.
    """
    if not has_full_decode_graphs(vllm_config):
        return ""  # no batch has a full graph that different K could cost it
    found = getattr(vllm_config.scheduler_config, ATTRIBUTE, None)
    if isinstance(found, Varlen):
        refusal = found.refusal
    elif isinstance(found, Asked):
        refusal = found.expected if expected else "the workers have not answered"
    else:
        refusal = expected_refusal(vllm_config) if expected else "not asked for"
    return f"{ONE_K}one K per batch ({refusal})" if refusal else ""


def has_full_decode_graphs(vllm_config: Any) -> bool:
    """Return whether this configuration captures full graphs for decode batches."""
    from vllm.config import CUDAGraphMode

    mode = vllm_config.compilation_config.cudagraph_mode
    return bool(mode.decode_mode() == CUDAGraphMode.FULL)


def captured_sizes(vllm_config: Any) -> tuple[int, ...]:
    """Sizes that batches with different K are padded to; empty where they have no full graphs."""
    found = getattr(vllm_config.scheduler_config, ATTRIBUTE, None)
    return found.sizes if isinstance(found, Varlen) else ()


def captured_count(vllm_config: Any) -> int:
    """Full graphs that each rank has captured for batches with different K; 0 without any."""
    found = getattr(vllm_config.scheduler_config, ATTRIBUTE, None)
    return found.graphs if isinstance(found, Varlen) else 0


def cover_every_batch(vllm_config: Any) -> None:
    """Capture a graph for the largest decode batch, too.

    A varlen graph is no larger than the most tokens that a decode batch can have, and vLLM's sizes
    may leave out that number.
    """
    compilation = vllm_config.compilation_config
    kmax = int(vllm_config.num_speculative_tokens)
    most = vllm_config.scheduler_config.max_num_seqs * (1 + kmax)
    sizes = compilation.cudagraph_capture_sizes
    if most <= compilation.max_cudagraph_capture_size and most not in sizes:
        compilation.cudagraph_capture_sizes = sorted({*sizes, most})


def can_be_asked(vllm_config: Any) -> str:
    """Why the workers can't have varlen graphs, whatever their backends; empty if they may."""
    from vllm.config import CUDAGraphMode

    parallel = vllm_config.parallel_config
    mode = vllm_config.compilation_config.cudagraph_mode
    if not has_full_decode_graphs(vllm_config):
        return f"cudagraph_mode={mode.name}"
    if not vllm_config.use_v2_model_runner and mode != CUDAGraphMode.FULL:
        return "model runner V1, with full decode graphs for Kmax only"
    if getattr(vllm_config.speculative_config, "enable_adaptive_verification", False):
        return "enable_adaptive_verification"
    if getattr(parallel, "enable_elastic_ep", False):
        return "elastic expert parallelism"  # ranks that join later had no vote
    return ""


def expected_refusal(vllm_config: Any) -> str:
    """Why no varlen graphs are expected; empty if they are.

    vLLM chooses the backends by the model's own settings and this machine, as it does again when
    layers are built. What cannot be told here counts as a refusal; the workers decide.
    """
    if refusal := can_be_asked(vllm_config):
        return refusal
    parallel, model = vllm_config.parallel_config, vllm_config.model_config
    if parallel.use_ubatching:
        return "dual batch overlap"
    if getattr(parallel, "prefill_context_parallel_size", 1) > 1:
        return "prefill context parallelism"
    try:
        if _has_own_decode_path(model):
            return OWN_DECODE_PATH
        return _refusing_choice(vllm_config)
    except Exception as error:
        return f"attention backends unknown here: {type(error).__name__}: {error}"


def _has_own_decode_path(model: Any) -> bool:
    from vllm.model_executor.models.registry import ModelRegistry

    found = (ModelRegistry.models.get(name) for name in model.architectures)
    modules = (getattr(each, "module_name", "") for each in found)
    return any(map(varlen_capture.has_own_decode_path, modules))


def _refusing_choice(vllm_config: Any) -> str:
    """The backend, of those that vLLM will choose for the target, that refuses."""
    from vllm.config import set_current_vllm_config

    query_len = 1 + int(vllm_config.num_speculative_tokens)
    with set_current_vllm_config(vllm_config):
        groups = [[varlen_capture.stand_in(*pair)] for pair in _chosen_backends(vllm_config)]
        if not vllm_config.use_v2_model_runner:
            return _not_for_any_batch(groups, vllm_config)
        refusal = varlen_capture.refusing_backend(groups, vllm_config, query_len)
        if refusal:
            with varlen_capture.for_ragged_batches(vllm_config):
                refusal = varlen_capture.refusing_backend(groups, vllm_config, query_len)
    return refusal


def _not_for_any_batch(groups: list[list[Any]], vllm_config: Any) -> str:
    """The backend that makes vLLM give up cudagraph_mode=FULL (config/compilation.py:1387)."""
    from vllm.v1.attention.backend import AttentionCGSupport

    for [group] in groups:
        builder = group.get_metadata_builder(0)
        support = builder.get_cudagraph_support(vllm_config, group.kv_cache_spec)
        if support != AttentionCGSupport.ALWAYS:
            return f"attention backend {group.backend.__name__}"
    return ""


def _chosen_backends(vllm_config: Any) -> list[tuple[Any, Any]]:
    """Backend class and KV-cache spec of each kind of layer that the target has."""
    from vllm.v1.attention.selector import get_attn_backend
    from vllm.v1.kv_cache_interface import FullAttentionSpec, MLAAttentionSpec

    model, cache, parallel = (
        vllm_config.model_config,
        vllm_config.cache_config,
        vllm_config.parallel_config,
    )
    sparse = hasattr(model.hf_text_config, "index_topk")
    settings: dict[str, Any] = {
        "head_size": model.get_head_size(),
        "dtype": model.dtype,
        "kv_cache_dtype": cache.cache_dtype,
        "use_mla": bool(model.use_mla),
        "use_sparse": sparse,
        "use_mm_prefix": bool(getattr(model, "is_mm_prefix_lm", False)),
        "num_heads": model.get_num_attention_heads(parallel),
    }
    kind = MLAAttentionSpec if model.use_mla else FullAttentionSpec
    spec = kind(
        block_size=cache.block_size or 16,
        num_kv_heads=1 if model.use_mla else model.get_num_kv_heads(parallel),
        head_size=model.get_head_size(),
        dtype=model.dtype,
    )
    chosen = [(get_attn_backend(**settings), spec)]
    if model.use_mla and sparse:
        from vllm.v1.attention.backends.mla.indexer import DeepseekV32IndexerBackend

        chosen.append((DeepseekV32IndexerBackend, spec))
    if getattr(model.hf_text_config, "sliding_window", None) and not model.use_mla:
        chosen.append((get_attn_backend(**settings, has_sliding_window=True), spec))
    if model.is_hybrid or model.has_inner_state:
        chosen += [(backend, spec) for backend in _recurrent_backends()]
    return chosen


def _recurrent_backends() -> list[Any]:
    """Backends of recurrent layers. Which of them a model has is seen in its layers only."""
    from vllm.v1.attention.backends.registry import MambaAttentionBackendEnum

    return [kind.get_class() for kind in MambaAttentionBackendEnum if kind.value]
