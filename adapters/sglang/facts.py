"""Facts of SGLang that the adapter relies on: names, signatures, order of calls.

Facts about upstream in our own words, by what does not work without them. `source_check` looks for
them in a source tree.
"""

from __future__ import annotations

from adaptive_spec.engines.source_check import EngineSource
from adaptive_spec.engines.source_facts import Fact, Function, Names, Order

BASE = "base"
STANDALONE, NGRAM, CONFIDENCE = "STANDALONE", "NGRAM", "confidence"
RUNTIME_SWITCH, OVERRIDES = "run-time switch", "overrides"
PLANNING_AHEAD = "planning ahead"
RESOLVED = "what SGLang resolves itself"

_REGISTRY = "srt/plugins/hook_registry.py"
_SCHEDULER = "srt/managers/scheduler.py"
_INTERNAL_STATE = "srt/managers/scheduler_components/internal_state.py"
_RESULTS = "srt/managers/scheduler_components/batch_result_processor.py"
_RESOLVE = "SchedulerBatchResultProcessor._resolve_spec_v2_tokens"
_BATCH = "srt/managers/schedule_batch.py"
_STATE = "srt/speculative/adaptive_runtime_state.py"
_PARAMS = "srt/speculative/adaptive_spec_params.py"
_EAGLE = "srt/speculative/eagle_worker_v2.py"
_EXTEND = "EagleDraftWorker._draft_extend_for_decode"
_STANDALONE = "srt/speculative/standalone_worker_v2.py"
_NGRAM = "srt/speculative/ngram_worker.py"
_CONTEXT = "srt/runtime_context.py"


def _function(
    file: str, name: str, *parameters: str, why: str, more: tuple[str, ...] | None = ()
) -> Function:
    return Function(files=(file,), name=name, parameters=parameters, more=more, why=why)


def _names(file: str, within: str, *names: str, why: str) -> Names:
    return Names(files=(file,), within=within, names=names, why=why)


def _params(name: str, *parameters: str) -> Function:
    why = "SGLang's own schedule, which we stand in for and ask"
    return _function(_PARAMS, f"AdaptiveSpeculativeParams.{name}", "self", *parameters, why=why)


def _ngram(name: str, *parameters: str, more: tuple[str, ...] | None = ()) -> Function:
    why = "our worker overrides or calls it"
    return _function(_NGRAM, f"NGRAMWorker.{name}", "self", *parameters, more=more, why=why)


FACTS: dict[str, tuple[Fact, ...]] = {
    BASE: (
        _function(
            _REGISTRY,
            "HookRegistry.register",
            *("cls", "target", "hook", "hook_type"),
            why="puts our hooks in",
        ),
        _function(_REGISTRY, "HookRegistry.apply_hooks", "cls", why="when hooks are applied"),
        _names(_REGISTRY, "HookType", "BEFORE", "AFTER", "AROUND", why="kinds of hooks"),
        _function(
            *(_SCHEDULER, "Scheduler.__init__", "self", "server_args"),
            more=None,
            why="after it we attach",
        ),
        _function(
            *(_SCHEDULER, "Scheduler.run_batch", "self", "batch"),
            more=None,
            why="before it we decide",
        ),
        _function(
            *(_SCHEDULER, "Scheduler.process_batch_result", "self", "batch", "result"),
            why="after it we learn",
        ),
        _names(
            _SCHEDULER,
            "Scheduler",
            "draft_worker",
            "enable_overlap",
            "max_total_num_tokens",
            "running_batch",
            "spec_algorithm",
            "token_to_kv_pool_allocator",
            "tp_cpu_group",
            "tree_cache",
            "waiting_queue",
            why="the state a decision is made from, and the other ranks",
        ),
        _function(_RESULTS, _RESOLVE, "self", "result", "batch", why="before it results are read"),
        _names(
            _RESULTS,
            _RESOLVE,
            *("accept_lens", "num_correct_drafts_per_req_cpu", "is_retracted", "finished"),
            why="which requests count, and what was accepted",
        ),
        _names(
            _BATCH,
            "Req",
            *("rid", "output_ids", "origin_input_ids", "sampling_params", "is_retracted"),
            why="each request's limits",
        ),
        _function(_BATCH, "Req.finished", "self", why="when a request is forgotten"),
        _names(
            "srt/sampling/sampling_params.py",
            "SamplingParams",
            *("custom_params", "max_new_tokens", "temperature", "top_k"),
            why="hints and limits of a request",
        ),
        _names(
            "srt/managers/utils.py",
            "GenerationBatchResult",
            *("accept_lens", "speculative_num_draft_tokens"),
            why="what was accepted, and the K that ran",
        ),
        _function(
            *(_STATE, "AdaptiveController.__init__", "self", "worker"),
            more=None,
            why="after it SGLang asks us for K",
        ),
        _function(
            *(_STATE, "AdaptiveController.activate_step_by_batch", "self", "batch_size"),
            why="asks for K at each decode step",
        ),
        _function(
            *(_STATE, "AdaptiveController.init_states", "self", "cuda_graph_bs"),
            why="builds a state for each K",
        ),
        _names(_STATE, "AdaptiveController", "params", "worker", why="who is asked for K"),
        _params("candidate_steps"),
        _params("set_cuda_graph_bs", "cuda_graph_bs"),
        _params("cuda_graph_bs_for_step", "step"),
        _params("get_steps_for_batch", "batch_size"),
        _params("on_verify_complete", "num_correct_drafts_per_req", "batch_size"),
        _function(
            *(_PARAMS, "adaptive_unsupported_reason", "server_args"),
            why="why SGLang has no adaptive K here",
        ),
        _function(
            *(_EAGLE, "EAGLEWorkerV2.apply_runtime_state", "self", "state"),
            why="what a change of K comes to",
        ),
        _function(
            _EAGLE,
            "EAGLEWorkerV2.build_adaptive_runtime_state",
            *("self", "speculative_num_steps", "speculative_num_draft_tokens"),
            more=("cuda_graph_bs",),
            why="each K has a state, with graphs of its own",
        ),
        Order(
            file=_EAGLE,
            function="EAGLEWorkerV2.forward_batch_generation",
            calls=("activate_step_by_batch", "_build_trivial_verify_input", "draft", "verify"),
            why="K changes before drafting; K = 0 drafts nothing",
        ),
    ),
    STANDALONE: (
        _function(
            *(_STANDALONE, "StandaloneWorkerV2.__init__", "self", "server_args"),
            more=None,
            why="after it the worker gets a controller",
        ),
        _names(
            _STANDALONE,
            "StandaloneWorkerV2",
            *("adaptive_controller", "speculative_num_steps", "topk"),
            why="where EAGLE's worker keeps its controller",
        ),
        _names(_STATE, "AdaptiveController", "_states", why="made without its constructor"),
        _function(
            *(_PARAMS, "resolve_candidate_steps_from_config", "cfg_path"),
            why="the ladder of EAGLE",
        ),
    ),
    NGRAM: (
        _function(
            *("srt/speculative/spec_info.py", "SpeculativeAlgorithm.register", "cls", "name"),
            why="ADAPTIVE_NGRAM is registered with it",
        ),
        _names(
            "srt/speculative/spec_info.py",
            "SpeculativeAlgorithm.register",
            *("supports_overlap", "spec_class"),
            why="options of the registration",
        ),
        _function(
            "srt/speculative/spec_registry.py",
            "CustomSpecAlgo.handle_server_args",
            *("self", "server_args"),
            why="our algorithm overrides it",
        ),
        _function(
            *("srt/arg_groups/speculative_hook.py", "_handle_ngram", "server_args"),
            why="arguments are resolved as NGRAM's",
        ),
        _ngram("alloc_memory_pool"),
        _ngram("_init_preallocated_tensors"),
        _ngram("_prepare_draft_tokens", "batch"),
        _ngram("forward_batch_generation", "batch", more=None),
        _names(
            _NGRAM,
            "NGRAMWorker._init_preallocated_tensors",
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
            why="the buffers of one width",
        ),
        _function(
            *(_CONTEXT, "RuntimeContext.override", "self", "source"),
            why="tells SGLang the width",
        ),
        _function(_CONTEXT, "get_context", why="where the width is told"),
    ),
    CONFIDENCE: (
        _function(
            *(_EAGLE, _EXTEND, "self", "batch", "batch_result"),
            why="the drafter's logits exist within it",
        ),
        _names(
            _EAGLE,
            _EXTEND,
            *("draft_runner", "next_token_logits", "cuda_graph_runner_for_draft_extend"),
            why="the drafter's logits",
        ),
    ),
    PLANNING_AHEAD: (
        _function(
            *(_EAGLE, "EAGLEWorkerV2.forward_batch_generation", "self", "batch"),
            more=None,
            why="after it the device has the step",
        ),
        Order(
            file=_SCHEDULER,
            function="Scheduler.run_batch",
            calls=("forward_batch_generation", "to"),
            why="the plain loop waits for lengths only then",
        ),
    ),
    RUNTIME_SWITCH: (
        Function(
            files=(_INTERNAL_STATE, _SCHEDULER),
            name="*.set_internal_state",
            parameters=("self", "recv_req"),
            why="carries the operator's switch to every rank",
        ),
    ),
    RESOLVED: (_function(_CONTEXT, "get_spec", why="says whether drafts are sampled"),),
    OVERRIDES: (
        _names(_CONTEXT, "RuntimeContext", "_overrides_log", why="grows with each change of K"),
    ),
}
"""What does not work without them -> facts."""

SOURCE = EngineSource(
    title="SGLang",
    package="sglang",
    landmark="srt/managers",
    facts=FACTS,
    bases=(BASE,),
    go_on="unset ADAPTIVE_SPEC_CONFIG",
)
