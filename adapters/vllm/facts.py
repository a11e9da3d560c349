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
from adaptive_spec.engines.source_facts import AnyOf, Fact, Function, Names, Order

BASE = "K per request and step"
V2_DEPTH = "draft depth on model runner V2"
LADDER = "captured ladder of K"
COLD = "OFF-cold"
AHEAD = "planning while the device works"
RECURRENT = "K = 0 on models with recurrent state"
SWITCH = "run-time switch by endpoint"
WEIGHTS = "news of reloaded weights"

ALL_ENGINES = "reaches every engine"
CLIENT = "v1/engine/core_client.py"
ASYNC_SCHEDULER = "v1/core/sched/async_scheduler.py"

FACTS: dict[str, tuple[Fact, ...]] = {
    BASE: (
        Function(
            files=("engine/arg_utils.py",),
            name="EngineArgs.create_engine_config",
            parameters=("self", "usage_context", "headless"),
            why="the one function that every process which makes a configuration calls",
        ),
        Function(
            files=("plugins/__init__.py",),
            name="load_general_plugins",
            parameters=(),
            why="how we are loaded",
        ),
        Names(
            files=("config/scheduler.py",),
            within="SchedulerConfig",
            names=("async_scheduling", "max_num_seqs", "scheduler_cls"),
            why="names our scheduler and carries our configuration",
        ),
        Names(
            files=("config/vllm.py",),
            within="VllmConfig",
            names=(
                "compilation_config",
                "kv_transfer_config",
                "model_config",
                "num_speculative_tokens",
                "parallel_config",
                "scheduler_config",
                "speculative_config",
                "use_v2_model_runner",
            ),
            why="the configuration is read from it",
        ),
        Names(
            files=("config/speculative.py",),
            within="SpeculativeConfig",
            names=(
                "method",
                "num_speculative_tokens_per_batch_size",
                "parallel_drafting",
                "rejection_sample_method",
                "use_gemma4_mtp",
                "use_step3p5_mtp",
            ),
            why="decides whether depth follows, and where we only watch",
        ),
        Names(
            files=("config/model.py",),
            within="ModelConfig",
            names=("has_inner_state", "is_diffusion", "is_hybrid", "runner_type"),
            why="decides where we are inert, or only watch",
        ),
        Function(
            files=SCHEDULER,
            name="Scheduler.schedule",
            parameters=("self",),
            more=("throttle_prefills",),
            why="drafts are trimmed before it",
        ),
        Function(
            files=SCHEDULER,
            name="Scheduler._update_after_schedule",
            parameters=("self", "scheduler_output"),
            why="the draft depth is set before it",
        ),
        Function(
            files=(ASYNC_SCHEDULER,),
            name="AsyncScheduler._update_after_schedule",
            parameters=("self", "scheduler_output"),
            why="makes as many placeholders as will be drafted",
        ),
        Function(
            files=SCHEDULER,
            name="Scheduler.update_from_output",
            parameters=("self", "scheduler_output", "model_runner_output"),
            why="results are read before it, learned from after it",
        ),
        Function(
            files=SCHEDULER,
            name="Scheduler._free_request",
            parameters=("self", "request"),
            more=("delay_free_blocks",),
            why="the one place where every request ends",
        ),
        Function(
            files=SCHEDULER,
            name="Scheduler.set_pause_state",
            parameters=("self", "pause_state"),
            why="a pause is no step time",
        ),
        Function(
            files=SCHEDULER,
            name="Scheduler.shutdown",
            parameters=("self",),
            why="buffers are written",
        ),
        Order(
            file=SCHEDULER[0],
            function="Scheduler.schedule",
            calls=("SchedulerOutput", "_update_after_schedule"),
            why="the depth can be set in the finished output",
        ),
        Names(
            files=SCHEDULER,
            within="Scheduler",
            names=(
                "block_size",
                "cache_config",
                "dynamic_sd_lookup",
                "kv_cache_manager",
                "max_model_len",
                "max_num_running_reqs",
                "max_num_scheduled_tokens",
                "num_lookahead_tokens",
                "num_spec_tokens",
                "num_spec_tokens_to_schedule",
                "requests",
                "running",
                "scheduler_config",
                "spec_token_ids",
                "vllm_config",
                "waiting",
            ),
            why="the state a decision is made from, and what it changes",
        ),
        Names(
            files=OUTPUT,
            within="SchedulerOutput",
            names=(
                "num_invalid_spec_tokens",
                "num_scheduled_tokens",
                "num_spec_tokens_to_schedule",
                "preempted_req_ids",
                "scheduled_new_reqs",
                "scheduled_spec_decode_tokens",
                "total_num_scheduled_tokens",
            ),
            why="what really runs in a step",
        ),
        Names(
            files=("v1/outputs.py",),
            within="ModelRunnerOutput",
            names=("req_id_to_index", "sampled_token_ids"),
            why="what was accepted",
        ),
        Names(
            files=("v1/request.py",),
            within="Request",
            names=(
                "is_finished",
                "is_prefill_chunk",
                "lora_request",
                "max_tokens",
                "num_computed_tokens",
                "num_output_placeholders",
                "num_prompt_tokens",
                "num_tokens",
                "request_id",
                "sampling_params",
                "spec_token_ids",
                "use_structured_output",
            ),
            why="each request's limits, and which of its results count",
        ),
        Names(
            files=("v1/core/kv_cache_manager.py",),
            names=("block_pool", "coordinator", "get_blocks"),
            why="free KV blocks",
        ),
        Names(
            files=("v1/core/block_pool.py",),
            names=("get_num_free_blocks",),
            why="free KV blocks",
        ),
        Names(
            files=("v1/worker/gpu_model_runner.py",),
            names=("num_spec_tokens_to_schedule",),
            why="model runner V1 drafts as deep as the scheduler says",
        ),
    ),
    AHEAD: tuple(
        Order(
            file="v1/engine/core.py",
            function=f"EngineCore.{loop}",
            calls=("execute_model", "get_grammar_bitmask", "update_from_output"),
            why="the next step is planned there; elsewhere it is planned before it is scheduled",
        )
        for loop in ("step", "step_with_batch_queue")
    ),
    RECURRENT: (
        # vllm#56531 mended both model runners at once; on V2 it has left no name of its own.
        Names(
            files=("v1/worker/gpu_model_runner.py",),
            within="GPUModelRunner",
            names=("zero_draft_decode_mask",),
            why="a step without drafts reads the state that accepted drafts have left",
        ),
    ),
    V2_DEPTH: (
        Names(
            files=(f"{V2}/model_runner.py",),
            names=("num_spec_tokens_to_schedule",),
            why="model runner V2 hands the depth to its speculator, and drops drafts beyond it",
        ),
        Names(
            files=(f"{V2}/spec_decode/target_dependent_ar/speculator.py",),
            within="TargetDependentARSpeculator",
            names=("num_speculative_tokens", "_fused_multi_step_decode"),
            why="the loop of eagle and mtp ends there",
        ),
        Names(
            files=(f"{V2}/spec_decode/target_dependent_ar/cudagraph_utils.py",),
            names=("specialize_spec_tokens", "num_speculative_tokens_per_batch_size"),
            why="captures a draft loop for each K of the schedule",
        ),
    ),
    LADDER: (
        Function(
            files=("v1/spec_decode/dynamic/utils.py",),
            name="build_dynamic_sd_schedule_lookup",
            parameters=(
                "num_speculative_tokens_per_batch_size",
                "vllm_max_batch_size",
                "vllm_num_speculative_tokens",
            ),
            why="how vLLM reads the schedule that names the ladder",
        ),
        Names(
            files=(f"{V2}/cudagraph_utils.py",),
            within="CudaGraphManager",
            names=("num_speculative_tokens_per_batch_size", "uses_dynamic_speculative_decoding"),
            why="captures a decode graph for each K of the schedule",
        ),
    ),
    COLD: (
        Function(
            files=("v1/worker/gpu_model_runner.py",),
            name="GPUModelRunner.propose_draft_token_ids",
            parameters=("self", "scheduler_output"),
            more=(
                "sampled_token_ids",
                "sampling_metadata",
                "hidden_states",
                "sample_hidden_states",
                "aux_hidden_states",
                "spec_decode_metadata",
                "common_attn_metadata",
                "slot_mappings",
            ),
            why="the drafter's pass is left out around it",
        ),
        Names(
            files=("v1/spec_decode/llm_base_proposer.py",),
            names=("common_attn_metadata", "num_speculative_tokens", "_last_draft_probs"),
            why="the answer of a drafter that does not run",
        ),
    ),
    SWITCH: (
        Function(
            files=("plugins/__init__.py",),
            name="load_endpoint_plugins",
            parameters=("supported_tasks",),
            why="adds our route",
        ),
        AnyOf(
            facts=(
                Names(files=(CLIENT,), names=("call_utility_all_async",), why=ALL_ENGINES),
                Names(
                    files=(CLIENT,), names=("_call_utility_async", "core_engines"), why=ALL_ENGINES
                ),
            ),
            why=ALL_ENGINES,
        ),
        Names(
            files=("v1/engine/core.py",),
            within="EngineCore",
            names=("scheduler",),
            why="the engine's half of the switch",
        ),
    ),
    WEIGHTS: (
        Function(
            files=("v1/engine/core.py",),
            name="EngineCore.set_weight_version",
            parameters=("self", "weight_version"),
            why="acceptance is learned anew with other weights",
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
