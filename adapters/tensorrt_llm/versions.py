"""Which TensorRT-LLM this adapter was written for, what was executed and what was read.

The package needs its compiled libraries and an NVIDIA GPU, so the real engine was never run.
*Executed on a CPU* means: functions of the named commit, typed out from single files of a public
index into a scratch folder, ran with the adapter in them on stand-ins for the compiled parts, in
the runs of `make test-trtllm`. *Read* means: compared with what `contract` says, function by
function. A version that isn't listed may be used: what decides is whether its source fulfils the
contract, which is checked before anything is patched.
"""

from __future__ import annotations

from adaptive_spec.engines.versions import KnownVersion, VersionTable

VERSIONS = VersionTable(
    engine="TensorRT-LLM",
    go_on="unset TLLM_ADAPTIVE_SPEC",
    rows=(
        KnownVersion(
            version="1.2 line",
            route="one-engine",
            checked="refused: no _handle_dynamic_draft_len, K is fixed",
        ),
        KnownVersion(
            version="1.2 line",
            route="host drafter",
            checked=(
                "read: py_executor.py of 155,167 characters (_prepare_and_schedule_batch, "
                "_executor_loop, _prepare_draft_requests), drafter.py (base class; the same in "
                "the fork deepinfra at 87122d0459412146ef535148e1cbadf8fa59c2f4), "
                "resource_manager.py (BaseResourceManager); the index names no commit for the "
                "first. 1.2.1, the newest on PyPI, has a placeholder there and no source to read"
            ),
        ),
        KnownVersion(
            version="main before #19204 (1.3)",
            route="one-engine",
            checked=(
                "executed on a CPU: text of 0004396720054fd8e205cbf616f21f0b57c6b412 (both loops, "
                "scheduling, _handle_dynamic_draft_len, forward, sampling, updates, errors), "
                "spec_sampler_base.py of 006567a7, graph padding of cuda_graph_runner.py"
            ),
        ),
        KnownVersion(
            version="main after #19204",
            route="one-engine",
            checked=(
                "executed on a CPU: text of 770709ac1c693877b2aa257ee004f366c11c3333 (the same "
                "functions), spec_sampler_base.py of 006567a7, get_draft_len_for_batch_size of "
                "011d0933. Not to be had: update_draft_len and resolve_draft_len, which were "
                "written anew from upstream's unit tests of them. Read: "
                "engine/runners/decoder/runner.py of 0ea8c1de (warm-up), eagle3.py of f933a608, "
                "communicator.py"
            ),
        ),
        KnownVersion(
            version="main after #19204",
            route="host drafter",
            checked=(
                "executed on a CPU: the plain loop, scheduling and _prepare_draft_requests of "
                "770709ac. Read: drafter.py of 83ab45a5"
            ),
        ),
    ),
)
