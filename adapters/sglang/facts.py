"""Facts of SGLang that the adapter relies on: names, signatures, order of calls.

They are grouped by the feature that needs them, and looked up in SGLang's source at each start.
"""

from __future__ import annotations

from adaptive_spec.engines.source_check import EngineSource
from adaptive_spec.engines.source_facts import Fact, function, names, order

BASE = "base"
STANDALONE, TREES, NGRAM = "STANDALONE", "token trees", "NGRAM"
ATTENTION_DP = "attention DP"
CONFIDENCE = "confidence"
PLANNING_AHEAD, HTTP, OVERRIDES = "planning ahead", "status and switch over HTTP", "overrides"
RESOLVED = "what SGLang resolves itself"

_REGISTRY = "srt/plugins/hook_registry.py"
_SCHEDULER = "srt/managers/scheduler.py"
_MESSAGES = "srt/managers/io_struct.py"
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
_WORKER = "srt/speculative/base_spec_worker.py"
_MODEL = "srt/model_executor/model_runner.py"
_GRAPHS = "srt/model_executor/runner/decode_cuda_graph_runner.py"
_CONTEXT = "srt/runtime_context.py"
_SIZES = "srt/mem_cache/allocation_sizing.py"
_GATHER = "srt/managers/scheduler_components/dp_attn.py"


_OWN = "SGLang's own schedule, which we stand in for and ask"
_OURS = "our worker overrides or calls it"

FACTS: dict[str, tuple[Fact, ...]] = {
    BASE: (
        function(
            _REGISTRY, "HookRegistry.register(cls, target, hook, hook_type)", "adds our hooks"
        ),
        function(_REGISTRY, "HookRegistry.apply_hooks(cls)", "when hooks are applied"),
        names(_REGISTRY, "HookType", "BEFORE AFTER AROUND", "kinds of hooks"),
        function(_SCHEDULER, "Scheduler.__init__(self, server_args, ...)", "after it we attach"),
        function(_SCHEDULER, "Scheduler.run_batch(self, batch, ...)", "before it we decide"),
        function(
            _SCHEDULER, "Scheduler.process_batch_result(self, batch, result)", "after it we learn"
        ),
        names(
            _SCHEDULER,
            "Scheduler",
            "draft_worker enable_overlap max_total_num_tokens running_batch spec_algorithm "
            "token_to_kv_pool_allocator tp_cpu_group tree_cache waiting_queue",
            "the state a decision is made from, and the other ranks",
        ),
        function(_RESULTS, f"{_RESOLVE}(self, result, batch)", "before it results are read"),
        names(
            _RESULTS,
            _RESOLVE,
            "accept_lens num_correct_drafts_per_req_cpu is_retracted finished",
            "which requests count, and what was accepted",
        ),
        names(
            _BATCH,
            "Req",
            "rid output_ids origin_input_ids sampling_params is_retracted",
            "each request's limits",
        ),
        function(_BATCH, "Req.finished(self)", "when a request is forgotten"),
        names(
            "srt/sampling/sampling_params.py",
            "SamplingParams",
            "custom_params max_new_tokens temperature top_k",
            "hints and limits of a request",
        ),
        names(
            "srt/managers/utils.py",
            "GenerationBatchResult",
            "accept_lens speculative_num_draft_tokens",
            "what was accepted, and the K that ran",
        ),
        function(
            _STATE,
            "AdaptiveController.__init__(self, worker, ...)",
            "after it SGLang asks us for K",
        ),
        function(
            _STATE,
            "AdaptiveController.activate_step_by_batch(self, batch_size)",
            "asks for K at each decode step",
        ),
        function(
            _STATE,
            "AdaptiveController.init_states(self, cuda_graph_bs)",
            "builds a state for each K",
        ),
        names(_STATE, "AdaptiveController", "params worker", "who is asked for K"),
        function(_PARAMS, "AdaptiveSpeculativeParams.candidate_steps(self)", _OWN),
        function(_PARAMS, "AdaptiveSpeculativeParams.set_cuda_graph_bs(self, cuda_graph_bs)", _OWN),
        function(_PARAMS, "AdaptiveSpeculativeParams.cuda_graph_bs_for_step(self, step)", _OWN),
        function(_PARAMS, "AdaptiveSpeculativeParams.get_steps_for_batch(self, batch_size)", _OWN),
        function(
            _PARAMS,
            "AdaptiveSpeculativeParams.on_verify_complete"
            "(self, num_correct_drafts_per_req, batch_size)",
            _OWN,
        ),
        function(
            _PARAMS, "adaptive_unsupported_reason(server_args)", "why SGLang has no adaptive K here"
        ),
        function(
            _EAGLE, "EAGLEWorkerV2.apply_runtime_state(self, state)", "what a change of K comes to"
        ),
        function(
            _EAGLE,
            "EAGLEWorkerV2.build_adaptive_runtime_state"
            "(self, speculative_num_steps, speculative_num_draft_tokens, ...)",
            "each K has a state, with graphs of its own",
        ),
        order(
            _EAGLE,
            "EAGLEWorkerV2.forward_batch_generation",
            "activate_step_by_batch _build_trivial_verify_input draft verify",
            "K changes before drafting; K = 0 drafts nothing",
        ),
    ),
    STANDALONE: (
        function(
            _STANDALONE,
            "StandaloneWorkerV2.__init__(self, server_args, ...)",
            "after it the worker gets a controller",
        ),
        names(
            _STANDALONE,
            "StandaloneWorkerV2",
            "adaptive_controller speculative_num_steps topk",
            "where EAGLE's worker keeps its controller",
        ),
        names(_STATE, "AdaptiveController", "_states", "made without its constructor"),
        function(_PARAMS, "resolve_candidate_steps_from_config(cfg_path)", "the ladder of EAGLE"),
    ),
    TREES: (
        function(
            _EAGLE,
            "EAGLEWorkerV2.__init__(self, server_args, ...)",
            "after it the worker gets a controller",
        ),
        names(
            _EAGLE,
            "EAGLEWorkerV2",
            "adaptive_controller speculative_algorithm speculative_num_draft_tokens "
            "speculative_num_steps topk",
            "the launch's tree",
        ),
        order(
            _EAGLE,
            "EAGLEWorkerV2.init_cuda_graphs",
            "register init_states",
            "a state for each depth, whoever has given the controller",
        ),
        names(
            _SIZES,
            "get_alloc_len_per_decode",
            "speculative_eagle_topk speculative_num_steps",
            "KV slots that a step may draft into",
        ),
        function(_CONTEXT, "RuntimeContext.override(self, source)", "keeps that reserve"),
        names(_STATE, "AdaptiveController", "_states", "made without its constructor"),
        function(_PARAMS, "resolve_candidate_steps_from_config(cfg_path)", "the depths"),
    ),
    ATTENTION_DP: (
        names(
            _EAGLE,
            "EAGLEWorkerV2.forward_batch_generation",
            "activate_step_by_batch is_extend is_extend_in_batch",
            "in which steps all replicas draft",
        ),
        names(
            _GATHER,
            "prepare_mlp_sync_batch_raw",
            "get_idle_batch is_extend_in_batch need_idle_batch",
            "a replica without requests steps along",
        ),
        function(
            _SCHEDULER, "Scheduler.run_batch(self, batch, ...)", "before it all of them agree"
        ),
        function(_CONTEXT, "get_parallel()", "this rank's place in its replica"),
    ),
    NGRAM: (
        function(_INFO, "SpeculativeAlgorithm.register(cls, name)", "registers ADAPTIVE_NGRAM"),
        names(
            _INFO,
            "SpeculativeAlgorithm.register",
            "supports_overlap spec_class",
            "options of the registration",
        ),
        function(
            _ALGORITHMS,
            "CustomSpecAlgo.handle_server_args(self, server_args)",
            "our algorithm overrides it",
        ),
        function(
            "srt/arg_groups/speculative_hook.py",
            "_handle_ngram(server_args)",
            "arguments are resolved as NGRAM's",
        ),
        function(_NGRAM, "NGRAMWorker.alloc_memory_pool(self)", _OURS),
        function(_WORKER, "BaseSpecWorker.init_cuda_graphs(self)", _OURS),
        function(
            _MODEL,
            "ModelRunner._get_attention_backend(self, init_new_workspace)",
            "each width has a backend",
        ),
        names(
            _MODEL,
            "ModelRunner",
            "attn_backend decode_cuda_graph_runner init_new_workspace",
            "what a width runs with",
        ),
        names(
            _GRAPHS,
            "DecodeCudaGraphRunner.__init__",
            "attn_backend captured_req_width speculative_num_draft_tokens",
            "each width has graphs",
        ),
        function(_NGRAM, "NGRAMWorker._init_preallocated_tensors(self)", _OURS),
        function(_NGRAM, "NGRAMWorker._prepare_draft_tokens(self, batch)", _OURS),
        function(_NGRAM, "NGRAMWorker.forward_batch_generation(self, batch, ...)", _OURS),
        names(
            _NGRAM,
            "NGRAMWorker._init_preallocated_tensors",
            "draft_token_num draft_tokens draft_tokens_batch positions positions_batch "
            "retrieve_indexes retrieve_indexes_batch retrieve_next_sibling "
            "retrieve_next_sibling_batch retrieve_next_token retrieve_next_token_batch "
            "tree_mask tree_mask_batch",
            "the buffers of one width",
        ),
        function(_CONTEXT, "RuntimeContext.override(self, source)", "tells SGLang the width"),
        function(_CONTEXT, "get_context()", "where the width is told"),
    ),
    CONFIDENCE: (
        function(
            _EAGLE, f"{_EXTEND}(self, batch, batch_result)", "the drafter's logits exist within it"
        ),
        names(
            _EAGLE,
            _EXTEND,
            "draft_runner next_token_logits cuda_graph_runner_for_draft_extend",
            "the drafter's logits",
        ),
    ),
    PLANNING_AHEAD: (
        function(
            _EAGLE,
            "EAGLEWorkerV2.forward_batch_generation(self, batch, ...)",
            "after it the device has the step",
        ),
        order(
            _SCHEDULER,
            "Scheduler.run_batch",
            "forward_batch_generation to",
            "the plain loop waits for lengths only then",
        ),
    ),
    HTTP: (
        function(
            "srt/server_args.py",
            "ServerArgs.check_server_args(self)",
            "after it the HTTP server gets our routes",
        ),
        order(
            "srt/entrypoints/engine.py",
            "Engine._launch_subprocesses",
            "load_plugins check_server_args",
            "the process that serves has loaded plugins by then",
        ),
        names(
            "srt/entrypoints/http_server.py",
            "",
            "app get_global_state",
            "where the routes go, and the way to the schedulers",
        ),
        names(
            "srt/managers/tokenizer_control_mixin.py",
            "TokenizerControlMixin.get_internal_state",
            "auto_create_handle_loop get_internal_state_communicator internal_state",
            "how SGLang asks its schedulers",
        ),
        names(_MESSAGES, "BaseReq", "rid", "carries what is asked"),
        names(_MESSAGES, "GetInternalStateReqOutput", "internal_state", "carries the answer"),
        function(
            f"{_INTERNAL_STATE} {_SCHEDULER}",
            "*.get_internal_state(self, recv_req)",
            "answers in the thread that schedules",
        ),
    ),
    RESOLVED: (function(_CONTEXT, "get_spec()", "says whether drafts are sampled"),),
    OVERRIDES: (
        names(_CONTEXT, "RuntimeContext", "_overrides_log", "grows with each change of K"),
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
