"""What the adapter relies on in TensorRT-LLM: names, signatures, order of calls.

Facts about upstream in our own words. `source_check` looks for each of them in a source tree;
`versions` says in which trees they were read. A fact belongs to a route:

* ``one-engine``: K per iteration, 1.3 and main, by wrapping functions;
* ``host drafter``: a `Drafter` given to the LLM API, 1.2.x, without wrapping anything.

`RESERVE` is no route: where it is missing, K stays within upstream's own.
"""

from __future__ import annotations

from adaptive_spec.engines.source_check import EngineSource
from adaptive_spec.engines.source_facts import AnyOf, Fact, function, names, order

ONE_ENGINE, HOST_DRAFTER = "one-engine", "host drafter"
RESERVE = "one-engine drafts count in the token budget"

EXECUTOR = "_torch/pyexecutor/py_executor.py"
DRAFTER = "_torch/speculative/drafter.py"
RESOURCES = "_torch/pyexecutor/resource_manager.py"
SPEC_UTILS = "_torch/speculative/utils.py"
REQUEST = "_torch/pyexecutor/llm_request.py"
RANKS = "_torch/distributed/communicator.py"
SCHEDULER = "_torch/pyexecutor/scheduler/scheduler.py _torch/pyexecutor/scheduler.py"
SAMPLER = "_torch/pyexecutor/sampler/sampler.py _torch/pyexecutor/sampler.py"
CONFIG = "llmapi/llm_args.py"
ENGINE = "_torch/pyexecutor/model_engine.py _torch/pyexecutor/engine/runners/decoder/runner.py"
GRAPHS = "_torch/pyexecutor/cuda_graph_runner.py _torch/pyexecutor/engine/cuda_graph.py"

_HANDLE, _LOOK_UP = "PyExecutor._handle_dynamic_draft_len", "get_draft_len_for_batch_size"
_BEFORE_19204 = order(
    EXECUTOR, _HANDLE, _LOOK_UP, "before #19204: the look-up happens in the executor's method"
)

FACTS: dict[str, tuple[Fact, ...]] = {
    ONE_ENGINE: (
        function(
            EXECUTOR,
            "PyExecutor.start_worker(self)",
            "called once the executor is built and before its loop runs",
        ),
        function(
            EXECUTOR,
            "PyExecutor.shutdown(self)",
            "called when its loop is to end; also on throw-away executors",
        ),
        function(
            EXECUTOR,
            "PyExecutor._handle_dynamic_draft_len(self, scheduled_batch)",
            "resolves K, fills up or cuts drafts, sets runtime_draft_len",
        ),
        function(
            EXECUTOR,
            "PyExecutor._update_requests(self, sample_state[, resource_manager])",
            "applies an iteration's results to its requests",
        ),
        function(
            SPEC_UTILS,
            "get_draft_len_for_batch_size(draft_len_schedule, batch_size, max_draft_len[, "
            "min_draft_len])",
            "the look-up that is replaced for the length of one call",
        ),
        function(
            ENGINE,
            "*._get_graphs_to_capture(self, cuda_graph_batch_sizes[, spec_resource_manager])",
            "which (batch size, K) get a CUDA graph",
        ),
        function(
            ENGINE,
            "*.warmup(self, resource_manager)",
            "captures them; the managers tell whether each K's padding dummy has room",
        ),
        function(
            GRAPHS,
            "CUDAGraphRunner._round_up_batch_size_with_draft_len(self, batch_size, draft_len)",
            "assumes that K falls with batch size",
        ),
        function(
            GRAPHS,
            "CUDAGraphRunner._round_up_batch_size(self, batch_size)",
            "rounds up where each K has a graph at each batch size",
        ),
        names(
            EXECUTOR,
            "",
            "active_requests waiting_queue disable_overlap_scheduler enable_attention_dp "
            "is_warmup kv_cache_manager get_kv_cache_stats free_num_blocks max_num_blocks "
            "tokens_per_block runtime_draft_len context_chunk_size max_batch_size "
            "resource_manager LlmRequestState GENERATION_COMPLETE logger",
            "signals, ranks and request states are read from the executor",
        ),
        names(
            EXECUTOR,
            "",
            "_is_kv_manager_v2 kv_cache_transceiver kv_connector_manager speculation_gate",
            "with one of these the adapter only watches, or warns",
        ),
        AnyOf(
            facts=(
                names(
                    SPEC_UTILS,
                    "",
                    "draft_len_schedule support_dynamic_draft_len py_draft_tokens",
                    "after #19204",
                ),
                names(
                    EXECUTOR,
                    "",
                    "draft_len_schedule support_dynamic_draft_len py_draft_tokens",
                    "before #19204",
                ),
            ),
            why="upstream varies K only with a schedule, and gives each request K drafts",
        ),
        names(
            CONFIG,
            "DecodingBaseConfig",
            "draft_len_schedule is_linear_tree max_draft_len spec_dec_mode use_rejection_sampling",
            "what is configured; with trees and rejection sampling the adapter only watches",
        ),
        names(
            SCHEDULER,
            "ScheduledRequests",
            "batch_size context_requests context_requests_last_chunk generation_requests",
            "the batch that is about to run",
        ),
        names(SAMPLER, "SampleState", "requests", "whom results are about"),
        names(
            RESOURCES,
            "",
            "ResourceManagerType KV_CACHE_MANAGER SPEC_RESOURCE_MANAGER resource_managers",
            "which manager holds slots for the padding dummies",
        ),
        *(
            function(RANKS, f"Distributed.{name}(self)", "ranks that decide alone would hang")
            for name in ("tp_size", "tp_rank", "pp_size", "cp_size")
        ),
        function(RANKS, "*.tp_broadcast(self, obj, root)", "tensor parallelism: rank 0 decides"),
        function(
            RANKS,
            "*.tp_allgather(self, obj)",
            "attention data parallelism: the largest K of all ranks",
        ),
        names(
            REQUEST,
            "LlmRequest",
            "is_dummy py_request_id py_orig_prompt_len py_max_new_tokens "
            "py_num_accepted_draft_tokens",
            "name, tokens to go and accepted drafts of each request that is no dummy",
        ),
        AnyOf(
            facts=(order(EXECUTOR, _HANDLE, "update_draft_len", "since #19204"), _BEFORE_19204),
            why="the look-up happens inside, by its name in speculative.utils",
        ),
        AnyOf(
            facts=(
                order(SPEC_UTILS, "update_draft_len", "resolve_draft_len", "later"),
                order(SPEC_UTILS, "update_draft_len", _LOOK_UP, "since #19204"),
                _BEFORE_19204,
            ),
            why="the same, one call further in",
        ),
        AnyOf(
            facts=(
                order(SPEC_UTILS, "resolve_draft_len", _LOOK_UP, "later"),
                order(SPEC_UTILS, "update_draft_len", _LOOK_UP, "since #19204"),
                _BEFORE_19204,
            ),
            why="the same, two calls further in",
        ),
        order(
            EXECUTOR,
            "PyExecutor._executor_loop",
            "_handle_dynamic_draft_len prepare_resources _forward_step _sample_async "
            "_update_requests",
            "plain loop: K before KV is reserved, results in the same iteration",
        ),
        order(
            EXECUTOR,
            "PyExecutor._executor_loop_overlap",
            "_handle_dynamic_draft_len prepare_resources _forward_step _update_requests "
            "_sample_async",
            "overlap loop: results of one iteration arrive after the next is launched",
        ),
    ),
    HOST_DRAFTER: (
        function(
            DRAFTER,
            "Drafter.__init__(self, max_draft_len, max_total_draft_tokens[, max_concurrency, "
            "draft_len_schedule])",
            "our drafter calls it",
        ),
        function(
            DRAFTER,
            "Drafter.prepare_draft_tokens(self, scheduled_requests, resource_manager)",
            "where a drafter hands over its drafts",
        ),
        function(
            DRAFTER,
            "Drafter.get_draft_len_for_batch_size(self, batch_size)",
            "asked once per iteration if draft_len_schedule is set",
        ),
        function(
            DRAFTER,
            "Drafter.update_max_total_draft_tokens(self, new_max_total_draft_tokens)",
            "told what get_draft_len_for_batch_size said",
        ),
        function(
            RESOURCES,
            "BaseResourceManager.prepare_resources(self, scheduled_batch)",
            "sees each batch, also while nothing is drafted",
        ),
        function(
            RESOURCES,
            "BaseResourceManager.update_resources(self, scheduled_batch[, attn_metadata, "
            "kv_cache_dtype_byte_size])",
            "called when an iteration's results are applied",
        ),
        names(
            EXECUTOR,
            "",
            "py_disable_speculative_decoding py_draft_pages_allocated max_total_draft_tokens "
            "use_spec_decode",
            "off is remembered per request, KV is reserved for the announced length",
        ),
        order(
            EXECUTOR,
            "PyExecutor._prepare_and_schedule_batch",
            "get_draft_len_for_batch_size update_max_total_draft_tokens should_use_spec_decode "
            "_prepare_draft_requests _schedule",
            "the announced length is asked for before anything is reserved",
        ),
        order(
            EXECUTOR,
            "PyExecutor._executor_loop",
            "prepare_resources prepare_draft_tokens pad_draft_tokens_for_cuda_graph "
            "_forward_step _update_requests update_resources",
            "drafts are asked for once KV is reserved; results before update_resources",
        ),
    ),
    RESERVE: (
        names(
            EXECUTOR,
            "PyExecutor._prepare_and_schedule_batch",
            "draft_tokens is_spec_decode max_total_draft_tokens",
            "since #16101 each request has room for Kmax drafts when a batch is composed",
        ),
    ),
}
"""Route or feature -> facts."""

SOURCE = EngineSource(
    title="TensorRT-LLM",
    package="tensorrt_llm",
    landmark="_torch",
    facts=FACTS,
    bases=(ONE_ENGINE, HOST_DRAFTER),
    go_on="unset TLLM_ADAPTIVE_SPEC",
)
