"""What the adapter relies on in TensorRT-LLM: names, signatures, order of calls.

Facts about upstream in our own words. `source_check` looks for each of them in a source tree;
`versions` says in which trees they were read. A fact belongs to a route:

* ``one-engine``: K per iteration, 1.3 and main, by wrapping functions;
* ``host drafter``: a `Drafter` given to the LLM API, 1.2.x, without wrapping anything.
"""

from __future__ import annotations

from adaptive_spec.engines.source_check import EngineSource
from adaptive_spec.engines.source_facts import Fact, Function, Names, Order

ONE_ENGINE, HOST_DRAFTER = "one-engine", "host drafter"

EXECUTOR = "_torch/pyexecutor/py_executor.py"
DRAFTER = "_torch/speculative/drafter.py"
RESOURCES = "_torch/pyexecutor/resource_manager.py"
SPEC_UTILS = "_torch/speculative/utils.py"
REQUEST = "_torch/pyexecutor/llm_request.py"
RANKS = "_torch/distributed/communicator.py"
ENGINE = (
    "_torch/pyexecutor/model_engine.py",
    "_torch/pyexecutor/engine/runners/decoder/runner.py",
)
GRAPHS = ("_torch/pyexecutor/cuda_graph_runner.py", "_torch/pyexecutor/engine/cuda_graph.py")


FACTS: dict[str, tuple[Fact, ...]] = {
    ONE_ENGINE: (
        Function(
            files=(EXECUTOR,),
            name="PyExecutor.start_worker",
            parameters=("self",),
            why="called once the executor is built and before its loop runs",
        ),
        Function(
            files=(EXECUTOR,),
            name="PyExecutor.shutdown",
            parameters=("self",),
            why="called when its loop is to end; also on throw-away executors",
        ),
        Function(
            files=(EXECUTOR,),
            name="PyExecutor._handle_dynamic_draft_len",
            parameters=("self", "scheduled_batch"),
            why="resolves K, fills up or cuts drafts, sets runtime_draft_len",
        ),
        Function(
            files=(EXECUTOR,),
            name="PyExecutor._update_requests",
            parameters=("self", "sample_state"),
            more=("resource_manager",),
            why="applies an iteration's results to its requests",
        ),
        Function(
            files=(SPEC_UTILS,),
            name="get_draft_len_for_batch_size",
            parameters=("draft_len_schedule", "batch_size", "max_draft_len"),
            more=("min_draft_len",),
            why="the look-up that is replaced for the length of one call",
        ),
        Function(
            files=ENGINE,
            name="*._get_graphs_to_capture",
            parameters=("self", "cuda_graph_batch_sizes"),
            more=("spec_resource_manager",),
            why="which (batch size, K) get a CUDA graph",
        ),
        Function(
            files=GRAPHS,
            name="CUDAGraphRunner._round_up_batch_size_with_draft_len",
            parameters=("self", "batch_size", "draft_len"),
            why="assumes that K falls with batch size",
        ),
        Function(
            files=GRAPHS,
            name="CUDAGraphRunner._round_up_batch_size",
            parameters=("self", "batch_size"),
            why="rounds up where each K has a graph at each batch size",
        ),
        Names(
            files=(EXECUTOR,),
            names=(
                "active_requests",
                "waiting_queue",
                "disable_overlap_scheduler",
                "enable_attention_dp",
                "is_warmup",
                "kv_cache_manager",
                "get_kv_cache_stats",
                "free_num_blocks",
                "max_num_blocks",
                "tokens_per_block",
                "runtime_draft_len",
                "draft_len_schedule",
                "support_dynamic_draft_len",
                "context_requests_last_chunk",
                "generation_requests",
                "context_chunk_size",
                "py_request_id",
                "py_draft_tokens",
                "LlmRequestState",
                "GENERATION_COMPLETE",
                "logger",
            ),
            why="signals, ranks and request states are read from the executor",
        ),
        Function(
            files=(RANKS,),
            name="*.tp_broadcast",
            parameters=("self", "obj", "root"),
            why="tensor parallelism: rank 0 decides",
        ),
        Function(
            files=(RANKS,),
            name="*.tp_allgather",
            parameters=("self", "obj"),
            why="attention data parallelism: the largest K of all ranks",
        ),
        Names(
            files=(REQUEST,),
            names=("py_orig_prompt_len", "py_max_new_tokens", "py_num_accepted_draft_tokens"),
            why="tokens to go, and accepted drafts, of each request",
        ),
        Order(
            file=EXECUTOR,
            function="PyExecutor._handle_dynamic_draft_len",
            calls=("get_draft_len_for_batch_size",),
            why="the look-up happens inside, by its name in speculative.utils",
        ),
        Order(
            file=EXECUTOR,
            function="PyExecutor._executor_loop",
            calls=(
                "_handle_dynamic_draft_len",
                "prepare_resources",
                "_forward_step",
                "_sample_async",
                "_update_requests",
            ),
            why="plain loop: K before KV is reserved, results in the same iteration",
        ),
        Order(
            file=EXECUTOR,
            function="PyExecutor._executor_loop_overlap",
            calls=(
                "_handle_dynamic_draft_len",
                "prepare_resources",
                "_forward_step",
                "_update_requests",
                "_sample_async",
            ),
            why="overlap loop: results of one iteration arrive after the next is launched",
        ),
    ),
    HOST_DRAFTER: (
        Function(
            files=(DRAFTER,),
            name="Drafter.__init__",
            parameters=("self", "max_draft_len", "max_total_draft_tokens"),
            more=("max_concurrency", "draft_len_schedule"),
            why="our drafter calls it",
        ),
        Function(
            files=(DRAFTER,),
            name="Drafter.prepare_draft_tokens",
            parameters=("self", "scheduled_requests", "resource_manager"),
            why="where a drafter hands over its drafts",
        ),
        Function(
            files=(DRAFTER,),
            name="Drafter.get_draft_len_for_batch_size",
            parameters=("self", "batch_size"),
            why="asked once per iteration if draft_len_schedule is set",
        ),
        Function(
            files=(DRAFTER,),
            name="Drafter.update_max_total_draft_tokens",
            parameters=("self", "new_max_total_draft_tokens"),
            why="told what get_draft_len_for_batch_size said",
        ),
        Function(
            files=(RESOURCES,),
            name="BaseResourceManager.prepare_resources",
            parameters=("self", "scheduled_batch"),
            why="sees each batch, also while nothing is drafted",
        ),
        Function(
            files=(RESOURCES,),
            name="BaseResourceManager.update_resources",
            parameters=("self", "scheduled_batch"),
            more=("attn_metadata", "kv_cache_dtype_byte_size"),
            why="called when an iteration's results are applied",
        ),
        Names(
            files=(EXECUTOR,),
            names=(
                "py_disable_speculative_decoding",
                "py_draft_pages_allocated",
                "max_total_draft_tokens",
                "use_spec_decode",
            ),
            why="off is remembered per request, KV is reserved for the announced length",
        ),
        Order(
            file=EXECUTOR,
            function="PyExecutor._prepare_and_schedule_batch",
            calls=(
                "get_draft_len_for_batch_size",
                "update_max_total_draft_tokens",
                "should_use_spec_decode",
                "_prepare_draft_requests",
                "_schedule",
            ),
            why="the announced length is asked for before anything is reserved",
        ),
        Order(
            file=EXECUTOR,
            function="PyExecutor._executor_loop",
            calls=(
                "prepare_resources",
                "prepare_draft_tokens",
                "pad_draft_tokens_for_cuda_graph",
                "_forward_step",
                "_update_requests",
                "update_resources",
            ),
            why="drafts are asked for once KV is reserved; results before update_resources",
        ),
    ),
}
"""Route -> facts."""

SOURCE = EngineSource(
    title="TensorRT-LLM",
    package="tensorrt_llm",
    landmark="_torch",
    facts=FACTS,
    bases=(ONE_ENGINE, HOST_DRAFTER),
    go_on="unset TLLM_ADAPTIVE_SPEC",
)
