"""Facts of SGLang that the adapter relies on: names, signatures, order of calls.

They are grouped by the feature that needs them, and looked up in SGLang's source at each start.
"""

from __future__ import annotations

from adaptive_spec.engines.source_check import EngineSource
from adaptive_spec.engines.source_facts import Fact, Function, Names, Order

BASE = "base"
STANDALONE, NGRAM, CONFIDENCE = "STANDALONE", "NGRAM", "confidence"
PLANNING_AHEAD, RUNTIME_SWITCH, OVERRIDES = "planning ahead", "run-time switch", "overrides"
RESOLVED = "what SGLang resolves itself"

_REGISTRY = "srt/plugins/hook_registry.py"
_SCHEDULER = "srt/managers/scheduler.py"
_INTERNAL_STATE = "srt/managers/scheduler_components/internal_state.py"
_RESULTS = "srt/managers/scheduler_components/batch_result_processor.py"
_RESOLVE = "SchedulerBatchResultProcessor._resolve_spec_v2_tokens"
_BATCH = "srt/managers/schedule_batch.py"
_STATE = "srt/speculative/adaptive_runtime_state.py"
_PARAMS = "srt/speculative/adaptive_spec_params.py"
_INFO = "srt/speculative/spec_info.py"
_ALGORITHMS = "srt/speculative/spec_registry.py"
_EAGLE = "srt/speculative/eagle_worker_v2.py"
_EXTEND = "EagleDraftWorker._draft_extend_for_decode"
_STANDALONE = "srt/speculative/standalone_worker_v2.py"
_NGRAM = "srt/speculative/ngram_worker.py"
_CONTEXT = "srt/runtime_context.py"


def _call(file: str, signature: str, why: str, *other_files: str) -> Function:
    """Return the fact of a signature; after ``...`` the function may require anything."""
    name, _, listed = signature.removesuffix(")").partition("(")
    parameters = tuple(listed.split(", ")) if listed else ()
    more = None if parameters[-1:] == ("...",) else ()
    parameters = tuple(one for one in parameters if one != "...")
    return Function(
        files=(file, *other_files), name=name, parameters=parameters, more=more, why=why
    )


def _names(file: str, within: str, names: str, why: str) -> Names:
    return Names(files=(file,), within=within, names=tuple(names.split()), why=why)


_OWN = "SGLang's own schedule, which we stand in for and ask"
_OURS = "our worker overrides or calls it"

FACTS: dict[str, tuple[Fact, ...]] = {
    BASE: (
        _call(_REGISTRY, "HookRegistry.register(cls, target, hook, hook_type)", "adds our hooks"),
        _call(_REGISTRY, "HookRegistry.apply_hooks(cls)", "when hooks are applied"),
        _names(_REGISTRY, "HookType", "BEFORE AFTER AROUND", "kinds of hooks"),
        _call(_SCHEDULER, "Scheduler.__init__(self, server_args, ...)", "after it we attach"),
        _call(_SCHEDULER, "Scheduler.run_batch(self, batch, ...)", "before it we decide"),
        _call(
            _SCHEDULER, "Scheduler.process_batch_result(self, batch, result)", "after it we learn"
        ),
        _names(
            _SCHEDULER,
            "Scheduler",
            "draft_worker enable_overlap max_total_num_tokens running_batch spec_algorithm "
            "token_to_kv_pool_allocator tp_cpu_group tree_cache waiting_queue",
            "the state a decision is made from, and the other ranks",
        ),
        _call(_RESULTS, f"{_RESOLVE}(self, result, batch)", "before it results are read"),
        _names(
            _RESULTS,
            _RESOLVE,
            "accept_lens num_correct_drafts_per_req_cpu is_retracted finished",
            "which requests count, and what was accepted",
        ),
        _names(
            _BATCH,
            "Req",
            "rid output_ids origin_input_ids sampling_params is_retracted",
            "each request's limits",
        ),
        _call(_BATCH, "Req.finished(self)", "when a request is forgotten"),
        _names(
            "srt/sampling/sampling_params.py",
            "SamplingParams",
            "custom_params max_new_tokens temperature top_k",
            "hints and limits of a request",
        ),
        _names(
            "srt/managers/utils.py",
            "GenerationBatchResult",
            "accept_lens speculative_num_draft_tokens",
            "what was accepted, and the K that ran",
        ),
        _call(
            _STATE,
            "AdaptiveController.__init__(self, worker, ...)",
            "after it SGLang asks us for K",
        ),
        _call(
            _STATE,
            "AdaptiveController.activate_step_by_batch(self, batch_size)",
            "asks for K at each decode step",
        ),
        _call(
            _STATE,
            "AdaptiveController.init_states(self, cuda_graph_bs)",
            "builds a state for each K",
        ),
        _names(_STATE, "AdaptiveController", "params worker", "who is asked for K"),
        _call(_PARAMS, "AdaptiveSpeculativeParams.candidate_steps(self)", _OWN),
        _call(_PARAMS, "AdaptiveSpeculativeParams.set_cuda_graph_bs(self, cuda_graph_bs)", _OWN),
        _call(_PARAMS, "AdaptiveSpeculativeParams.cuda_graph_bs_for_step(self, step)", _OWN),
        _call(_PARAMS, "AdaptiveSpeculativeParams.get_steps_for_batch(self, batch_size)", _OWN),
        _call(
            _PARAMS,
            "AdaptiveSpeculativeParams.on_verify_complete"
            "(self, num_correct_drafts_per_req, batch_size)",
            _OWN,
        ),
        _call(
            _PARAMS, "adaptive_unsupported_reason(server_args)", "why SGLang has no adaptive K here"
        ),
        _call(
            _EAGLE, "EAGLEWorkerV2.apply_runtime_state(self, state)", "what a change of K comes to"
        ),
        _call(
            _EAGLE,
            "EAGLEWorkerV2.build_adaptive_runtime_state"
            "(self, speculative_num_steps, speculative_num_draft_tokens, ...)",
            "each K has a state, with graphs of its own",
        ),
        Order(
            file=_EAGLE,
            function="EAGLEWorkerV2.forward_batch_generation",
            calls=("activate_step_by_batch", "_build_trivial_verify_input", "draft", "verify"),
            why="K changes before drafting; K = 0 drafts nothing",
        ),
    ),
    STANDALONE: (
        _call(
            _STANDALONE,
            "StandaloneWorkerV2.__init__(self, server_args, ...)",
            "after it the worker gets a controller",
        ),
        _names(
            _STANDALONE,
            "StandaloneWorkerV2",
            "adaptive_controller speculative_num_steps topk",
            "where EAGLE's worker keeps its controller",
        ),
        _names(_STATE, "AdaptiveController", "_states", "made without its constructor"),
        _call(_PARAMS, "resolve_candidate_steps_from_config(cfg_path)", "the ladder of EAGLE"),
    ),
    NGRAM: (
        _call(_INFO, "SpeculativeAlgorithm.register(cls, name)", "registers ADAPTIVE_NGRAM"),
        _names(
            _INFO,
            "SpeculativeAlgorithm.register",
            "supports_overlap spec_class",
            "options of the registration",
        ),
        _call(
            _ALGORITHMS,
            "CustomSpecAlgo.handle_server_args(self, server_args)",
            "our algorithm overrides it",
        ),
        _call(
            "srt/arg_groups/speculative_hook.py",
            "_handle_ngram(server_args)",
            "arguments are resolved as NGRAM's",
        ),
        _call(_NGRAM, "NGRAMWorker.alloc_memory_pool(self)", _OURS),
        _call(_NGRAM, "NGRAMWorker._init_preallocated_tensors(self)", _OURS),
        _call(_NGRAM, "NGRAMWorker._prepare_draft_tokens(self, batch)", _OURS),
        _call(_NGRAM, "NGRAMWorker.forward_batch_generation(self, batch, ...)", _OURS),
        _names(
            _NGRAM,
            "NGRAMWorker._init_preallocated_tensors",
            "draft_token_num draft_tokens draft_tokens_batch positions positions_batch "
            "retrieve_indexes retrieve_indexes_batch retrieve_next_sibling "
            "retrieve_next_sibling_batch retrieve_next_token retrieve_next_token_batch "
            "tree_mask tree_mask_batch",
            "the buffers of one width",
        ),
        _call(_CONTEXT, "RuntimeContext.override(self, source)", "tells SGLang the width"),
        _call(_CONTEXT, "get_context()", "where the width is told"),
    ),
    CONFIDENCE: (
        _call(
            _EAGLE, f"{_EXTEND}(self, batch, batch_result)", "the drafter's logits exist within it"
        ),
        _names(
            _EAGLE,
            _EXTEND,
            "draft_runner next_token_logits cuda_graph_runner_for_draft_extend",
            "the drafter's logits",
        ),
    ),
    PLANNING_AHEAD: (
        _call(
            _EAGLE,
            "EAGLEWorkerV2.forward_batch_generation(self, batch, ...)",
            "after it the device has the step",
        ),
        Order(
            file=_SCHEDULER,
            function="Scheduler.run_batch",
            calls=("forward_batch_generation", "to"),
            why="the plain loop waits for lengths only then",
        ),
    ),
    RUNTIME_SWITCH: (
        _call(
            _INTERNAL_STATE,
            "*.set_internal_state(self, recv_req)",
            "carries the operator's switch to every rank",
            _SCHEDULER,
        ),
    ),
    RESOLVED: (_call(_CONTEXT, "get_spec()", "says whether drafts are sampled"),),
    OVERRIDES: (
        _names(_CONTEXT, "RuntimeContext", "_overrides_log", "grows with each change of K"),
    ),
}
"""Feature -> facts without which it does not work."""

SOURCE = EngineSource(
    title="SGLang",
    package="sglang",
    landmark="srt/managers",
    facts=FACTS,
    bases=(BASE,),
    go_on="unset ADAPTIVE_SPEC_CONFIG",
)
