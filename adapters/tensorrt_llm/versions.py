"""Which TensorRT-LLM this adapter was written for, and what was executed.

Nothing of TensorRT-LLM was executed: it needs its C++ libraries and an NVIDIA GPU. *Read* means
that the source was compared with what `contract` says, function by function, in a public index
that gives single files. A whole tree was not at hand: `source_check` has been run on the tests'
stand-in, and on excerpts of both versions (names, signatures, order of calls) typed out while
reading, with the outcomes below; not on a checkout of TensorRT-LLM. A version that
isn't listed may be used: what decides is whether its source still fulfils the contract, which is
checked before anything is patched.
"""

from __future__ import annotations

from adaptive_spec.engines.versions import KnownVersion, VersionTable

VERSIONS = VersionTable(
    engine="TensorRT-LLM",
    go_on="unset TLLM_ADAPTIVE_SPEC",
    rows=(
        KnownVersion(
            version="main after 1.3",
            route="one-engine",
            checked=(
                "read: commit 0004396720054fd8e205cbf616f21f0b57c6b412: py_executor.py, both "
                "loops, _handle_dynamic_draft_len, _prepare_and_schedule_batch, _can_queue, "
                "_update_requests, shutdown; of other commits of the same line: "
                "speculative/utils.py, model_engine.py and engine/runners/decoder/runner.py "
                "(graphs to capture), cuda_graph_runner.py (graph key, rounding up), "
                "spec_sampler_base.py (results), communicator.py, start_worker and is_warmup. "
                "Every fact of the route as written; host drafter route as well. Never executed"
            ),
        ),
        KnownVersion(
            version="1.2 line",
            route="host drafter",
            checked=(
                "read: py_executor.py of 155,167 characters (_prepare_and_schedule_batch, "
                "_executor_loop, _prepare_draft_requests), drafter.py (base class; the same in "
                "the fork deepinfra at 87122d0459412146ef535148e1cbadf8fa59c2f4), "
                "resource_manager.py (BaseResourceManager); the index they were read in names no "
                "commit for the first. Host drafter as written; one-engine not usable: no "
                "_handle_dynamic_draft_len, K is fixed. Never executed"
            ),
        ),
    ),
)
