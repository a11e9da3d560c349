"""Worker half of varlen graphs: one decode graph for every mix of K, where attention allows it.

Model runner V2 can capture, per number of tokens, one graph for any mix of 1 to 1 + Kmax tokens per
request (`CudaGraphManager.varlen_decode`, v1/worker/gpu/cudagraph_utils.py:297). vLLM sets it with
adaptive verification only, because only there K differs between the requests of vLLM itself. The
runner passes the largest number of tokens per request to every dispatch and leaves batches with
prompts out (model_runner.py:1753), so the graphs also serve K that a scheduler has chosen.

`arm` runs in every worker before the KV cache is initialised, `report` after all graphs are
captured. EngineCore calls both (`varlen_graphs`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec

_LOG = logging.getLogger("vllm.adaptive_spec")
_REFUSAL = "adaptive_spec_varlen_refusal"
"""Name under which a model runner keeps the reason for capturing no varlen graphs."""
_OWN = "_adaptive_spec_own"


class RankReport(msgspec.Struct, frozen=True, kw_only=True):
    """Full graphs of one worker, found by asking its own dispatcher.

    Attributes:
        query_len: most tokens per request that were asked for: 1 + Kmax.
        full_up_to: every decode batch of 1 to this many tokens has a full graph, whatever the K of
            its requests. 0: none has.
        sizes: token counts that a batch is padded to, ascending, up to `full_up_to`.
        graphs: captured full graphs of the target.
        refusal: reason for having none; empty otherwise.
    """

    query_len: int
    full_up_to: int
    sizes: tuple[int, ...]
    graphs: int
    refusal: str = ""


def arm(worker: Any) -> None:
    """Have the worker's model runner take varlen graphs once its attention backends are known."""
    runner = worker.model_runner
    if not hasattr(runner, "cudagraph_manager"):
        return  # model runner V1 has no such graphs, and `report` reads what it has
    own = runner.initialize_kv_cache

    def initialize_kv_cache(kv_cache_config: Any, *args: Any, **kwargs: Any) -> Any:
        with _as_for_ragged_batches(runner, kv_cache_config):
            done = own(kv_cache_config, *args, **kwargs)
        setattr(runner, _REFUSAL, _take_varlen(runner))
        return done

    setattr(initialize_kv_cache, _OWN, own)
    runner.initialize_kv_cache = initialize_kv_cache


def disarm(worker: Any) -> None:
    """Undo `arm`, before the KV cache is initialised."""
    runner = worker.model_runner
    runner.initialize_kv_cache = getattr(
        runner.initialize_kv_cache, _OWN, runner.initialize_kv_cache
    )


def report(worker: Any) -> dict[str, Any]:
    """Return a `RankReport` as plain values, from the graphs that were captured."""
    runner = worker.model_runner
    query_len = 1 + int(runner.vllm_config.num_speculative_tokens)
    full = (
        _v2_sizes(runner, query_len) if hasattr(runner, "cudagraph_manager") else _v1_sizes(runner)
    )
    found = RankReport(
        query_len=query_len,
        full_up_to=len(full),
        sizes=tuple(sorted(set(full))),
        graphs=_full_graphs(runner),
        refusal="" if full else getattr(runner, _REFUSAL, "") or "no full graph for such batches",
    )
    built: dict[str, Any] = msgspec.to_builtins(found)
    return built


def _take_varlen(runner: Any) -> str:
    """Let the manager list varlen graphs for capture; the reason if it keeps uniform ones."""
    try:
        refusal = _refusal(runner)
    except Exception as error:
        refusal = f"{type(error).__name__}: {error}"
    if not _all_ranks_agree(not refusal):
        return refusal or "another rank refuses"
    manager = runner.cudagraph_manager
    manager.varlen_decode = True
    _list_graphs(manager)
    return ""


def _list_graphs(manager: Any) -> None:
    """Make the manager's lists anew: nothing has been captured yet."""
    manager._candidates = {}
    manager._capture_descs = {}
    manager._init_candidates()


def _refusal(runner: Any) -> str:
    """Why this runner's decode graphs can't replay batches whose K differ; empty if they can."""
    from vllm.config import CUDAGraphMode
    from vllm.v1.attention.backend import AttentionCGSupport

    mode = runner.cudagraph_manager.cudagraph_mode
    if not (mode.separate_routine() and mode.decode_mode() == CUDAGraphMode.FULL):
        return f"cudagraph_mode={mode.name}"
    for name, feature in _APART.items():
        if getattr(runner, name, None) is not None:
            return feature
    if has_own_decode_path(type(runner.model).__module__):
        return OWN_DECODE_PATH
    query_len = 1 + int(runner.vllm_config.num_speculative_tokens)
    if runner.decode_query_len != query_len:
        return f"{runner.decode_query_len} tokens per decoding request at Kmax"
    if found := refusing_backend(
        runner.attn_groups, runner.vllm_config, query_len, _target(runner)
    ):
        return found
    support, backend = runner.model_state.get_additional_cg_support()
    return "" if support == AttentionCGSupport.ALWAYS else f"attention backend {backend}"


OWN_DECODE_PATH = "a decode path of the model's own"


def has_own_decode_path(module: str) -> bool:
    """Return whether a model of this module may run decode steps past vLLM's own layers.

    vLLM 0.33 has such paths for some models, for batches of one K (`vllm/models/*/*/
    specialized_decode`).
    """
    if not module.startswith("vllm.models."):
        return False
    import vllm

    folder = Path(vllm.__file__).parent / "models" / module.split(".")[2]
    return any(folder.rglob("specialized_decode"))


_APART = {
    "adaptive_verification": "enable_adaptive_verification",
    "ubatch_runner": "dual batch overlap",
    "pcp_manager": "prefill context parallelism",
}
"""Attributes of a model runner -> the feature whose presence they show."""


def refusing_backend(
    groups: Any, vllm_config: Any, query_len: int, layers: set[str] | None = None
) -> str:
    """Name the attention backend that can't replay such batches, in words; empty if all can.

    Args:
        groups: vLLM's lists of attention groups, one list for each KV-cache group.
        vllm_config: vLLM's.
        query_len: most tokens per request.
        layers: names of the layers that count; None: all.
    """
    from vllm.v1.worker.gpu.attn_utils import get_varlen_cudagraph_unsupported_backend

    found = get_varlen_cudagraph_unsupported_backend(
        groups, vllm_config, query_len, checked_layer_names=layers
    )
    return f"attention backend {found[0]}" if found is not None else ""


@contextmanager
def for_ragged_batches(vllm_config: Any) -> Iterator[None]:
    """Let attention backends prepare for lengths that differ, as with adaptive verification.

    FlashInfer on Blackwell and the sparse indexer on Hopper read `enable_adaptive_verification`
    when their builders are made (v1/attention/backends/flashinfer.py:1148, mla/indexer.py:976), and
    nothing else in this time does. The runner's own switch is its speculator's, read at load.
    """
    speculation = vllm_config.speculative_config
    before = speculation.enable_adaptive_verification
    speculation.enable_adaptive_verification = True
    try:
        yield
    finally:
        speculation.enable_adaptive_verification = before


@contextmanager
def _as_for_ragged_batches(runner: Any, kv_cache_config: Any) -> Iterator[None]:
    """`for_ragged_batches`, where that is what the target's backends lack."""
    try:
        groups = _groups_to_come(runner, kv_cache_config)
        query_len = 1 + int(runner.vllm_config.num_speculative_tokens)
        lacks = bool(refusing_backend(groups, runner.vllm_config, query_len))
        if lacks:
            with for_ragged_batches(runner.vllm_config):
                lacks = not refusing_backend(groups, runner.vllm_config, query_len)
    except Exception as error:
        _LOG.warning("adaptive_spec: attention backends: %s: %s", type(error).__name__, error)
        lacks = False
    if not lacks:
        yield
        return
    with for_ragged_batches(runner.vllm_config):
        yield


def _groups_to_come(runner: Any, kv_cache_config: Any) -> list[list[Any]]:
    """Stand-ins for the target's attention groups, which vLLM is about to make."""
    from vllm.config import get_layers_from_vllm_config
    from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase

    drafts: set[str] = getattr(runner.speculator, "draft_attn_layer_names", set())
    made = []
    for group in kv_cache_config.kv_cache_groups:
        wanted = [name for name in group.layer_names if name not in drafts]
        layers: dict[str, Any] = get_layers_from_vllm_config(
            runner.vllm_config, AttentionLayerBase, wanted
        )
        specs = getattr(group.kv_cache_spec, "kv_cache_specs", {})
        made.append(
            [
                stand_in(layer.get_attn_backend(), specs.get(name, group.kv_cache_spec), name)
                for name, layer in layers.items()
            ]
        )
    return made


def stand_in(backend: Any, spec: Any, layer: str = "") -> Any:
    """An attention group as far as `refusing_backend` reads one: its builder is a class."""
    return SimpleNamespace(
        backend=backend,
        kv_cache_spec=spec,
        layer_names=[layer],
        get_metadata_builder=lambda _: backend.get_builder_cls(),
    )


def _target(runner: Any) -> set[str] | None:
    """Names of the target's layers; None: all layers are."""
    drafts: set[str] | None = getattr(runner.speculator, "draft_attn_layer_names", None)
    if drafts is None:
        return None
    groups = runner.kv_cache_config.kv_cache_groups
    return {name for group in groups for name in group.layer_names} - drafts


def _all_ranks_agree(agrees: bool) -> bool:
    """Return whether every rank that runs steps together with this one agrees.

    Ranks with other graphs would pad a step to another number of tokens, and their collectives
    would not fit together. Every armed rank calls this, whatever it has found.
    """
    from vllm.distributed.parallel_state import get_world_group

    world = get_world_group()
    if world.world_size == 1:
        return agrees
    import torch

    votes = torch.tensor([int(agrees)])
    torch.distributed.all_reduce(votes, torch.distributed.ReduceOp.MIN, group=world.cpu_group)
    return bool(votes.item())


def _v2_sizes(runner: Any, query_len: int) -> list[int]:
    """For 1, 2, ... tokens the size that every decode batch is padded to, while all run in full.

    For each number of tokens, the batches with most and with fewest requests are tried, and one
    length fewer than the longest, for each number of LoRA adapters.
    """
    from vllm.config import CUDAGraphMode

    manager = runner.cudagraph_manager
    most = runner.max_num_reqs
    sizes: list[int] = []
    for tokens in range(1, most * query_len + 1):
        padded = set()
        for requests in {-(-tokens // query_len), min(tokens, most)}:
            for longest in {query_len, -(-tokens // requests)}:
                for adapters in manager.lora_capture_cases:
                    found = manager.dispatch(
                        requests, tokens, None, adapters, max_query_len=longest
                    )
                    full = found.cg_mode == CUDAGraphMode.FULL
                    padded.add(found.num_tokens if full else 0)
        if len(padded) > 1 or not min(padded):
            break
        sizes.append(padded.pop())
    return sizes


def _v1_sizes(runner: Any) -> list[int]:
    """Return the sizes on model runner V1, whose cudagraph_mode=FULL has graphs for any batch."""
    from vllm.config import CUDAGraphMode

    dispatcher, lora = runner.cudagraph_dispatcher, runner.lora_config is not None
    most = runner.max_num_reqs * (1 + int(runner.vllm_config.num_speculative_tokens))
    sizes: list[int] = []
    for tokens in range(1, most + 1):
        found = {
            (mode, batch.num_tokens)
            for adapters in ((0, 1) if lora else (0,))
            for mode, batch in (
                dispatcher.dispatch(
                    tokens, uniform_decode=False, has_lora=bool(adapters), num_active_loras=adapters
                ),
            )
        }
        if len(found) > 1 or (mode_and_size := found.pop())[0] != CUDAGraphMode.FULL:
            break
        sizes.append(mode_and_size[1])
    return sizes


def _full_graphs(runner: Any) -> int:
    """Full graphs of the target, listed for capture."""
    from vllm.config import CUDAGraphMode

    if hasattr(runner, "cudagraph_manager"):
        return len(runner.cudagraph_manager._capture_descs.get(CUDAGraphMode.FULL, ()))
    return len(runner.cudagraph_dispatcher.cudagraph_keys[CUDAGraphMode.FULL])
