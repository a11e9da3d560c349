"""The vLLM adapter: see PATCHES.md for every hook and why it is there.

Layout, in the order a server meets it::

    plugin       entry point of `vllm.general_plugins`, in every process
    gate         wraps `EngineArgs.create_engine_config`; decides whether anything is switched on
    versions, signatures, capability    what this vLLM, this code and this configuration allow
    schedulers   the scheduler classes vLLM then builds (the only module that imports vLLM)
    hooks        the overridden scheduler methods, fail-open
    steps        one step: context before, outcome after
    requests, hints, clock    per-request constants, `vllm_xargs`, step durations
    doctor       what `adaptive-spec doctor` prints
"""
