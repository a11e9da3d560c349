"""Facts of vLLM that the adapter relies on: names, signatures, order of calls.

Facts about upstream in our own words, by what does not work without them. `source_check`
looks for them in a source tree.
"""

from __future__ import annotations

from adaptive_spec.adapters.vllm.worker_facts import (
    OUTPUT,
    SCHEDULER,
    V2,
    WORKER_FACTS,
)
from adaptive_spec.engines.source_check import EngineSource
from adaptive_spec.engines.source_facts import AnyOf, Fact, absent, function, names, order

BASE = "K per request and step"
V2_DEPTH = "draft depth on model runner V2"
LADDER = "captured ladder of K"
VARLEN = "K per request in full graphs"
COLD = "OFF-cold"
V2_COLD = "OFF-cold on model runner V2"
AHEAD = "planning while the device works"
ALONE = "no other controller of the draft length"
SPARSE_MLA = "different K in one batch on sparse MLA models"
RECURRENT = "K = 0 on models with recurrent state"
SWITCH = "run-time switch by endpoint"
WEIGHTS = "news of reloaded weights"

ALL_ENGINES = "reaches every engine"
CLIENT = "v1/engine/core_client.py"
ASYNC_SCHEDULER = "v1/core/sched/async_scheduler.py"

FACTS: dict[str, tuple[Fact, ...]] = {
    BASE: (
        function(
            "engine/arg_utils.py",
            "EngineArgs.create_engine_config(self, usage_context, headless)",
            "the one function that every process which makes a configuration calls",
        ),
        function("plugins/__init__.py", "load_general_plugins()", "how we are loaded"),
        names(
            "config/scheduler.py",
            "SchedulerConfig",
            "async_scheduling max_num_seqs scheduler_cls",
            "names our scheduler and carries our configuration",
        ),
        names(
            "config/vllm.py",
            "VllmConfig",
            "compilation_config kv_transfer_config model_config num_speculative_tokens "
            "parallel_config scheduler_config speculative_config use_v2_model_runner",
            "the configuration is read from it",
        ),
        names(
            "config/speculative.py",
            "SpeculativeConfig",
            "method num_speculative_tokens_per_batch_size parallel_drafting "
            "rejection_sample_method use_gemma4_mtp use_step3p5_mtp",
            "decides whether depth follows, and where we only watch",
        ),
        names(
            "config/model.py",
            "ModelConfig",
            "has_inner_state is_diffusion is_hybrid runner_type",
            "decides where we are inert, or only watch",
        ),
        function(
            SCHEDULER,
            "Scheduler.schedule(self[, throttle_prefills])",
            "drafts are trimmed before it",
        ),
        function(
            SCHEDULER,
            "Scheduler._update_after_schedule(self, scheduler_output)",
            "the draft depth is set before it",
        ),
        function(
            ASYNC_SCHEDULER,
            "AsyncScheduler._update_after_schedule(self, scheduler_output)",
            "makes as many placeholders as will be drafted",
        ),
        function(
            SCHEDULER,
            "Scheduler.update_from_output(self, scheduler_output, model_runner_output)",
            "results are read before it, learned from after it",
        ),
        function(
            SCHEDULER,
            "Scheduler._free_request(self, request[, delay_free_blocks])",
            "the one place where every request ends",
        ),
        function(
            SCHEDULER, "Scheduler.set_pause_state(self, pause_state)", "a pause is no step time"
        ),
        function(SCHEDULER, "Scheduler.shutdown(self)", "buffers are written"),
        order(
            SCHEDULER,
            "Scheduler.schedule",
            "SchedulerOutput _update_after_schedule",
            "the depth can be set in the finished output",
        ),
        names(
            SCHEDULER,
            "Scheduler",
            "block_size cache_config dynamic_sd_lookup kv_cache_manager max_model_len "
            "max_num_running_reqs max_num_scheduled_tokens num_lookahead_tokens num_spec_tokens "
            "num_spec_tokens_to_schedule requests running scheduler_config spec_token_ids "
            "vllm_config waiting",
            "the state a decision is made from, and what it changes",
        ),
        names(
            OUTPUT,
            "SchedulerOutput",
            "num_invalid_spec_tokens num_scheduled_tokens num_spec_tokens_to_schedule "
            "preempted_req_ids scheduled_new_reqs scheduled_spec_decode_tokens "
            "total_num_scheduled_tokens",
            "what really runs in a step",
        ),
        names(
            "v1/outputs.py",
            "ModelRunnerOutput",
            "req_id_to_index sampled_token_ids",
            "what was accepted",
        ),
        names(
            "v1/request.py",
            "Request",
            "is_finished is_prefill_chunk lora_request max_tokens num_computed_tokens "
            "num_output_placeholders num_prompt_tokens num_tokens request_id sampling_params "
            "spec_token_ids use_structured_output",
            "each request's limits, and which of its results count",
        ),
        names(
            "v1/core/kv_cache_manager.py", "", "block_pool coordinator get_blocks", "free KV blocks"
        ),
        names("v1/core/block_pool.py", "", "get_num_free_blocks", "free KV blocks"),
        names(
            "v1/worker/gpu_model_runner.py",
            "",
            "num_spec_tokens_to_schedule",
            "model runner V1 drafts as deep as the scheduler says",
        ),
    ),
    AHEAD: tuple(
        order(
            "v1/engine/core.py",
            f"EngineCore.{loop}",
            "execute_model get_grammar_bitmask update_from_output",
            "the next step is planned there; elsewhere it is planned before it is scheduled",
        )
        for loop in ("step", "step_with_batch_queue")
    ),
    RECURRENT: (
        # vllm#56531 mended both model runners at once; on V2 it has left no name of its own.
        names(
            "v1/worker/gpu_model_runner.py",
            "GPUModelRunner",
            "zero_draft_decode_mask",
            "a step without drafts reads the state that accepted drafts have left",
        ),
    ),
    ALONE: (
        absent(
            "v1/worker/gpu_model_runner.py",
            "",
            "DynamicSDDraftingManager",
            "a manager in the worker that sets the number of drafts itself",
        ),
    ),
    SPARSE_MLA: (
        names(
            "v1/attention/backends/mla/indexer.py",
            "",
            "block_table_width",
            "the indexer's block table is as wide as the runner's (vllm#46074, vllm#50825)",
        ),
    ),
    V2_DEPTH: (
        names(
            f"{V2}/model_runner.py",
            "GPUModelRunner",
            "num_spec_tokens_to_schedule",
            "model runner V2 hands the depth to its speculator, and drops drafts beyond it",
        ),
        names(
            f"{V2}/spec_decode/target_dependent_ar/speculator.py",
            "TargetDependentARSpeculator",
            "num_speculative_tokens _fused_multi_step_decode",
            "the loop of eagle and mtp ends there",
        ),
        names(
            f"{V2}/spec_decode/target_dependent_ar/cudagraph_utils.py",
            "",
            "specialize_spec_tokens num_speculative_tokens_per_batch_size",
            "captures a draft loop for each K of the schedule",
        ),
    ),
    LADDER: (
        function(
            "v1/spec_decode/dynamic/utils.py",
            "build_dynamic_sd_schedule_lookup(num_speculative_tokens_per_batch_size, "
            "vllm_max_batch_size, vllm_num_speculative_tokens)",
            "how vLLM reads the schedule that names the ladder",
        ),
        names(
            f"{V2}/cudagraph_utils.py",
            "CudaGraphManager",
            "num_speculative_tokens_per_batch_size uses_dynamic_speculative_decoding",
            "captures a decode graph for each K of the schedule",
        ),
        names(
            f"{V2}/spec_decode/target_dependent_ar/cudagraph_utils.py",
            "SpeculatorBatchDescriptor",
            "num_speculative_tokens",
            "before it, a schedule ends the capture of a drafter's loop (vllm#48494)",
        ),
    ),
    VARLEN: (
        function(
            "v1/engine/core.py",
            "EngineCore._initialize_kv_caches(self, vllm_config)",
            "workers are armed before it, and asked after it",
        ),
        names("v1/engine/core.py", "EngineCore", "model_executor", "how workers are reached"),
        function(
            "v1/executor/abstract.py",
            "Executor.collective_rpc(self, method, timeout[, args, kwargs, non_block])",
            "calls a function of ours in every worker",
        ),
        function(
            f"{V2}/model_runner.py",
            "GPUModelRunner.initialize_kv_cache(self, kv_cache_config[, is_profiling, "
            "kv_cache_allocation_context])",
            "attention backends are known after it, and nothing is captured",
        ),
        names(
            f"{V2}/model_runner.py",
            "GPUModelRunner",
            "adaptive_verification attn_groups cudagraph_manager decode_query_len kv_cache_config "
            "max_num_reqs model model_state pcp_manager speculator ubatch_runner vllm_config",
            "what decides whether its graphs may take every K",
        ),
        names(
            f"{V2}/model_runner.py",
            "GPUModelRunner.execute_model",
            "max_query_len has_prefill",
            "a batch with a prompt, however short, stays out of these graphs",
        ),
        function(
            f"{V2}/attn_utils.py",
            "get_varlen_cudagraph_unsupported_backend(attn_groups, vllm_config, max_query_len, "
            "checked_layer_names)",
            "vLLM's own answer for an attention backend",
        ),
        names(
            f"{V2}/cudagraph_utils.py",
            "CudaGraphManager",
            "varlen_decode decode_query_len lora_capture_cases cudagraph_mode _init_candidates "
            "_candidates _capture_descs",
            "lists one decode graph per number of tokens",
        ),
        function(
            f"{V2}/cudagraph_utils.py",
            "CudaGraphManager.dispatch(self, num_reqs, num_tokens, uniform_token_count, "
            "num_active_loras, max_query_len[, num_ubatches])",
            "which graphs a worker has is asked of it",
        ),
        names(
            "v1/attention/selector.py",
            "",
            "get_attn_backend",
            "which backends vLLM will choose",
        ),
    ),
    COLD: (
        function(
            "v1/worker/gpu_model_runner.py",
            "GPUModelRunner.propose_draft_token_ids(self, scheduler_output[, sampled_token_ids, "
            "sampling_metadata, hidden_states, sample_hidden_states, aux_hidden_states, "
            "spec_decode_metadata, common_attn_metadata, slot_mappings])",
            "the drafter's pass is left out around it",
        ),
        names(
            "v1/spec_decode/llm_base_proposer.py",
            "",
            "common_attn_metadata num_speculative_tokens _last_draft_probs",
            "the answer of a drafter that does not run",
        ),
    ),
    V2_COLD: (
        function(
            f"{V2}/model_runner.py",
            "GPUModelRunner.sample_tokens(self, grammar_output)",
            "the drafter's passes are left out around it",
        ),
        names(
            f"{V2}/model_runner.py",
            "ExecuteModelState",
            "num_spec_tokens_to_schedule",
            "the step's number of drafts is at hand there",
        ),
        names(
            f"{V2}/spec_decode/speculator.py",
            "DraftModelSpeculator",
            "draft_tokens",
            "the answer of a drafter that does not run",
        ),
    ),
    SWITCH: (
        function("plugins/__init__.py", "load_endpoint_plugins(supported_tasks)", "adds our route"),
        AnyOf(
            facts=(
                names(CLIENT, "", "call_utility_all_async", ALL_ENGINES),
                names(CLIENT, "", "_call_utility_async core_engines", ALL_ENGINES),
            ),
            why=ALL_ENGINES,
        ),
        names("v1/engine/core.py", "EngineCore", "scheduler", "the engine's half of the switch"),
    ),
    WEIGHTS: (
        function(
            "v1/engine/core.py",
            "EngineCore.set_weight_version(self, weight_version)",
            "acceptance is learned anew with other weights",
        ),
    ),
    **WORKER_FACTS,
}
"""What does not work without them -> facts."""

SOURCE = EngineSource(
    title="vLLM",
    package="vllm",
    landmark="v1/core",
    facts=FACTS,
    bases=(BASE,),
    go_on="remove the `adaptive_spec` configuration",
)
