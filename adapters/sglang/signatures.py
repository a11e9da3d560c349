"""What is relied on in SGLang: symbols, parameters, order of calls.

Looked up in the installed source, without importing it, before anything is hooked; so a changed
SGLang is one clear refusal, or one feature less, and no fault in its step loop. The same check runs
on any unpacked wheel: ``mismatches(folder)``.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
from collections.abc import Iterator
from pathlib import Path

import msgspec

from adaptive_spec.errors import UnsupportedEngineError

BASE = "base"
"""Without it nothing is switched on."""
STANDALONE, NGRAM, CONFIDENCE = "STANDALONE", "NGRAM", "confidence"
RUNTIME_SWITCH, OVERRIDES = "run-time switch", "overrides"


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """Something SGLang has.

    Attributes:
        feature: what does not work without it.
        file: below ``sglang/srt``. Several, separated by ``|``: any one of them will do.
        symbol: ``function``, ``Class`` or ``Class.member`` in that file.
        parameters: names among the parameters of a function; or `attributes` or `order`.
        attributes: names that occur in the file as ``something.name`` or are assigned in it.
        order: names that are called in this order in the body of the symbol.
    """

    feature: str
    file: str
    symbol: str
    parameters: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()
    order: tuple[str, ...] = ()

    def describe(self) -> str:
        """For people: what is missing if it fails."""
        if self.attributes:
            return f"{self.symbol} with {', '.join(self.attributes)}"
        if self.order:
            return f"{self.symbol} calling {', then '.join(self.order)}"
        return f"{self.symbol}({', '.join(self.parameters)})"


_SCHEDULER = "managers/scheduler.py"
_STATE = "speculative/adaptive_runtime_state.py"
_PARAMS = "speculative/adaptive_spec_params.py"
_EAGLE = "speculative/eagle_worker_v2.py"
_NGRAM = "speculative/ngram_worker.py"
_RESULTS = "managers/scheduler_components/batch_result_processor.py"
_REGISTRY = "speculative/spec_registry.py"


def _base(file: str, symbol: str, *parameters: str) -> Fact:
    return Fact(feature=BASE, file=file, symbol=symbol, parameters=parameters)


FACTS: tuple[Fact, ...] = (
    _base("plugins/hook_registry.py", "HookRegistry.register", "target", "hook", "hook_type"),
    _base("plugins/hook_registry.py", "HookRegistry.apply_hooks", "cls"),
    Fact(
        feature=BASE,
        file="plugins/hook_registry.py",
        symbol="HookType",
        attributes=("BEFORE", "AFTER", "AROUND"),
    ),
    _base(_SCHEDULER, "Scheduler.__init__", "self", "server_args"),
    _base(_SCHEDULER, "Scheduler.run_batch", "self", "batch"),
    _base(_SCHEDULER, "Scheduler.process_batch_result", "self", "batch", "result"),
    Fact(
        feature=BASE,
        file=_SCHEDULER,
        symbol="Scheduler",
        attributes=(
            "draft_worker",
            "enable_overlap",
            "max_total_num_tokens",
            "running_batch",
            "spec_algorithm",
            "token_to_kv_pool_allocator",
            "tp_cpu_group",
            "tree_cache",
            "waiting_queue",
        ),
    ),
    _base(
        _RESULTS, "SchedulerBatchResultProcessor._resolve_spec_v2_tokens", "self", "result", "batch"
    ),
    Fact(
        feature=BASE,
        file=_RESULTS,
        symbol="SchedulerBatchResultProcessor._resolve_spec_v2_tokens",
        attributes=("accept_lens", "num_correct_drafts_per_req_cpu", "is_retracted", "finished"),
    ),
    Fact(
        feature=BASE,
        file="managers/schedule_batch.py",
        symbol="Req",
        attributes=("rid", "output_ids", "origin_input_ids", "sampling_params", "is_retracted"),
    ),
    _base("managers/schedule_batch.py", "Req.finished", "self"),
    Fact(
        feature=BASE,
        file="sampling/sampling_params.py",
        symbol="SamplingParams",
        attributes=("custom_params", "max_new_tokens", "temperature", "top_k"),
    ),
    Fact(
        feature=BASE,
        file="managers/utils.py",
        symbol="GenerationBatchResult",
        attributes=("accept_lens", "speculative_num_draft_tokens"),
    ),
    _base(_STATE, "AdaptiveController.__init__", "self", "worker"),
    _base(_STATE, "AdaptiveController.activate_step_by_batch", "self", "batch_size"),
    _base(_STATE, "AdaptiveController.init_states", "self", "cuda_graph_bs"),
    Fact(feature=BASE, file=_STATE, symbol="AdaptiveController", attributes=("params", "worker")),
    _base(_PARAMS, "AdaptiveSpeculativeParams.candidate_steps", "self"),
    _base(_PARAMS, "AdaptiveSpeculativeParams.set_cuda_graph_bs", "self", "cuda_graph_bs"),
    _base(_PARAMS, "AdaptiveSpeculativeParams.cuda_graph_bs_for_step", "self", "step"),
    _base(_PARAMS, "AdaptiveSpeculativeParams.get_steps_for_batch", "self", "batch_size"),
    _base(
        _PARAMS,
        "AdaptiveSpeculativeParams.on_verify_complete",
        "self",
        "num_correct_drafts_per_req",
        "batch_size",
    ),
    _base(_PARAMS, "adaptive_unsupported_reason", "server_args"),
    _base(_EAGLE, "EAGLEWorkerV2.apply_runtime_state", "self", "state"),
    _base(
        _EAGLE,
        "EAGLEWorkerV2.build_adaptive_runtime_state",
        "self",
        "speculative_num_steps",
        "speculative_num_draft_tokens",
    ),
    Fact(
        feature=BASE,
        file=_EAGLE,
        symbol="EAGLEWorkerV2.forward_batch_generation",
        order=("activate_step_by_batch", "_build_trivial_verify_input", "draft", "verify"),
    ),
    Fact(
        feature=STANDALONE,
        file="speculative/standalone_worker_v2.py",
        symbol="StandaloneWorkerV2.__init__",
        parameters=("self", "server_args", "target_worker"),
    ),
    Fact(
        feature=STANDALONE,
        file="speculative/standalone_worker_v2.py",
        symbol="StandaloneWorkerV2",
        attributes=("adaptive_controller", "speculative_num_steps", "topk"),
    ),
    Fact(
        feature=STANDALONE,
        file=_PARAMS,
        symbol="resolve_candidate_steps_from_config",
        parameters=("cfg_path",),
    ),
    Fact(
        feature=NGRAM,
        file="speculative/spec_info.py",
        symbol="SpeculativeAlgorithm.register",
        parameters=("cls", "name", "supports_overlap", "spec_class"),
    ),
    Fact(
        feature=NGRAM,
        file=_REGISTRY,
        symbol="CustomSpecAlgo.handle_server_args",
        parameters=("self", "server_args"),
    ),
    Fact(
        feature=NGRAM,
        file="arg_groups/speculative_hook.py",
        symbol="_handle_ngram",
        parameters=("server_args",),
    ),
    *(
        Fact(feature=NGRAM, file=_NGRAM, symbol=f"NGRAMWorker.{name}", parameters=parameters)
        for name, parameters in (
            ("alloc_memory_pool", ("self",)),
            ("_init_preallocated_tensors", ("self",)),
            ("_prepare_draft_tokens", ("self", "batch")),
            ("forward_batch_generation", ("self", "batch")),
        )
    ),
    Fact(
        feature=NGRAM,
        file=_NGRAM,
        symbol="NGRAMWorker._init_preallocated_tensors",
        attributes=(
            "draft_token_num",
            "draft_tokens",
            "draft_tokens_batch",
            "positions",
            "positions_batch",
            "retrieve_indexes",
            "retrieve_indexes_batch",
            "retrieve_next_sibling",
            "retrieve_next_sibling_batch",
            "retrieve_next_token",
            "retrieve_next_token_batch",
            "tree_mask",
            "tree_mask_batch",
        ),
    ),
    Fact(
        feature=NGRAM,
        file="runtime_context.py",
        symbol="RuntimeContext.override",
        parameters=("self", "source"),
    ),
    Fact(
        feature=CONFIDENCE,
        file=_EAGLE,
        symbol="EagleDraftWorker._draft_extend_for_decode",
        parameters=("self", "batch", "batch_result"),
    ),
    Fact(
        feature=CONFIDENCE,
        file=_EAGLE,
        symbol="EagleDraftWorker._draft_extend_for_decode",
        attributes=("draft_runner", "next_token_logits", "cuda_graph_runner_for_draft_extend"),
    ),
    Fact(
        feature=RUNTIME_SWITCH,
        file="managers/scheduler_components/internal_state.py|" + _SCHEDULER,
        symbol="SchedulerInternalStateController.set_internal_state|Scheduler.set_internal_state",
        parameters=("self", "recv_req"),
    ),
    Fact(
        feature=OVERRIDES,
        file="runtime_context.py",
        symbol="RuntimeContext",
        attributes=("_overrides_log",),
    ),
)


class Mismatch(msgspec.Struct, frozen=True):
    """A fact that does not hold."""

    feature: str
    """What does not work without it."""
    text: str
    """One line: file and symbol."""


def mismatches(srt: Path) -> list[Mismatch]:
    """The facts that do not hold in a source tree; empty if all do.

    Args:
        srt: the folder ``sglang/srt``.
    """
    return [
        Mismatch(fact.feature, f"{fact.describe()} [{fact.file}]")
        for fact in FACTS
        if not _holds(srt, fact)
    ]


def installed_folder() -> Path | None:
    """The folder ``sglang/srt`` of the installed SGLang, without importing it."""
    try:
        spec = importlib.util.find_spec("sglang")
    except (ImportError, ValueError):
        return None
    for folder in (spec.submodule_search_locations or []) if spec else []:
        return Path(folder) / "srt"
    return None


def available_features(srt: Path) -> frozenset[str]:
    """What works with this source. Raises UnsupportedEngineError, one line, if nothing does."""
    found = mismatches(srt)
    missing = [each.text for each in found if each.feature == BASE]
    if missing:
        raise UnsupportedEngineError(
            f"SGLang has changed where we hook in ({'; '.join(missing[:3])}); install a known "
            "version (see docs/sglang.md) or unset ADAPTIVE_SPEC_CONFIG"
        )
    lost = {each.feature for each in found}
    return frozenset({fact.feature for fact in FACTS} - lost)


def _holds(srt: Path, fact: Fact) -> bool:
    for file, symbol in zip(
        fact.file.split("|"), fact.symbol.split("|"), strict="|" in fact.symbol
    ):
        node = _find(_parse(srt / file), symbol)
        if node is not None and _node_fits(node, fact):
            return True
    return False


def _node_fits(node: ast.AST, fact: Fact) -> bool:
    if fact.attributes:
        return set(fact.attributes) <= set(_names(node))
    if fact.order:
        calls = iter(_calls(node))
        return all(any(call == wanted for call in calls) for wanted in fact.order)
    if not isinstance(node, ast.FunctionDef):
        return False
    arguments = node.args
    given = {a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    return set(fact.parameters) <= given


def _find(tree: ast.AST | None, symbol: str) -> ast.AST | None:
    """The class or function of this dotted name."""
    node: ast.AST | None = tree
    for part in symbol.split("."):
        if node is None:
            return None
        node = next(
            (
                child
                for child in ast.iter_child_nodes(node)
                if isinstance(child, ast.ClassDef | ast.FunctionDef) and child.name == part
            ),
            None,
        )
    return node


def _names(node: ast.AST) -> Iterator[str]:
    for child in ast.walk(node):
        if isinstance(child, ast.Attribute):
            yield child.attr
        elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            yield child.id


def _calls(node: ast.AST) -> list[str]:
    """Names that are called, in the order of the source."""
    found = [
        (child.lineno, child.col_offset, name)
        for child in ast.walk(node)
        if isinstance(child, ast.Call)
        and (name := getattr(child.func, "attr", getattr(child.func, "id", "")))
    ]
    return [name for *_, name in sorted(found)]


@functools.lru_cache(maxsize=32)
def _parse(file: Path) -> ast.AST | None:
    try:
        return ast.parse(file.read_text(encoding="utf-8"))
    except (OSError, SyntaxError):
        return None
