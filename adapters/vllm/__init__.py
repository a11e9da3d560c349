"""The vLLM adapter: see PATCHES.md for every hook and why it is there.

Layout, in the order a server meets it::

    plugin       entry point of `vllm.general_plugins`, in every process; wraps
                 `EngineArgs.create_engine_config`
    gate         decides whether anything is switched on
    versions, facts, capability    what this vLLM, its source and configuration allow
    graph_ladder    the K that CUDA graphs are captured for
    draft_signal    what the drafter shows, from the worker to the scheduler
    schedulers   the scheduler classes vLLM then builds (the only one that imports vLLM at once)
    hooks        the overridden scheduler methods, fail-open
    steps, context, outcome    one step: what is known before, what it did
    lookup, copied_drafts    a second source of drafts: on the host, and in the worker
    requests, kv_blocks    constants of a request, KV blocks
    drafter_state   OFF-cold: the drafter's pass left out, and who can't be drafted for afterwards
    control, endpoint    the run-time switch, in EngineCore and over HTTP
    metrics      figures for Prometheus, written and shown
    rules, doctor        what `adaptive-spec doctor` prints
"""

KEY = "adaptive_spec"
"""Our key in ``--additional-config``."""
