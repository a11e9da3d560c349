"""What is relied on in SGLang: symbols, parameters, order of calls. Looked up by `signatures`."""

from __future__ import annotations

import msgspec

BASE = "base"
"""Without it nothing is switched on."""
STANDALONE, NGRAM, CONFIDENCE = "STANDALONE", "NGRAM", "confidence"
RUNTIME_SWITCH, OVERRIDES = "run-time switch", "overrides"
RESOLVED = "what SGLang resolves itself"


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
    Fact(feature=STANDALONE, file=_STATE, symbol="AdaptiveController", attributes=("_states",)),
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
    Fact(feature=NGRAM, file="runtime_context.py", symbol="get_context"),
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
    Fact(feature=RESOLVED, file="runtime_context.py", symbol="get_spec"),
    Fact(
        feature=OVERRIDES,
        file="runtime_context.py",
        symbol="RuntimeContext",
        attributes=("_overrides_log",),
    ),
)
